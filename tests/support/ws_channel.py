"""A WebSocket server, run for the tests.

    ws_channel.py [--cut-after N] [--cert FILE --key FILE]

It listens on a free port and prints one line once it can be asked, {"port": PORT}. Then each line of its standard
input is a command, answered with one line; it ends with its standard input.

    {"send": TEXT}       sends a text frame to all clients; answers to how many
    {"clients": null}    how many clients there are
    {"wait": SECONDS}    waits for a client; answers how many there are
    {"cut": null}        drops all connections; answers how many

With --cut-after, each connection is dropped after so many frames. Dropped connections see no close frame.
"""

import argparse
import asyncio
import json
import os
import ssl
import sys
import threading

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed


class Channel:
    def __init__(self, cut_after):
        self.cut_after = cut_after
        self.clients = {}
        self.arrived = asyncio.Event()

    async def serve(self, client):
        self.clients[client] = 0
        self.arrived.set()
        try:
            # What a client says is not for anyone.
            async for _ in client:
                pass
        except ConnectionClosed:
            pass
        finally:
            self.forget(client)

    def forget(self, client):
        self.clients.pop(client, None)
        if not self.clients:
            self.arrived.clear()

    def drop(self, client):
        self.forget(client)
        client.transport.abort()

    async def send_one(self, client, text):
        try:
            # Returns once all of it has been handed to the system.
            await client.send(text)
        except ConnectionClosed:
            self.forget(client)
            return 0
        if client in self.clients:
            self.clients[client] += 1
            if self.clients[client] == self.cut_after:
                self.drop(client)
        return 1

    async def send(self, text):
        return sum(await asyncio.gather(*(self.send_one(client, text) for client in list(self.clients))))

    async def wait(self, seconds):
        try:
            await asyncio.wait_for(self.arrived.wait(), seconds)
        except asyncio.TimeoutError:
            pass
        return len(self.clients)

    async def cut(self):
        clients = list(self.clients)
        for client in clients:
            self.drop(client)
        return len(clients)

    async def do(self, command):
        [(name, value)] = command.items()
        if name == "send":
            return await self.send(value)
        if name == "clients":
            return len(self.clients)
        if name == "wait":
            return await self.wait(value)
        if name == "cut":
            return await self.cut()
        raise ValueError(name)


def obey(channel, loop):
    for line in sys.stdin.buffer:
        answer = asyncio.run_coroutine_threadsafe(channel.do(json.loads(line)), loop).result()
        print(json.dumps(answer), flush=True)


def follow(channel, loop):
    try:
        obey(channel, loop)
    finally:
        sys.stderr.flush()
        os._exit(0)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cut-after", type=int)
    parser.add_argument("--cert")
    parser.add_argument("--key")
    args = parser.parse_args()
    tls = None
    if args.cert:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(args.cert, args.key)
    channel = Channel(args.cut_after)
    # To send means to wait until nothing is left to be written. With TLS, a limit of 0 would never be kept.
    limit = 1 if tls else 0
    async with serve(channel.serve, "127.0.0.1", 0, ssl=tls, write_limit=limit) as server:
        port = server.sockets[0].getsockname()[1]
        print(json.dumps({"port": port}), flush=True)
        loop = asyncio.get_running_loop()
        threading.Thread(target=follow, args=[channel, loop], daemon=True).start()
        await server.serve_forever()


asyncio.run(main())
