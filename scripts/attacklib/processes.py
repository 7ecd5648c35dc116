"""Child processes of scripts/attacks: started by fork, bounded by a deadline, ended by their id."""

import collections
import ctypes
import json
import mmap
import os
import signal
import socket
import sys
import threading
import time
import traceback

NOBODY = 65534
NICE = 10
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)
GRACE = 5.0


class Failure(Exception):
    """The harness cannot go on with an attack, and why."""


def say(text):
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def die_with_parent():
    """The kernel kills this process when its parent ends, however that happens."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def become_nobody():
    """Drops all privileges of root for good."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def free_port(first=21_000, last=29_000):
    """A port that is free now and below the range of outgoing connections."""
    for port in range(first + os.getpid() * 7 % 1000, last):
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        # A second call may come before the first port is used.
        return port if port not in free_port.given and not free_port.given.add(port) else free_port(port + 1, last)
    raise Failure("no port is free")


free_port.given = set()


class Flag:
    """A boolean shared with children that are forked later."""

    def __init__(self):
        self.memory = mmap.mmap(-1, mmap.PAGESIZE)

    def set(self, on=True):
        self.memory[0] = int(on)

    def __bool__(self):
        return self.memory[0] != 0


class Tally:
    """Named counters and maxima, saved once a second: a child that must be killed loses little."""

    def __init__(self, path):
        self.path = path
        self.counts = collections.Counter()
        self.greatest = {}
        self.saved = 0.0
        self.lock = threading.RLock()

    def add(self, name, count=1):
        with self.lock:
            self.counts[name] += count
            if time.monotonic() - self.saved > 1:
                self.save()

    def most(self, name, value):
        with self.lock:
            self.greatest[name] = max(self.greatest.get(name, value), value)

    def save(self):
        self.saved = time.monotonic()
        with open(self.path + ".new", "w", encoding="utf-8") as out:
            json.dump({"counts": self.counts, "greatest": self.greatest}, out)
        os.replace(self.path + ".new", self.path)


def merged(paths):
    """The sums of the counters and the greatest of the maxima of several tallies, as one dictionary."""
    counts, greatest = collections.Counter(), {}
    for path in paths:
        try:
            with open(path, encoding="utf-8") as saved:
                tally = json.load(saved)
        except (OSError, ValueError):
            continue
        counts.update(tally["counts"])
        for name, value in tally["greatest"].items():
            greatest[name] = max(greatest.get(name, value), value)
    return {**counts, **{f"greatest {name}": round(value, 3) for name, value in greatest.items()}}


class Child:
    """A forked process that runs `work(tally)` and ends. Its counters are in the file `tally`."""

    number = 0
    idle = False  # Whether those with a lower priority run only when nothing else wants to.

    def __init__(self, folder, work, *arguments, user=None, nice=NICE):
        Child.number += 1
        # Each child has a folder of its own, so that a child of another user can replace its file.
        place = os.path.join(folder, f"child-{Child.number}")
        os.mkdir(place, 0o755)
        if user is not None:
            os.chown(place, user, user)
        self.tally = os.path.join(place, "tally")
        self.code = None
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self.run(work, arguments, user, nice)

    def run(self, work, arguments, user, nice):
        """The life of the child. It never returns into its parent's code."""
        code = 1
        try:
            for number in (signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.nice(nice)
            if nice and Child.idle:
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            if user is not None:
                become_nobody()
            die_with_parent()
            tally = Tally(self.tally)
            try:
                work(tally, *arguments)
            finally:
                tally.save()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def ended(self):
        """Whether it has ended. A process that another wait has reaped counts as ended."""
        if self.code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.code = os.waitstatus_to_exitcode(status) if pid else None
            except ChildProcessError:
                self.code = 1
        return self.code is not None

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while not self.ended() and time.monotonic() < end:
            time.sleep(0.02)
        return self.ended()

    def kill(self, seconds=GRACE):
        """Returns whether it has ended: one that waits for a stuck mount does when that is aborted."""
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
        return self.wait(seconds)


def kill_all(children):
    for child in children:
        child.kill(0)
    return [child for child in children if not child.wait(1)]
