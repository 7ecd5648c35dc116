"""The attacks of scripts/attacks: one class each. Attackers run as children with a lower priority, until a deadline.

An attack names what it needs of the Source and of the mount, starts its children, and describes what happened. What it
should not have been able to do is in `broken`, which is reported and does not change the exit code.
"""

import collections
import errno
import fcntl
import os
import random
import secrets
import shutil
import socket
import struct
import time

from attacklib.documents import LINKED, REDIRECTS, ChangeFeed
from attacklib.mount import brief, run
from attacklib.processes import NOBODY, free_port

REFRESH_SECONDS = 180
BODY = 16 << 20
SIGNATURES = 95
WRONG = "0" * 128


class Attack:
    """What all attacks share. `run` is the run that the attack belongs to: its mount, site, floods and folder."""

    name = ""
    summary = ""
    offers = ()       # What the Capability List offers beside the Resource List.
    active = ()       # What the Source does from the beginning of the attack on.
    kinds = ()        # What a Change List grows by before each refresh.
    refreshes = False  # Whether `resourcesync refresh` runs in a loop.
    sets = 1          # How many sets the Source has.
    flood = None      # Which flood of the WebSocket server begins.

    def __init__(self):
        self.notes = {}

    def options(self, run_):
        """Options of the mount."""
        return []

    def before_mount(self, run_):
        """What the attacker does before the mount exists."""

    def start(self, run_):
        """Starts the children that belong to this attack alone."""

    def users(self, run_, count, work, *arguments):
        """Starts so many processes of an unprivileged user."""
        for _ in range(count):
            run_.child(work, run_.mount, run_.deadline, *arguments, user=NOBODY)

    def broken(self, counts):
        """What the attacker achieved and should not have."""
        return []


class Pings(Attack):
    """A WebSocket that sends pings as fast as it can, and never reads."""

    name = flood = "pings"
    offers = ("pings",)


class Messages(Attack):
    """A WebSocket that sends 25-byte text messages as fast as it can."""

    name = flood = "messages"
    offers = ("messages",)


class Channels(Attack):
    """2,500 sets, each with a WebSocket channel, on which a text message comes now and then."""

    name = flood = "channels"
    offers = ("idle",)
    sets = 2500


class Changes(Attack):
    """A Change List that grows by 60,000 changes of one resource before each refresh."""

    name = "changes"
    offers = ("changelist",)
    kinds = ("changes",)
    refreshes = True


class Undated(Changes):
    """The same, but the changes have no datetime: their hashes distinguish them."""

    name = "undated"
    kinds = ("undated",)


class Mementos(Changes):
    """A Change List that grows by 60 changes of one resource with 1,000 memento links each."""

    name = "mementos"
    kinds = ("mementos",)


class Segments(Changes):
    """A Change List that grows by 200 new URIs of 4,050 segments each."""

    name = "segments"
    kinds = ("segments",)


class Drip(Attack):
    """A Resource List whose new edition drips 240 bytes a second, without end."""

    name = "drip"
    active = ("drip",)
    refreshes = True


def refresh(tally, mount, deadline, feed):
    """Publishes the next edition, and refreshes, in a loop."""
    while (left := deadline - time.monotonic()) > 0:
        if feed.kinds:
            tally.add("changes published", feed.grow())
        begin = time.monotonic()
        code, _, err = run([mount.program, "refresh", mount.directory], min(REFRESH_SECONDS, left))
        took = time.monotonic() - begin
        tally.most("seconds of a refresh", took)
        if code == 0:
            tally.add("refreshes ended well")
        elif code is None:
            tally.add("refreshes killed at the end" if left < REFRESH_SECONDS else "refreshes killed as too slow")
        else:
            tally.add(f"refreshes failed: {brief(err)[:120]}")
        time.sleep(max(0.0, min(0.5 - took, deadline - time.monotonic())))


class Uris(Attack):
    """8 processes of a user look up names below `.resourcesync/uris` and `.resourcesync/collections`."""

    name = "uris"

    def start(self, run_):
        self.users(run_, 8, look_up, run_.site.base, run_.args.resources)


