"""The groups `far` and `dump`: how long a complete mirror takes, by single fetches from afar, and by packages."""

import os
import tempfile
import time

from benchlib.bench import same
from benchlib.machine import drop_caches, install_resync, probe, run, wait_until
from benchlib.mounts import Ours, httpdirfs, rclone
from benchlib.report import at_least

FAR, DUMP = "far", "dump"
PROGRAMS = {FAR: ["curl", "rclone", "httpdirfs", "find"], DUMP: ["curl", "unzip"]}
RATE, TREE, SOME = "complete mirror", "mount, to the complete tree", "mount, find, and read %d files"
AT_ONCE = 8
MOST_READ = 100


class Command:
    """A program that copies all resources into a folder, which is then held to the Source."""

    def __init__(self, bench, name, command, source):
        self.bench, self.name, self.peer, self.command, self.source = bench, name, name.split()[0], command, source

    def mirror(self):
        with tempfile.TemporaryDirectory(dir=self.bench.work) as folder:
            drop_caches(self.bench.work)
            os.mkdir(folder + "/copy")
            _, seconds = run(self.command.replace("COPY", folder + "/copy"), cwd=folder)
            found = [os.path.getsize(os.path.join(place, name))
                     for place, _, names in os.walk(folder + "/copy/data") for name in names]
        same("files and bytes", (len(found), sum(found)), (self.source.book["count"], self.source.book["bytes"]))
        return seconds


class Mirror(Ours):
    """Our mount, from an empty cache until all content is here and verified."""

    def __init__(self, bench, name, source, url, options=()):
        super().__init__(bench.work, url, "data", name, options)
        self.bench, self.source = bench, source
        self.tree = None

    def mirror(self):
        self.forget()
        drop_caches(self.bench.work)
        begin = time.monotonic()
        self.mount()
        self.tree = time.monotonic() - begin
        wait_until("all content is here", self.complete, 600)
        seconds = time.monotonic() - begin
        status = self.status()
        same("resources and errors", (status["resources"], status["errors"]), (self.source.book["count"], []))
        self.unmount()
        return seconds

    def complete(self):
        """All is here as single files, or all packages are, and their members were verified."""
        status = self.status()
        packages, count = status["packages"], self.source.book["count"]
        if packages["known"]:
            return packages["whole"] == packages["known"] and packages["verified"] == count
        return status["cached"]["resources"] == count


def read_some(player, bench, source):
    """Mounts with an empty cache, finds all files and reads some; seconds."""
    player.forget()
    drop_caches(bench.work)
    begin = time.monotonic()
    player.mount()
    found = run(["find", player.root, "-type", "f"])[0].splitlines()
    same("files found", len(found), source.book["count"])
    listed = bench.path("some.list")
    with open(listed, "w", encoding="utf-8") as out:
        out.writelines(path + "\n" for path in found[:MOST_READ])
    _, size, _ = probe("read", listed)
    seconds = time.monotonic() - begin
    same("bytes read", size, sum(os.path.getsize(source.path("data/" + os.path.relpath(path, player.root)))
                                 for path in found[:MOST_READ]))
    player.unmount()
    return seconds


def race(bench, group, players, rounds=None):
    """Complete mirrors, in turns."""
    for player in bench.turns(group, players, rounds):
        with bench.attempt(group, player, RATE):
            seconds = player.mirror()
            bench.book.add(group, RATE, player.name, "resources/s", player.source.book["count"] / seconds)
            if isinstance(player, Mirror):
                bench.book.add(group, TREE, player.name, "s", player.tree)


def curl_config(bench, source):
    """All resources, for curl."""
    config = bench.path("curl.config")
    with open(config, "w", encoding="utf-8") as out:
        out.writelines(f'url = "{source.url(path)}"\noutput = "{path}"\n' for path in source.book["paths"])
    return config


def far(bench):
    compare = bench.book.compare
    source = bench.sources.far()
    ours = Mirror(bench, "ours", source, source.url("capabilitylist.xml"), ["content=all", "seed=list"])
    curl = Command(bench, "curl -Z", f"cd COPY && curl -sf -Z --parallel-max {AT_ONCE} --create-dirs "
                                     f"-K {curl_config(bench, source)}", source)
    some = SOME % min(MOST_READ, source.book["count"])
    compare(FAR, RATE, "ours", "curl -Z", at_least(1))
    compare(FAR, RATE, "ours", "resync-sync", at_least(20))
    bench.book.weigh(FAR, TREE, "ours")
    race(bench, FAR, [ours, curl])
    lazy = Ours(bench.work, source.url("capabilitylist.xml"), "data", "ours, lazy", ["seed=list"])
    peers = [make(bench.work, source.url("data/")) for name, make in
             (("rclone", rclone), ("httpdirfs", httpdirfs)) if bench.has(name)]
    for peer in peers:
        compare(FAR, some, lazy.name, peer.name)
    for player in bench.turns(FAR, [lazy, *peers], bench.sizes.few):
        with bench.attempt(FAR, player, some):
            bench.book.add(FAR, some, player.name, "s", read_some(player, bench, source))
    if bench.has("resync"):
        client = install_resync(bench.work) + "/resync-sync"
        race(bench, FAR, [Command(bench, "resync-sync", f"{client} --baseline {source.base} COPY", source)],
             bench.sizes.few - 1)


def dump(bench):
    source = bench.sources.files()
    ours = Mirror(bench, "ours", source, source.url("withdump.xml"))
    names = source.book["packages"]
    get = " ".join(f"-o {name} {source.url(name)}" for name in names)
    others = []
    if bench.has("unzip"):
        unpack = " && ".join(f"unzip -qo {name}" for name in names)
        others = [Command(bench, "curl + unzip", f"cd COPY && curl -sf {get} && {unpack}", source)]
    bench.book.compare(DUMP, RATE, "ours", "curl + unzip")
    bench.book.weigh(DUMP, TREE, "ours")
    race(bench, DUMP, [ours, *others])
