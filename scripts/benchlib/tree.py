"""The group `tree`: small files, walked and read, first, warm and with a cold kernel."""

import os
import typing

from benchlib.bench import same
from benchlib.machine import count_lines, drop_caches, probe, run
from benchlib.mounts import Native, Ours, fuse_zip, httpdirfs, rclone
from benchlib.report import LESS, MORE, at_least, at_most

GROUP = "tree"
PROGRAMS = ["find", "rclone", "httpdirfs", "fuse-zip"]
FIRST_LS, REMOUNT = "mount, to the end of ls", "remount, to the end of ls"
LS, STAT, READ = "find -ls, %s", "lstat, warm", "small files, %s"
RSS = "resident memory after %s"
SINGLE, DUMP = "ours", "ours, from packages"


class Listing(typing.NamedTuple):
    """A file that names files, how many, and their bytes."""

    path: str
    count: int
    bytes: int


class Tree:
    """One run of the group."""

    def __init__(self, bench):
        self.bench, self.book = bench, bench.book
        self.source = bench.sources.files()
        self.sizes = self.known_sizes()
        self.listings = {}
        work = bench.work
        self.native = Native(self.source.path("data"))
        self.ours = Ours(work, self.source.url("capabilitylist.xml"), "data")
        self.dump = Ours(work, self.source.url("withdump.xml"), "data", DUMP)
        self.peers = [make(work, self.source.url("data/")) for name, make in
                      (("rclone", rclone), ("httpdirfs", httpdirfs)) if bench.has(name)]
        self.zips = [fuse_zip(work, self.source.path(self.source.book["packages"][0]))] if bench.has("fuse-zip") else []

    def known_sizes(self):
        """What each file measures, by its path below the root."""
        return {path.removeprefix("data/"): os.path.getsize(self.source.path(path))
                for path in self.source.book["paths"]}

    def add(self, work, player, unit, value):
        self.book.add(GROUP, work, player.name, unit, value)

    def find_ls(self, player, work=None):
        count, seconds = count_lines(f"find {player.root} -ls")
        same("lines of find -ls", count, len(self.sizes) + self.bench.sizes.directories + 1)
        if work:
            self.add(work, player, "s", seconds)

    def first(self):
        """All that is there the first time: empty caches, and a kernel that has not seen the mount."""
        for player in self.bench.turns(GROUP, [self.ours, self.native, *self.peers]):
            with self.bench.attempt(GROUP, player, LS % "first"):
                player.forget()
                drop_caches(self.bench.work)
                if player is not self.native:
                    self.add(FIRST_LS, player, "s", player.mount_to_ls())
                    self.add(RSS % "mount", player, "MiB", player.memory()[0])
                self.find_ls(player, LS % "first")
                if player is not self.native:
                    self.add(RSS % "find", player, "MiB", player.memory()[0])
                player.unmount()

    def listing(self, player):
        """The files of a player in the order of its find; some of those of slow peers, spread over all of them."""
        paths = run(["find", player.root, "-type", "f"])[0].splitlines()
        if player.peer in self.bench.sizes.samples:
            paths = paths[::max(1, len(paths) // self.bench.sizes.samples[player.peer])]
        listing = Listing(self.bench.path(f"{player.name}.list"), len(paths),
                          sum(self.sizes[os.path.relpath(path, player.root)] for path in paths))
        with open(listing.path, "w", encoding="utf-8") as out:
            out.writelines(path + "\n" for path in paths)
        return listing

    def loop(self, how, player, work=None, rounds=1):
        """The timed loop over a player's files."""
        listing = self.listings[player.name]
        count, size, seconds = probe(how, listing.path, rounds)
        same("files and bytes", (count, size), (listing.count * rounds, listing.bytes * rounds))
        if work:
            self.add(work, player, "files/s", count / seconds)

    def again(self, players):
        """What is in the caches: the kernel's, or only each one's own."""
        fast = ("native", "ours")
        for player in self.bench.turns(GROUP, players):
            rounds = 10 if player.peer in fast else 1
            with self.bench.attempt(GROUP, player, "warm and cold"):
                if player.peer != "fuse-zip":
                    self.find_ls(player)
                    self.find_ls(player, LS % "warm")
                self.loop("stat", player)
                self.loop("stat", player, STAT, rounds)
                self.loop("read", player)
                self.loop("read", player, READ % "warm", rounds)
                drop_caches(self.bench.work)
                self.loop("read", player, READ % "cold kernel")

    def content(self):
        players = self.bench.mounted(GROUP, [self.ours, self.native, self.dump, *self.zips, *self.peers])
        for player in players:
            with self.bench.attempt(GROUP, player, READ % "brought into the cache"):
                self.listings[player.name] = self.listing(player)
                self.loop("read", player)
        self.again(players)
        for player in players:
            if player is not self.native and (GROUP, player.name) not in self.bench.out:
                with self.bench.attempt(GROUP, player, RSS % "reading"):
                    self.add(RSS % "reading", player, "MiB", player.memory()[0])
                    player.unmount()

    def remount(self):
        """Mounted anew over a cache that is full."""
        for player in self.bench.turns(GROUP, [self.ours, *self.peers]):
            with self.bench.attempt(GROUP, player, REMOUNT):
                drop_caches(self.bench.work)
                self.add(REMOUNT, player, "s", player.mount_to_ls())
                player.unmount()


def measure(bench):
    group = Tree(bench)
    rows(bench.book.compare, [peer.name for peer in group.peers], group.zips)
    group.first()
    group.content()
    group.remount()


def rows(compare, peers, zips):
    for work, most in ((LS % "first", 1.5), (LS % "warm", 1.1)):
        compare(GROUP, work, SINGLE, "native", at_most(most))
        for peer in peers:
            compare(GROUP, work, SINGLE, peer, LESS)
    for work, least in ((STAT, 0.9), (READ % "warm", 0.9), (READ % "cold kernel", 0.7)):
        for ours in (SINGLE, DUMP):
            compare(GROUP, work, ours, "native", at_least(least))
            for peer in [each.name for each in zips] + peers:
                compare(GROUP, work, ours, peer, MORE)
    for work in (FIRST_LS, REMOUNT, *(RSS % after for after in ("mount", "find", "reading"))):
        for peer in peers:
            compare(GROUP, work, SINGLE, peer)