def look_up(tally, mount, deadline, base, count):
    escaped = base.replace("/", "%2F")
    unknown = random.Random(os.getpid())
    while time.monotonic() < deadline:
        number = unknown.randrange(1 << 62)
        for name in (("uris", f"x{number}"), ("uris", f"{escaped}%2Fpapers%2F{number}"),
                     ("uris", f"{escaped}%2Fcanonical%2F{number % count // LINKED * LINKED}"),
                     ("collections", "all", f"~deadbeef{number:x}")):
            begin = time.perf_counter()
            try:
                os.stat(mount.inside(*name))
                tally.add(f"{name[0]}: found")
            except OSError as bad:
                tally.add(f"{name[0]}: {errno.errorcode.get(bad.errno, bad.errno)}")
            tally.most("seconds of a lookup", time.perf_counter() - begin)


class Status(Attack):
    """4 processes of a user hold 900 open `status.json` each, and open them again in rotation; the Source adds errors
    with long texts."""

    name = "status"
    active = ("redirects", "long")

    def start(self, run_):
        self.users(run_, 4, hold_status)
        self.users(run_, 1, read_failing)


def hold_status(tally, mount, deadline):
    held = collections.deque()
    while time.monotonic() < deadline:
        name = "metrics" if len(held) % 10 == 9 else "status.json"
        try:
            file = os.open(mount.inside(name), os.O_RDONLY)
            os.pread(file, 1, 0)
            held.append(file)
            tally.add("opened")
        except OSError as bad:
            tally.add(f"refused: {errno.errorcode.get(bad.errno, bad.errno)}")
            time.sleep(0.01)
        tally.most("open at once", len(held))
        if len(held) >= 900:
            os.close(held.popleft())


def read_failing(tally, mount, deadline):
    """Each failed read may leave an error in `status.json`."""
    while time.monotonic() < deadline:
        for number in range(REDIRECTS):
            try:
                with open(mount.path("hostile", "redirect", f"{number}.txt"), "rb") as file:
                    file.read()
            except OSError as bad:
                tally.add(f"failing reads: {errno.errorcode.get(bad.errno, bad.errno)}")
        try:
            with open(mount.inside("status.json"), "rb") as file:
                tally.most("bytes of status.json", len(file.read()))
        except OSError:
            tally.add("status.json could not be read")
        time.sleep(0.5)


class Signatures(Attack):
    """A caller of the callback posts 16 MiB with 95 wrong signatures, 8 at a time, and forges verifications."""

    name = "signatures"
    offers = ("websub",)

    def options(self, run_):
        self.port = free_port()
        return [f"listen=127.0.0.1:{self.port}"]

    def start(self, run_):
        callback = run_.site.control()["callback"]
        if not callback:
            self.notes["no subscription"] = 1
            return
        for _ in range(8):
            run_.child(post_bodies, callback, run_.deadline)
        run_.child(forge_verifications, callback, run_.site.documents.url("topic"), run_.deadline)

    def broken(self, counts):
        asked = counts.get("Source: hub: subscribe", 0)
        return [f"{asked} subscriptions: a forged lease of 1 s, or a forged denial, was believed"] if asked > 1 else []


def ask(address, head, body=b""):
    """Sends a request with a connection of its own; returns the status, or how it failed."""
    try:
        with socket.create_connection(address, timeout=60) as connection:
            try:
                connection.sendall(head)
                connection.sendall(body)
            except OSError:
                pass  # A server that refuses may not read to the end.
            answer = connection.recv(4096).split(b" ")
            return answer[1].decode("latin-1") if len(answer) > 1 else "closed"
    except OSError as bad:
        return type(bad).__name__


def split_url(url):
    host, _, path = url.removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    return (name, int(port)), "/" + path


def post_bodies(tally, callback, deadline):
    address, path = split_url(callback)
    lines = f"X-Hub-Signature: sha512={WRONG}\r\n" * SIGNATURES
    head = f"POST {path} HTTP/1.1\r\nHost: hub\r\nContent-Length: {BODY}\r\n{lines}\r\n".encode()
    body = bytes(BODY)
    while time.monotonic() < deadline:
        begin = time.monotonic()
        status = ask(address, head, body)
        tally.add(f"POST: {status}")
        tally.most("seconds of a POST", time.monotonic() - begin)
        if status != "403":
            time.sleep(0.05)


