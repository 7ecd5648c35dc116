"""The HTTP server of the Source: documents, content, redirects, a list that drips, and a WebSub hub.

It runs in a process of its own with asyncio, and does little for each request. `POST /-control` with JSON sets what it
offers and which attacks are active; the answer has its counters.
"""

import asyncio
import collections
import hashlib
import http.client
import json
import os
import socket
import time
import urllib.parse

from attacklib.documents import TINY, Documents, content, document, when
from attacklib.processes import Child, Failure, free_port

CONTROL = "/-control"
DRIP_EACH, DRIP_PAUSE = 24, 0.1
CHUNK = 256 << 10
LONG = 30_000
REASONS = {200: "OK", 202: "Accepted", 302: "Found", 304: "Not Modified", 404: "Not Found"}
BUILD_SECONDS = 300


class Request:
    """The parsed head of a request."""

    def __init__(self, head):
        first, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = first.split(" ", 2)
        self.path = self.target.partition("?")[0]
        pairs = (line.partition(":") for line in lines if line)
        self.headers = {name.lower(): value.strip() for name, _, value in pairs}

    def length(self):
        return int(self.headers.get("content-length", 0))


class Server:
    """All connections of one Source."""

    def __init__(self, documents, feed):
        self.documents, self.feed = documents, feed
        self.offers, self.active = set(), set()
        self.counts = collections.Counter()
        self.callback, self.longest_drip = None, 0.0
        self.tasks = set()
        self.digests = {}
        # Validators of documents that depend on `offers` differ between two attacks.
        self.edition = 0

    async def serve(self, reader, writer):
        """One connection, kept open."""
        try:
            keep = True
            while keep:
                request = Request((await reader.readuntil(b"\r\n\r\n"))[:-4])
                body = await reader.readexactly(request.length())
                keep = await self.answer(request, body, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass
        finally:
            writer.close()

    async def answer(self, request, body, writer):
        """Answers one request; returns whether the connection goes on."""
        path = request.path
        if path == CONTROL:
            return await self.control(body, writer)
        if path == self.dripping() and "drip" in self.active:
            await self.drip(writer)
            return False
        if path == "/changelist.xml":
            return await self.changes(request, writer)
        if path.startswith("/hostile/redirect/") and "redirects" in self.active:
            return await self.redirect(request, writer)
        if path == "/hub" and request.method == "POST":
            self.subscribe(body)
            return await self.send(writer, 202)
        if path == "/topic":
            hub, topic = self.documents.url("hub"), self.documents.url("topic")
            links = f'<{topic}>; rel="self", <{hub}>; rel="hub"'
            return await self.send(writer, 200, request=request, headers={"Link": links})
        found = self.resource(path) or self.list(path)
        if found is None:
            self.counts["not found"] += 1
            return await self.send(writer, 404)
        return await self.send(writer, 200, found, request)

    async def send(self, writer, status, body=b"", request=None, headers=None):
        lines = [f"HTTP/1.1 {status} {REASONS[status]}"]
        if status == 200:
            tag = f'"{self.digest(body)}-{self.edition}"'
            lines += [f"ETag: {tag}", "Content-Type: application/xml"]
            if request and request.headers.get("if-none-match") == tag:
                lines[0], body = f"HTTP/1.1 304 {REASONS[304]}", b""
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        lines += [f"Content-Length: {len(body)}", "", ""]
        head_only = request is not None and request.method == "HEAD"
        writer.write("\r\n".join(lines).encode() + (b"" if head_only else body))
        await writer.drain()
        return True

    def digest(self, body):
        """Of a large document, which is made once, it is computed once: a server of its size would not make others wait."""
        known = self.digests.get(id(body))
        if known is None:
            known = hashlib.blake2b(body, digest_size=8).hexdigest()
            if any(body is part for part in self.documents.parts):
                self.digests[id(body)] = known
        return known

    def resource(self, path):
        """The content of a resource."""
        parts = path.split("/")
        if len(parts) == 4 and parts[1] == "papers":
            self.counts["resources"] += 1
            return content(int(parts[3].removesuffix(".txt")))
        if path.startswith("/hostile/") or path.endswith("/file.txt"):
            self.counts["resources"] += 1
            return TINY
        return None

    def list(self, path):
        """A document of the framework."""
        self.counts["documents"] += 1
        documents = self.documents
        made = {"/.well-known/resourcesync": documents.description,
                "/capabilitylist.xml": lambda: documents.capabilities(self.offers),
                "/resourcelist.xml": documents.index,
                "/list/hostile.xml": documents.hostile}.get(path)
        if made:
            return made()
        parts = path.split("/")
        if path.startswith("/list/part"):
            return documents.parts[int(path[len("/list/part"):-len(".xml")])]
        if len(parts) == 4 and parts[1] == "sets" and parts[3] == "capabilitylist.xml":
            return documents.tiny_capabilities(int(parts[2]), self.offers)
        if len(parts) == 4 and parts[1] == "sets" and parts[3] == "resourcelist.xml":
            return documents.tiny_list(int(parts[2]))
        return None

    async def control(self, body, writer):
        for name, value in json.loads(body or b"{}").items():
            if name == "offers":
                self.counts.clear()
                self.callback, self.longest_drip = None, 0.0
            setattr(self, name, set(value))
            self.edition += name == "offers"
        answer = {"counts": self.counts, "callback": self.callback, "longest_drip": self.longest_drip}
        return await self.send(writer, 200, json.dumps(answer).encode())

    async def changes(self, request, writer):
        """The Change List is a file that the attacker replaces."""
        self.counts["Change Lists"] += 1
        try:
            with open(self.feed, "rb") as feed:
                status = os.fstat(feed.fileno())
                tag = f'"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"'
                if request.headers.get("if-none-match") == tag:
                    return await self.send(writer, 304)
                writer.write(f"HTTP/1.1 200 OK\r\nETag: {tag}\r\nContent-Type: application/xml\r\n"
                             f"Content-Length: {status.st_size}\r\n\r\n".encode())
                while request.method == "GET" and (chunk := feed.read(CHUNK)):
                    writer.write(chunk)
                    await writer.drain()
        except FileNotFoundError:
            return await self.send(writer, 200, document("changelist", [], f' from="{when(0)}"'), request)
        return True

    def dripping(self):
        """The list that drips: that of a tiny set if there is one, so that other attacks can go on beside it."""
        return "/sets/1/resourcelist.xml" if self.documents.sets > 1 else "/resourcelist.xml"

    async def drip(self, writer):
        """A new edition of a list that never ends: 240 bytes a second."""
        self.counts["drips"] += 1
        begin = time.monotonic()
        head = document("resourcelist", [], f' at="{when(86_400)}"').partition(b"</urlset>")[0]
        try:
            tag = b"%d" % time.monotonic_ns()
            writer.write(b'HTTP/1.1 200 OK\r\nETag: "drip-' + tag + b'"\r\nConnection: close\r\n\r\n' + head)
            while "drip" in self.active:
                writer.write(b" " * (DRIP_EACH - 1) + b"\n")
                await writer.drain()
                await asyncio.sleep(DRIP_PAUSE)
        except OSError:
            self.counts["drips that the client ended"] += 1
        self.longest_drip = max(self.longest_drip, time.monotonic() - begin)

    async def redirect(self, request, writer):
        """Repeats the caller's secret in Location: to itself, or to a scheme that no client follows."""
        self.counts["redirects"] += 1
        secret = request.headers.get("authorization", "none").removeprefix("Bearer ")
        number = int(request.path.rpartition("/")[2].removesuffix(".txt"))
        # A long text in an error message, if it is not cut short.
        location = f"ftp://127.0.0.1/{secret}{number}" + "x" * (LONG if "long" in self.active else 0)
        if number % 2 and "long" not in self.active:
            location = f"{self.documents.base}{request.path}?secret={secret}&time={time.monotonic_ns()}"
        return await self.send(writer, 302, headers={"Location": location})

    def subscribe(self, body):
        """As a hub does, it accepts first, and verifies afterwards."""
        form = dict(urllib.parse.parse_qsl(body.decode()))
        mode = form.get("hub.mode", "none")
        self.counts[f"hub: {mode}"] += 1
        if mode == "subscribe":
            self.callback = form["hub.callback"]
        task = asyncio.ensure_future(self.verify(form))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def verify(self, form):
        query = urllib.parse.urlencode({"hub.mode": form["hub.mode"], "hub.topic": form["hub.topic"],
                                        "hub.challenge": "verify", "hub.lease_seconds": "864000"})
        callback = urllib.parse.urlsplit(form["hub.callback"])
        try:
            reader, writer = await asyncio.open_connection(callback.hostname, callback.port)
            head = f"GET {callback.path}?{query} HTTP/1.1\r\nHost: {callback.netloc}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode())
            answer = await asyncio.wait_for(reader.read(), 30)
            self.counts["hub: verified " + answer[9:12].decode("latin-1")] += 1
            writer.close()
        except (OSError, asyncio.TimeoutError) as bad:
            self.counts[f"hub: {type(bad).__name__}"] += 1


def listener(port=0):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen(1024)
    return sock


class Site:
    """A running Source, seen from the harness."""

    def __init__(self, folder, count, sets, channel):
        self.folder, self.sets = folder, sets
        sock = listener(free_port())
        self.port = sock.getsockname()[1]
        self.base = f"http://127.0.0.1:{self.port}"
        self.feed = os.path.join(folder, f"changelist-{self.port}.xml")
        self.documents = Documents(self.base, count, sets, channel)
        self.child = Child(folder, self.work, sock, nice=0)
        sock.close()
        self.control(BUILD_SECONDS)

    def work(self, _tally, sock):
        """The server's process. It has the priority of the reader: it stands for another machine, whose processor the
        attackers do not share, and it does little."""
        self.documents.build()

        async def run():
            server = Server(self.documents, self.feed)
            async with await asyncio.start_server(server.serve, sock=sock, limit=1 << 20) as running:
                await running.serve_forever()
        asyncio.run(run())

    def reset(self):
        """As it is before any attack."""
        if os.path.exists(self.feed):
            os.remove(self.feed)
        self.control(offers=[], active=[])

    def control(self, timeout=30, **settings):
        """Changes settings; returns the counters."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("POST", CONTROL, json.dumps(settings))
            return json.loads(connection.getresponse().read())
        except (OSError, ValueError, http.client.HTTPException) as bad:
            raise Failure(f"the Source does not answer: {bad}") from None
        finally:
            connection.close()
