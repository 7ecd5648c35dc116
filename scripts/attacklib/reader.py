"""The reader whose latency is measured: it walks directories and reads files, at a fixed and moderate pace.

Operations, each measured separately:

  lstat    half of names that the kernel has forgotten (they lead to the daemon), half of entries just listed
  scandir  open, list and close one directory; half of them without the kernel's copy of the listing
  read     open, read and close a file whose content is in the daemon's cache; the kernel's copy has been dropped
  fetch    the same of a file that has never been read: the daemon fetches and verifies it
  native   the same as `read` of a file on the disk: what the load of the machine alone costs; not judged
  wakeup   how much later than requested a sleep ends; not judged

Content is compared with what the Source publishes, and directories with the number of their entries.
"""

import array
import collections
import os
import random
import time

from attacklib.documents import DIRECTORIES, content, paper, per_directory

JUDGED = ("lstat", "scandir", "read", "fetch")
OPERATIONS = (*JUDGED, "native", "wakeup")
PACE = 0.05
NAMES = 25
READS = 5
CACHED = 200
SHOWN_ERRORS = 5


def percentile(values, part):
    """The nearest-rank percentile of sorted values; 0 without any."""
    return values[min(len(values) - 1, int(len(values) * part))] if values else 0.0


class Reader:
    """One phase of reading."""

    def __init__(self, mount, count, first, native):
        self.mount, self.count, self.native = mount, count, native
        self.random = random.Random(first)
        # All phases of a run share one order; `first` is the first file that has not been read yet.
        self.order = list(range(count))
        random.Random(1).shuffle(self.order)
        self.next = first
        self.latencies = {name: array.array("d") for name in OPERATIONS}
        self.errors = collections.Counter()
        self.shown = []

    def measured(self, name, operation, *arguments):
        """Returns what the operation returns; None if it failed."""
        begin = time.perf_counter()
        try:
            return operation(*arguments)
        except OSError as bad:
            self.fail(name, str(bad))
            return None
        finally:
            self.latencies[name].append(time.perf_counter() - begin)

    def fail(self, name, why):
        self.errors[name] += 1
        if len(self.shown) < SHOWN_ERRORS:
            self.shown.append(f"{name}: {why}"[:300])

    def path(self, number):
        return self.mount.path(paper(number, self.count))

    def run(self, seconds):
        """Reads until the time is over; returns the statistics."""
        end = time.monotonic() + seconds
        forgotten = turn = 0
        while (now := time.monotonic()) < end:
            if now - forgotten > 1:
                self.mount.forget_names()
                forgotten = now
            self.turn(turn)
            turn += 1
            pause = max(0.005, now + PACE - time.monotonic())
            begin = time.perf_counter()
            time.sleep(pause)
            self.latencies["wakeup"].append(time.perf_counter() - begin - pause)
        return self.result()

    def turn(self, number):
        """Some operations of each kind, the cold names first: a listing brings its names into the kernel."""
        for _ in range(NAMES):
            self.measured("lstat", os.lstat, self.path(self.random.randrange(self.count)))
        names = self.list(forget=number % 2 == 0)
        for path in self.random.sample(names, min(NAMES, len(names))):
            self.measured("lstat", os.lstat, path)
        for _ in range(READS):
            self.read("read", self.order[self.random.randrange(min(CACHED, self.next))])
        if number % 2 == 0 and self.next < self.count:
            self.read("fetch", self.order[self.next])
            self.next += 1
        self.measured("native", read_file, self.native)

    def list(self, forget):
        """Lists a directory, and returns the paths of its entries."""
        each = per_directory(self.count)
        number = self.random.randrange(min(DIRECTORIES, -(-self.count // each)))
        directory = self.mount.path("papers", f"{number:03}")
        if forget:
            drop_pages(directory)
        paths = self.measured("scandir", scan, directory) or []
        expected = min(each, self.count - number * each)
        if paths and len(paths) != expected:
            self.fail("scandir", f"{directory} has {len(paths)} entries, not {expected}")
        return paths

    def read(self, name, number):
        found = self.measured(name, read_file, self.path(number))
        if found is not None and found != content(number):
            self.fail(name, f"{self.path(number)}: not the content of the Source")

    def warm_up(self):
        """Has the content of the first files cached, so that `read` is not `fetch`."""
        while self.next < min(CACHED, self.count):
            self.read("fetch", self.order[self.next])
            self.next += 1
        return self.result()

    def result(self):
        """What is known of the phase so far. Times are in milliseconds."""
        statistics = {}
        for name, values in self.latencies.items():
            ordered = sorted(values)
            statistics[name] = {"count": len(ordered), "p50": percentile(ordered, 0.5) * 1000,
                                "p99": percentile(ordered, 0.99) * 1000, "max": percentile(ordered, 1) * 1000}
        return {"latencies": statistics, "errors": dict(self.errors), "shown": self.shown, "next": self.next}


def scan(directory):
    with os.scandir(directory) as entries:
        return [entry.path for entry in entries]


def read_file(path):
    """Reads a file, and has the kernel drop its copy, so that the next read reaches the daemon again."""
    file = os.open(path, os.O_RDONLY)
    try:
        parts = []
        while part := os.read(file, 1 << 17):
            parts.append(part)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        return b"".join(parts)
    finally:
        os.close(file)


def drop_pages(directory):
    """The kernel drops its copy of a listing."""
    try:
        file = os.open(directory, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
    except OSError:
        pass