def forge_verifications(tally, callback, topic, deadline):
    """`denied` comes in the last tenth alone: a hub that is believed to deny ends the subscription."""
    address, path = split_url(callback)
    begin = time.monotonic()
    late = begin + 0.9 * (deadline - begin)
    while (now := time.monotonic()) < deadline:
        modes = ["subscribe", "denied"] if now > late else ["subscribe"]
        for mode in modes:
            query = f"hub.mode={mode}&hub.topic={topic}&hub.challenge=x&hub.lease_seconds=1&hub.reason=x"
            head = f"GET {path}?{query} HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n"
            tally.add(f"GET {mode}: {ask(address, head.encode())}")
        time.sleep(0.1)


class Terminal(Attack):
    """Entries with C1 controls and bidi overrides, an attribute `verified`, and 400 link relations."""

    name = "terminal"
    hostile = "relations.txt"

    def start(self, run_):
        self.users(run_, 2, read_attributes)
        run_.child(inspect, run_.mount, run_.deadline, run_.site.documents.url("list/hostile.xml"), user=NOBODY)
        run_.child(show_log, run_.mount, run_.deadline)

    def broken(self, counts):
        found = [name for name in counts if name.startswith("unescaped")]
        found += [name for name in counts if name in ("listxattr: E2BIG", "verified attribute is yes")]
        return found


def read_attributes(tally, mount, deadline):
    names = [name for name in os.listdir(mount.path("hostile")) if os.path.isfile(mount.path("hostile", name))]
    getfattr = shutil.which("getfattr")
    while time.monotonic() < deadline:
        for name in names:
            path = mount.path("hostile", name)
            try:
                for attribute in os.listxattr(path):
                    value = os.getxattr(path, attribute)
                    if attribute == "user.resourcesync.verified":
                        tally.add(f"verified attribute is {brief(value)}")
                tally.add("listxattr: well")
            except OSError as bad:
                tally.add(f"listxattr: {errno.errorcode.get(bad.errno, bad.errno)}")
        if getfattr:
            code, _, _ = run([getfattr, "-d", mount.path("hostile")], 30)
            tally.add(f"getfattr: exit {code}")


def unescaped(output):
    """Characters in the output that a terminal obeys."""
    text = output.decode(errors="replace")
    return {c for c in text if "\x7f" <= c <= "\x9f" or c in "\r\x1b\x07" or "\u202a" <= c <= "\u202e"
            or "\u2066" <= c <= "\u2069"}


def note_output(tally, name, code, output):
    tally.add(f"{name}: exit {code}")
    for character in unescaped(output):
        tally.add(f"unescaped {ascii(character)} in {name}")


def inspect(tally, mount, deadline, url):
    while (left := deadline - time.monotonic()) > 0:
        code, out, err = run([mount.program, "inspect", url, "--all"], min(60, left), env={**os.environ, "HOME": "/"})
        note_output(tally, "inspect", code, out + err)
        time.sleep(0.5)


def show_log(tally, mount, deadline):
    """As root: only root may use the control socket."""
    while time.monotonic() < deadline:
        for name in os.listdir(mount.path("hostile")):
            left = deadline - time.monotonic()
            code, out, err = run([mount.program, "log", mount.path("hostile", name)], min(60, left))
            note_output(tally, "log", code, out + err)
        time.sleep(0.5)


class Redirects(Attack):
    """Content whose redirects repeat the bearer token, read in a loop by a user who looks for it."""

    name = "redirects"
    active = ("redirects",)

    def __init__(self):
        super().__init__()
        self.secret = secrets.token_hex(16)

    def options(self, run_):
        path = os.path.join(run_.folder, "credentials")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as out:
            out.write(f"http://127.0.0.1:{run_.site.port} bearer {self.secret}\n")
        return [f"credentials={path}"]

    def start(self, run_):
        self.users(run_, 2, read_redirects, self.secret.encode())

    def broken(self, counts):
        return [name for name in counts if name.startswith("the secret")]


