"""The WebSocket server of the Source: it floods its clients, and never reads from them.

Frames are written to raw sockets by hand. `/pings` and `/messages` accept at any time and are silent until the attack
begins; `/idle/N` refuses until then, so that the quiet phase has no such connections.
"""

import base64
import hashlib
import socket
import threading
import time

from attacklib.processes import Child, Flag, free_port
from attacklib.source import listener

MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
PING, TEXT = 0x89, 0x81
BATCH = 512
HANDSHAKE = 10
IDLE_PER_SECOND = 50


def frame(kind, payload):
    """A final, unmasked frame with at most 125 bytes of payload."""
    return bytes([kind, len(payload)]) + payload


FRAMES = {"pings": frame(PING, b"p" * 125), "messages": frame(TEXT, b"this is no notification !")}


class Floods:
    """The process, seen from the harness."""

    def __init__(self, folder):
        self.flags = {name: Flag() for name in ("pings", "messages", "channels")}
        sock = listener(free_port())
        self.url = f"ws://127.0.0.1:{sock.getsockname()[1]}"
        self.idle, self.tally = [], None
        self.child = Child(folder, self.work, sock)
        sock.close()

    def start(self, name):
        self.flags[name].set()

    def reset(self):
        for flag in self.flags.values():
            flag.set(False)

    def work(self, tally, sock):
        self.tally = tally
        threading.Thread(target=self.chatter, daemon=True).start()
        while True:
            client, _ = sock.accept()
            threading.Thread(target=self.connected, args=[client], daemon=True).start()

    def connected(self, client):
        client.settimeout(HANDSHAKE)
        try:
            path, key = handshake(client)
            name = path.strip("/").split("/")[0]
            if name == "idle" and not self.flags["channels"]:
                client.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                client.close()
                return
            accept = base64.b64encode(hashlib.sha1(key + MAGIC).digest())
            client.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                           b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
            self.tally.add(f"{name}: accepted")
            if name == "idle":
                self.idle.append(client)
                return
            self.flood(name, client)
        except (OSError, ValueError, KeyError):
            pass
        client.close()

    def flood(self, name, client):
        """Sends frames as fast as the client takes them; what the client sends stays unread."""
        client.settimeout(5)
        batch = FRAMES[name] * BATCH
        while True:
            if not self.flags[name]:
                time.sleep(0.1)
                continue
            if self.send(name, client, batch):
                return

    def send(self, name, client, batch):
        """Sends a batch to its end; returns whether the connection has ended."""
        left = memoryview(batch)
        while left:
            try:
                left = left[client.send(left):]
            except socket.timeout:
                self.tally.add(f"{name}: seconds without progress", 5)
                if not self.flags[name]:
                    return False
            except OSError as bad:
                self.tally.add(f"{name}: ended by the client ({type(bad).__name__})")
                return True
        self.tally.add(f"{name}: frames", BATCH)
        return False

    def chatter(self):
        """Sends a message on one idle channel after the other."""
        turn = 0
        while True:
            time.sleep(1 / IDLE_PER_SECOND)
            if not self.flags["channels"] or not self.idle:
                continue
            turn += 1
            client = self.idle[turn % len(self.idle)]
            try:
                client.send(FRAMES["messages"], socket.MSG_DONTWAIT)
                self.tally.add("idle: messages")
            except BlockingIOError:
                self.tally.add("idle: blocked")
            except OSError:
                self.idle.remove(client)
                self.tally.add("idle: ended by the client")


def handshake(client):
    """Reads the head of the request; returns the path and the key."""
    head = b""
    while b"\r\n\r\n" not in head:
        chunk = client.recv(4096)
        if not chunk or len(head) > 1 << 16:
            raise ValueError("no request")
        head += chunk
    lines = head.split(b"\r\n")
    pairs = (line.partition(b":") for line in lines[1:])
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    return lines[0].split(b" ")[1].decode("latin-1"), headers[b"sec-websocket-key"]
