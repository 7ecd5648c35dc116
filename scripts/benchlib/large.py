"""The group `large`: one large file, in order and at random, warm and with a cold kernel."""

import os
import shutil

from benchlib.bench import same
from benchlib.machine import Failure, Unavailable, drop_caches, probe
from benchlib.mounts import Native, Ours, httpdirfs, rclone
from benchlib.report import MORE, at_least

GROUP = "large"
PROGRAMS = ["rclone", "httpdirfs"]
WHOLE, RANDOM = "read in order, %s", "4 KiB at random, %s"
# What ours is held to beside the native file, by io=: warm, cold kernel; in order, then at random.
GOALS = {"passthrough": (0.95, 0.9, 0.85, 0.9), "kernel": (0.7, 0.9, 0.8, 0.6)}


class Through(Ours):
    """Our mount with one io=, if the program does it, and does not quietly do something else."""

    def __init__(self, work, url, how):
        super().__init__(work, url, "data", f"ours, io={how}", [f"io={how}"])
        self.how = how

    def mount(self, timeout=960):
        try:
            super().mount(timeout)
        except Failure as bad:
            raise Unavailable(bad) if f"-o io={self.how}: expected" in str(bad) else bad
        if self.status()["io"] != self.how:
            raise Unavailable(f"io is {self.status()['io']}, not {self.how}")


class Large:
    """One run of the group."""

    def __init__(self, bench):
        self.bench, self.book = bench, bench.book
        source = bench.sources.large()
        self.size = source.book["bytes"]
        self.native = self.copy(source)
        self.ours = [Through(bench.work, source.url("capabilitylist.xml"), how) for how in GOALS]
        self.peers = [make(bench.work, source.url("data/")) for name, make in
                      (("rclone", rclone), ("httpdirfs", httpdirfs)) if bench.has(name)]

    def copy(self, source):
        """A native file on the disk on which the caches are."""
        folder = self.bench.path("native-large")
        os.makedirs(folder, exist_ok=True)
        shutil.copyfile(source.path("data/large.bin"), folder + "/large.bin")
        return Native(folder)

    def whole(self, player, work=None):
        _, size, seconds = probe("whole", os.path.join(player.root, "large.bin"))
        same("bytes read", size, self.size)
        if work:
            self.book.add(GROUP, work, player.name, "MiB/s", size / 2 ** 20 / seconds)

    def random(self, player, work):
        count, _, seconds = probe("random", os.path.join(player.root, "large.bin"), self.bench.sizes.seconds)
        self.book.add(GROUP, work, player.name, "reads/s", count / seconds)

    def play(self, player):
        # What reads at random left is in single pages, which are slower to read in order, later as well.
        drop_caches(self.bench.work)
        self.whole(player)
        self.whole(player, WHOLE % "warm")
        self.random(player, RANDOM % "warm")
        drop_caches(self.bench.work)
        self.whole(player, WHOLE % "cold kernel")
        drop_caches(self.bench.work)
        self.random(player, RANDOM % "cold kernel")

    def measure(self):
        players = self.bench.mounted(GROUP, [self.ours[0], self.native, self.ours[1], *self.peers])
        for player in players:
            with self.bench.attempt(GROUP, player, "brought into the cache"):
                self.whole(player)
        for player in self.bench.turns(GROUP, players):
            with self.bench.attempt(GROUP, player, "reading"):
                self.play(player)
        for player in players:
            if player is not self.native and (GROUP, player.name) not in self.bench.out:
                with self.bench.attempt(GROUP, player, "memory"):
                    self.book.add(GROUP, "resident memory after reading", player.name, "MiB", player.memory()[0])
                    player.unmount()


def measure(bench):
    group = Large(bench)
    works = [work % state for work in (WHOLE, RANDOM) for state in ("warm", "cold kernel")]
    for ours in group.ours:
        for work, least in zip(works, GOALS[ours.how]):
            bench.book.compare(GROUP, work, ours.name, "native", at_least(least))
            for peer in group.peers:
                bench.book.compare(GROUP, work, ours.name, peer.name, MORE)
        for peer in group.peers:
            bench.book.compare(GROUP, "resident memory after reading", ours.name, peer.name)
    group.measure()
