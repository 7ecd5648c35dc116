"""Passes TCP connections on, each byte later: far.py PORT TARGET SECONDS, the seconds there and back.

A connection takes one such time to be made; no bandwidth is taken away.
"""

import asyncio
import sys

CHUNK = 256 << 10


async def carry(reader, writer, later):
    """What is read is written that much later, in order, however much is on the way."""
    loop = asyncio.get_running_loop()
    on_the_way = asyncio.Queue()

    async def deliver():
        while True:
            due, data = await on_the_way.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            await writer.drain()

    delivery = asyncio.create_task(deliver())
    try:
        data = True
        while data:
            data = await reader.read(CHUNK)
            on_the_way.put_nowait((loop.time() + later, data))
        await delivery
    except OSError:
        delivery.cancel()


async def connected(reader, writer, target, seconds):
    try:
        await asyncio.sleep(seconds)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(carry(reader, far_writer, seconds / 2), carry(far_reader, writer, seconds / 2),
                             return_exceptions=True)
        far_writer.close()
    except OSError:
        pass
    finally:
        writer.close()


async def main(port, target, seconds):
    server = await asyncio.start_server(lambda *ends: connected(*ends, target, seconds), "127.0.0.1", port)
    async with server:
        await server.serve_forever()


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
