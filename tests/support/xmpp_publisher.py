"""Publishes on a node of an XMPP PubSub service, for the tests.

    xmpp_publisher.py PORT SERVICE NODE

It logs in as publisher@localhost at 127.0.0.1:PORT, prints {"port": PORT} once it can be asked, and ends with its standard
input. Each line that it is given is JSON: {"publish": XML} publishes that, {"from_another": XML} has another account send that,
{"anew": true} deletes the node and makes it again. It answers each with a line.
"""

import asyncio
import json
import sys
from xml.sax.saxutils import quoteattr

import slixmpp

PUBSUB = "http://jabber.org/protocol/pubsub"


def connect(user, port):
    client = slixmpp.ClientXMPP(f"{user}@localhost", "secret")
    client.register_plugin("xep_0060")
    client.enable_direct_tls = client.enable_starttls = False
    client.enable_plaintext = True
    client.plugin["feature_mechanisms"].config["unencrypted_scram"] = True
    ready = asyncio.get_running_loop().create_future()

    async def started(_):
        client.send_presence()
        if not ready.done():
            ready.set_result(True)

    client.add_event_handler("session_start", started)
    client.connect("127.0.0.1", port)
    return client, ready


async def publish(client, service, node, payload):
    """As it is: slixmpp would leave out attributes of namespaces that it does not know."""
    client.send_raw(
        f"<iq type='set' to='{service}' id='{client.new_id()}'><pubsub xmlns='{PUBSUB}'><publish node={quoteattr(node)}>"
        f"<item>{payload}</item></publish></pubsub></iq>"
    )
    # What is asked after it is answered after it.
    await client.make_iq_get(queryxmlns="http://jabber.org/protocol/disco#info", ito=service).send()


async def main():
    port, service, node = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    client, ready = connect("publisher", port)
    other, other_ready = connect("other", port)
    await asyncio.wait_for(asyncio.gather(ready, other_ready), 30)
    try:
        await client.plugin["xep_0060"].create_node(service, node)
    except slixmpp.exceptions.IqError as error:
        if error.condition != "conflict":
            raise
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    print(json.dumps({"port": port}), flush=True)
    while line := await lines.readline():
        told = json.loads(line)
        if "publish" in told:
            await publish(client, service, node, told["publish"])
        if "from_another" in told:
            other.send_raw(told["from_another"])
        if "anew" in told:
            await client.plugin["xep_0060"].delete_node(service, node)
            await client.plugin["xep_0060"].create_node(service, node)
        print(json.dumps({}), flush=True)


asyncio.run(main())
