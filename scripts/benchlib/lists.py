"""The group `lists`: a Source of millions of entries, of which only names and attributes are ever asked for."""

import os
import shutil
import time

from benchlib.bench import same
from benchlib.machine import count_lines, drop_caches, install_resync, probe, run, say
from benchlib.mounts import Native, Ours
from benchlib.report import at_least, at_most

GROUP = "lists"
PROGRAMS = ["find", "xmllint"]
REFERENCE = """
import resource, sys, time
from resync.resource_list import ResourceList
begin = time.monotonic()
listed = ResourceList(allow_multifile=True)
listed.read(uri=sys.argv[1])
print(len(listed), time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
TO_TREE, READ, FIRST_LS = "mount, to the complete tree", "all lists read", "remount, to the end of ls"
RSS, PEAK = "resident memory after %s", "most resident memory until after %s"
FIND, LS = "find, %s", "find -ls, %s"


class Documents:
    """Not a tree: the bare pass over the same documents, which takes turns with our mount."""

    name = peer = "quick-xml"

    def __init__(self, source):
        self.source = source
        self.files = [source.path(name) for name in source.book["documents"]]

    def read(self):
        _, size, seconds = probe("xml", *self.files)
        same("bytes of lists", size, self.source.book["bytes"])
        return seconds


def native_tree(bench, source):
    """The same names as empty files; kept with the Source."""
    folder = bench.path("native-names")
    mark = os.path.join(folder, "whole")
    wanted = f"{source.book['count']} {source.book['directories']}\n"
    if not os.path.exists(mark) or open(mark, encoding="ascii").read() != wanted:
        say("making the same names as empty files ...")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder + "/tree")
        source.as_empty_files(folder + "/tree")
        with open(mark, "w", encoding="ascii") as out:
            out.write(wanted)
    return Native(folder + "/tree/papers")


class Lists:
    """One run of the group."""

    def __init__(self, bench):
        self.bench, self.book = bench, bench.book
        self.source = bench.sources.listed()
        self.tiny = bench.sources.tiny()
        self.count = self.source.book["count"]
        self.documents = Documents(self.source)
        self.native = native_tree(bench, self.source)
        self.ours = Ours(bench.work, self.source.url("capabilitylist.xml"), "papers")
        self.ten = Ours(bench.work, self.tiny.url("capabilitylist.xml"), "papers", "ours, ten entries")

    def add(self, work, who, unit, value):
        self.book.add(GROUP, work, who, unit, value)

    def find(self, player, work, unit="s"):
        """`find -type f`, counted."""
        count, seconds = count_lines(f"find {player.root} -type f")
        same("files found", count, self.count)
        self.add(work, player.name, unit, seconds)

    def find_ls(self, player, work):
        count, seconds = count_lines(f"find {player.root} -ls")
        same("lines of find -ls", count, self.count + self.source.book["directories"] + 1)
        self.add(work, player.name, "s", seconds)

    def weigh(self, after):
        now, most = self.ours.memory()
        self.add(RSS % after, "ours", "MiB", now)
        self.add(PEAK % after, "ours", "MiB", most)

    def build(self):
        """From an empty cache, beside the bare pass; each finds the documents in the page cache."""
        for player in self.bench.turns(GROUP, [self.ours, self.documents]):
            with self.bench.attempt(GROUP, player, TO_TREE):
                self.documents.read()
                if player is self.documents:
                    self.add(TO_TREE, player.name, "s", player.read())
                else:
                    self.mount()
        for player in self.bench.turns(GROUP, [self.native], self.bench.sizes.few):
            with self.bench.attempt(GROUP, player, FIND % "first"):
                drop_caches(self.bench.work)
                self.find(player, FIND % "first")

    def mount(self):
        self.ours.forget()
        begin = time.monotonic()
        self.ours.mount()
        seconds = time.monotonic() - begin
        self.add(TO_TREE, "ours", "s", seconds)
        self.add(READ, "ours", "entries/s", self.count / seconds)
        same("resources", self.ours.status()["resources"], self.count)
        self.weigh("mount")
        if len(self.book.values.get((GROUP, FIND % "first", "ours"), [])) < self.bench.sizes.few:
            self.find(self.ours, FIND % "first")
            self.find(self.ours, FIND % "second, just after the first")
            self.find_ls(self.ours, LS % "first")
            self.weigh("find")
        self.ours.unmount()

    def walk(self):
        """Over and over, with all of it in the kernel's caches."""
        players = [self.ours, self.native]
        with self.bench.attempt(GROUP, self.ours, "remount"):
            self.ours.mount()
        for work, walk, how in ((FIND % "again", self.find, "-type f"), (LS % "again", self.find_ls, "-ls")):
            for player in players:
                count_lines(f"find {player.root} {how}")
            for player in self.bench.turns(GROUP, players):
                with self.bench.attempt(GROUP, player, work):
                    walk(player, work)
        with self.bench.attempt(GROUP, self.ours, "memory"):
            self.weigh("all walks")
            self.ours.unmount()

    def remount(self):
        """To the first ls, beside a Source of ten entries."""
        with self.bench.attempt(GROUP, self.ten, "mount"):
            self.ten.forget()
            self.ten.mount()
            self.ten.unmount()
        for player in self.bench.turns(GROUP, [self.ours, self.ten]):
            with self.bench.attempt(GROUP, player, FIRST_LS):
                drop_caches(self.bench.work)
                self.add(FIRST_LS, player.name, "s", player.mount_to_ls())
                player.unmount()

    def others(self):
        """What else reads such lists: the reference client once, for it takes minutes, and xmllint."""
        if self.bench.has("xmllint"):
            for _ in range(self.bench.sizes.few):
                self.documents.read()
                _, seconds = run(["xmllint", "--stream", "--noout", *self.documents.files])
                self.add(READ, "xmllint --stream", "entries/s", self.count / seconds)
        if self.bench.has("resync"):
            say("lists: resync reads them, at some 10,000 entries a second ...")
            python = install_resync(self.bench.work) + "/python"
            entries, seconds, most = run([python, "-c", REFERENCE, self.source.url("resourcelist.xml")])[0].split()[-3:]
            same("entries that resync read", int(entries), self.count)
            self.add(READ, "resync", "entries/s", self.count / float(seconds))
            self.add(PEAK % "mount", "resync", "MiB", float(most))


def measure(bench):
    group = Lists(bench)
    compare, weigh = bench.book.compare, bench.book.weigh
    compare(GROUP, TO_TREE, "ours", "quick-xml", at_most(6))
    compare(GROUP, READ, "ours", "resync", at_least(30))
    compare(GROUP, READ, "ours", "xmllint --stream")
    for after in ("mount", "find", "all walks"):
        weigh(GROUP, RSS % after, "ours", at_most(128))
        weigh(GROUP, PEAK % after, "ours", at_most(128))
    compare(GROUP, PEAK % "mount", "ours", "resync")
    weigh(GROUP, FIRST_LS, "ours", at_most(0.2))
    compare(GROUP, FIRST_LS, "ours", "ours, ten entries", at_most(1.5))
    compare(GROUP, FIND % "first", "ours", "native")
    weigh(GROUP, FIND % "second, just after the first", "ours")
    compare(GROUP, FIND % "again", "ours", "native", at_most(1.0))
    weigh(GROUP, LS % "first", "ours")
    compare(GROUP, LS % "again", "ours", "native", at_most(3))
    group.build()
    group.walk()
    group.remount()
    with bench.attempt(GROUP, group.documents, READ):
        group.others()
