"""The trees that scripts/bench walks and reads: our mount, the peers', and the native file system.

Each has a name; a root, below which all have the same names; and is mounted, unmounted and weighed alike.
"""

import json
import os
import re
import shutil
import subprocess
import time

from benchlib.machine import PROGRAM, Failure, command_line, end, memory, run, say, wait_until

PATIENCE = 60


class Native:
    """A folder of the disk."""

    name, peer = "native", "native"

    def __init__(self, root):
        self.root = root

    def mount(self):
        """There is nothing to do."""

    unmount = forget = fill = mount


class Mount:
    """A directory that a program serves. `everything` unmounts all that is left of them in the end."""

    everything = []

    def __init__(self, work, name, peer, below=""):
        self.name, self.peer = name, peer
        self.directory = os.path.join(work, "mounts", re.sub(r"\W+", "-", name))
        self.cache = self.directory + ".cache"
        self.root = os.path.join(self.directory, below)
        os.makedirs(self.directory, exist_ok=True)
        Mount.everything.append(self)

    def forget(self):
        """An empty cache."""
        shutil.rmtree(self.cache, ignore_errors=True)
        os.makedirs(self.cache)

    def memory(self):
        return memory(self.pid())

    def mount_to_ls(self):
        """Mounts; seconds from the command to the end of the first ls."""
        begin = time.monotonic()
        self.mount()
        shown, _ = run(["ls", self.directory])
        if not shown:
            raise Failure(f"{self.name}: nothing is in {self.directory}")
        return time.monotonic() - begin

    def is_mounted(self):
        """What the kernel says: also of a mount whose daemon is dead."""
        with open("/proc/self/mounts", "rb") as mounts:
            return any(line.split()[1].decode("unicode_escape") == self.directory for line in mounts)

    def detach(self):
        """Unmounts; what is busy for a moment is tried again, and in the end cut off."""
        for _ in range(40):
            if not self.is_mounted():
                return
            if subprocess.run(["umount", self.directory], stderr=subprocess.DEVNULL, check=False).returncode:
                time.sleep(0.25)
        subprocess.run(["umount", "--lazy", self.directory], stderr=subprocess.DEVNULL, check=False)


class Ours(Mount):
    """resourcesync mount; returns when the tree is complete."""

    def __init__(self, work, url, below="", name="ours", options=()):
        super().__init__(work, name, "ours", below)
        self.url, self.options = url, options

    def mount(self, timeout=960):
        options = ",".join([f"cache={self.cache}", "wait=900", "poll=0", "notify=off", *self.options])
        run([PROGRAM, "mount", self.url, self.directory, "-o", options], timeout)

    def daemons(self):
        """The processes that serve this directory."""
        def is_ours(line):
            return line[1:3] == ["mount", "--daemon"] and self.directory in line
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and is_ours(command_line(pid))]

    def pid(self):
        daemons = self.daemons()
        if len(daemons) != 1:
            raise Failure(f"{self.directory} is served by {len(daemons)} processes")
        return daemons[0]

    def status(self):
        with open(os.path.join(self.directory, ".resourcesync/status.json"), encoding="utf-8") as status:
            return json.load(status)

    def fetched(self, count):
        """Waits until all content is here."""
        def complete():
            status = self.status()
            if status["error_count"] or status["progress"]["failed"]:
                raise Failure(f"{self.name}: {status['errors']}")
            return status["cached"]["resources"] == count
        wait_until("all content is here", complete, 300)

    def fill(self):
        run([PROGRAM, "fetch", self.directory])

    def unmount(self):
        """Returns when the daemon has ended."""
        self.detach()
        try:
            wait_until("the daemon ends", lambda: not self.daemons(), 30)
        except Failure:
            for pid in self.daemons():
                os.kill(pid, 9)
            raise


class Peer(Mount):
    """A program that stays in the foreground while it serves; its root shows something when it is mounted."""

    process = None

    def __init__(self, work, peer, arguments, below=""):
        super().__init__(work, peer, peer, below)
        self.arguments = arguments

    def mount(self):
        os.makedirs(self.cache, exist_ok=True)
        with open(self.directory + ".log", "ab") as log:
            self.process = subprocess.Popen(self.argv(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)
        wait_until(f"{self.name} shows something (its log: {log.name})", self.shows, PATIENCE, 0.001)

    def argv(self):
        places = {"MNT": self.directory, "CACHE": self.cache}
        return [self.peer] + [places.get(argument, argument) for argument in self.arguments]

    def shows(self):
        if self.process.poll() is not None:
            raise Failure(f"{self.name} ended with {self.process.returncode}; see {self.directory}.log")
        return self.is_mounted() and os.listdir(self.directory)

    def pid(self):
        return self.process.pid

    def fill(self):
        """A peer's cache is filled by reading."""

    def unmount(self):
        self.detach()
        if self.process:
            end(self.process, 20)
            self.process = None


def rclone(work, url):
    return Peer(work, "rclone", ["mount", ":http:", "MNT", "--http-url", url, "--read-only", "--vfs-cache-mode", "full",
                                 "--cache-dir", "CACHE", "--dir-cache-time", "1h", "--config", "/dev/null"])


def httpdirfs(work, url):
    """Without --no-range-check it ends at the first answer of nginx to a range."""
    return Peer(work, "httpdirfs", ["-f", "--no-range-check", "--cache", "--cache-location", "CACHE", url, "MNT"])


def fuse_zip(work, package):
    return Peer(work, "fuse-zip", ["-f", "-r", package, "MNT"], "data")


def unmount_all():
    """Leaves nothing mounted and no daemon behind, whatever state things are in."""
    for mount in Mount.everything:
        try:
            mount.unmount()
        except (Failure, OSError) as bad:
            say(f"{mount.name}: {bad}")