def read_redirects(tally, mount, deadline, secret):
    places = ("status.json", "metrics")
    while time.monotonic() < deadline:
        for number in range(REDIRECTS):
            path = mount.path("hostile", "redirect", f"{number}.txt")
            try:
                with open(path, "rb") as file:
                    file.read()
                tally.add("reads that succeeded")
            except OSError as bad:
                tally.add(f"reads: {errno.errorcode.get(bad.errno, bad.errno)}")
            try:
                for attribute in os.listxattr(path):
                    if secret in os.getxattr(path, attribute):
                        tally.add(f"the secret in the attribute {attribute}")
            except OSError:
                tally.add("attributes that could not be read")
        for place in places:
            try:
                with open(mount.inside(place), "rb") as file:
                    if secret in file.read():
                        tally.add(f"the secret in {place}")
            except OSError as bad:
                tally.add(f"{place}: {errno.errorcode.get(bad.errno, bad.errno)}")


class Locks(Attack):
    """A user locks the directory before and after it is mounted, and opens and locks the files of a cache of mode 0755
    while the daemon syncs."""

    name = "locks"
    offers = ("changelist",)
    kinds = ("one",)
    refreshes = True
    held = 12

    def before_mount(self, run_):
        mount = run_.mount
        os.mkdir(mount.cache, 0o755)
        os.chmod(mount.cache, 0o755)
        holder = run_.child(hold_lock, mount.directory, time.monotonic() + self.held, user=NOBODY)
        time.sleep(0.3)
        begin = time.monotonic()
        run_.first_mount = lambda failure: self.note_mount(holder, begin, failure)

    def note_mount(self, holder, begin, failure):
        """How the mount went while the directory was locked. After a failure the mount is tried without the lock."""
        self.notes["seconds of the mount beside a lock"] = round(time.monotonic() - begin, 1)
        self.notes[f"mount beside a lock: {failure or 'succeeded'}"] = 1
        holder.kill()

    def start(self, run_):
        run_.child(hold_lock, run_.mount.directory, run_.deadline, user=NOBODY)
        names = [os.path.basename(path) for path in run_.mount.sockets()]
        self.users(run_, 2, open_cache, names)

    def broken(self, counts):
        return [name for name in counts if name.startswith(("opened", "locked", "answered"))]


def hold_lock(tally, directory, deadline):
    file = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tally.add("flock held")
    except OSError as bad:
        tally.add(f"flock: {errno.errorcode.get(bad.errno, bad.errno)}")
    while time.monotonic() < deadline:
        time.sleep(0.1)


def open_cache(tally, mount, deadline, sockets):
    """Opens files, takes read locks where SQLite has its own, and sends a request to the control socket."""
    while time.monotonic() < deadline:
        held = []
        for name in ("catalog.db", "catalog.db-wal", "catalog.db-shm", "log"):
            try:
                held.append(os.open(os.path.join(mount.cache, name), os.O_RDONLY))
                tally.add(f"opened {name}")
                lock_bytes(held[-1])
                tally.add(f"locked {name}")
            except OSError as bad:
                tally.add(f"{name}: {errno.errorcode.get(bad.errno, bad.errno)}")
        for name in sockets:
            tally.add(send_request(os.path.join(mount.cache, name)))
        time.sleep(0.5)
        for file in held:
            os.close(file)
        time.sleep(0.01)


def lock_bytes(file):
    """A read lock of the bytes 120 to 127: in the index of a write-ahead log, all locks of SQLite."""
    fcntl.fcntl(file, fcntl.F_SETLK, struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, 120, 8, 0))


def send_request(path):
    name = os.path.basename(path)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2)
            connection.connect(path)
            connection.sendall(b'{"log":{"path":"","since":null}}\n')
            return f"answered by {name}" if connection.recv(1) else f"{name}: closed"
    except OSError as bad:
        return f"{name}: {errno.errorcode.get(bad.errno, type(bad).__name__)}"


ALL = {kind.name: kind for kind in (Pings, Messages, Channels, Uris, Status, Changes, Undated, Mementos, Segments,
                                    Signatures, Drip, Terminal, Redirects, Locks)}


def change_feed(run_, attacks):
    """The one Change List that all chosen attacks grow."""
    kinds = [kind for attack in attacks for kind in attack.kinds]
    return ChangeFeed(run_.site.base, run_.site.feed, kinds)
