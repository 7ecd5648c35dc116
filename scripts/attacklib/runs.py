"""One run of scripts/attacks: a fresh mount, a quiet phase, the attack, and their comparison."""

import json
import os
import shutil
import tempfile
import time

from attacklib import attacks as attacking
from attacklib.floods import Floods
from attacklib.mount import Mount
from attacklib.processes import Child, Failure, kill_all, merged, say
from attacklib.reader import Reader
from attacklib.source import Site

SETTLE = 5
COMPLETE_SECONDS = 300
WARM_UP_SECONDS = 300
STUCK_SECONDS = 60
KEYS = ("VmRSS", "RssAnon", "descriptors", "wal")


class Bench:
    """What all runs share: the folder, a copy of the program, and Sources by their number of sets."""

    def __init__(self, args):
        self.args = args
        self.folder = tempfile.mkdtemp(prefix="resourcesync-attacks-", dir=args.work)
        # Users reach the mounts and the program, and list nothing.
        os.chmod(self.folder, 0o711)
        # A copy: the original may be built again during the run, and its folder may be closed to users.
        self.program = os.path.join(self.folder, "resourcesync")
        shutil.copy(args.program, self.program)
        os.chmod(self.program, 0o755)
        self.native = os.path.join(self.folder, "native")
        with open(self.native, "wb") as out:
            out.write(bytes(8192))
        self.floods = Floods(self.folder)
        self.sites = {}
        self.runs = []

    def site(self, sets):
        if sets not in self.sites:
            say(f"the Source with {self.args.resources} resources in {sets} set(s) is made ...")
            self.sites[sets] = Site(self.folder, self.args.resources, sets, self.floods.url)
        return self.sites[sets]

    def close(self):
        """Ends and removes all that was started and made."""
        for run in self.runs:
            run.close()
        kill_all([self.floods.child, *(site.child for site in self.sites.values())])
        if not any(run.mount.is_mounted() for run in self.runs):
            shutil.rmtree(self.folder, ignore_errors=True)


class Run:
    """One mount that is attacked by one attack, or by several at the same time."""

    def __init__(self, bench, chosen, name):
        self.bench, self.args, self.folder, self.name = bench, bench.args, bench.folder, name
        self.attacks = [attacking.ALL[each]() for each in chosen]
        sets = max(attack.sets for attack in self.attacks)
        if len(chosen) > 1:
            # So that a list that drips, and each channel that floods, has a set of its own.
            sets = max(sets, 4)
        self.site = bench.site(sets)
        self.mount = Mount(self.folder, bench.program, name, self.site.base + "/")
        self.children = []
        self.deadline = 0.0
        self.next = 0
        self.first_mount = None
        self.current = None
        self.closed = False
        bench.runs.append(self)

    def child(self, work, *arguments, **more):
        child = Child(self.folder, work, *arguments, **more)
        child.attack = self.current
        self.children.append(child)
        return child

    def measure(self):
        """Returns the result: statistics of both phases, peaks and counters."""
        self.site.reset()
        self.bench.floods.reset()
        self.site.control(offers=sorted({offer for attack in self.attacks for offer in attack.offers}))
        mount_seconds = self.mount_it()
        self.mount.wait_for_complete(COMPLETE_SECONDS)
        say(f"{self.name}: mounted in {mount_seconds:.1f} s; reading, quiet, for {self.args.quiet} s")
        warm = self.read(WARM_UP_SECONDS, warm_up=True)
        time.sleep(SETTLE)
        quiet = self.read(self.args.quiet)
        before = self.site.control()["counts"]
        say(f"{self.name}: attack for {self.args.seconds} s")
        self.start_attacks()
        attack = self.read(self.args.seconds)
        state = self.mount.state()
        return self.result(mount_seconds, state, before, warm, quiet, attack)

    def mount_it(self):
        """Mounts; a second time where an attack hindered the first."""
        options = [option for attack in self.attacks for option in attack.options(self)]
        for self.current in self.attacks:
            self.current.before_mount(self)
        try:
            seconds = self.mount.mount(options)
        except Failure as failure:
            if not self.first_mount:
                raise
            self.first_mount(str(failure))
            shutil.rmtree(self.mount.cache, ignore_errors=True)
            # A mode that the program may refuse: then it makes the directory itself.
            try:
                os.mkdir(self.mount.cache, 0o755)
                return self.mount.mount(options)
            except Failure:
                shutil.rmtree(self.mount.cache, ignore_errors=True)
                return self.mount.mount(options)
        if self.first_mount:
            self.first_mount(None)
        return seconds

    def start_attacks(self):
        """All of them begin now, and end at the same deadline."""
        self.deadline = time.monotonic() + self.args.seconds
        self.site.control(active=sorted({each for attack in self.attacks for each in attack.active}))
        for self.current in self.attacks:
            self.current.start(self)
            if self.current.flood:
                self.bench.floods.start(self.current.flood)
        self.current = None
        if any(attack.refreshes for attack in self.attacks):
            feed = attacking.change_feed(self, self.attacks)
            self.child(attacking.refresh, self.mount, self.deadline, feed)

    def read(self, seconds, warm_up=False):
        """Runs the reader for a phase, while it samples the daemon once a second."""
        reader = Reader(self.mount, self.args.resources, self.next, self.bench.native)
        results = os.path.join(self.folder, f"reader-{self.name}.json")
        child = Child(self.folder, read_phase, reader, seconds, results, warm_up, nice=0)
        samples = [self.mount.sample()]
        begin = time.monotonic()
        while not child.wait(1):
            samples.append(self.mount.sample())
            if time.monotonic() > begin + seconds + STUCK_SECONDS:
                break
        took = time.monotonic() - begin
        samples.append(self.mount.sample())
        peaks = {key: max(sample[key] for sample in samples) for key in KEYS}
        cpu = 100 * max(0.0, samples[-1]["cpu"] - samples[0]["cpu"]) / took
        result = load(results)
        if not child.ended() or result is None:
            why = "the reader is stuck" if not child.ended() else "the reader failed"
            child.kill(1)
            self.children.append(child)
            raise Failure(f"{why} after {took:.0f} s; state: {self.mount.state()}; "
                          f"VmRSS {peaks['VmRSS']:.0f} MiB, WAL {peaks['wal']:.0f} MiB")
        self.next = result["next"]
        return {**result, "peaks": peaks, "cpu": cpu, "samples": samples}

    def result(self, mount_seconds, state, before, warm, quiet, attack):
        self.stop()
        counts, broken = self.counters(before)
        phases = (warm, quiet, attack)
        return {"attack_name": self.name, "mount_seconds": mount_seconds, "state": state, "counts": counts,
                "broken": broken, "quiet": quiet, "attack": attack,
                "peaks": {key: max(phase["peaks"][key] for phase in phases) for key in KEYS},
                "reader_errors": sum(sum(phase["errors"].values()) for phase in phases),
                "shown": [shown for phase in phases for shown in phase["shown"]]}

    def counters(self, before):
        """What the attackers and the Source counted, and what should not have been possible."""
        counts = merged([child.tally for child in self.children if child.attack is None])
        broken = []
        for each in self.attacks:
            own = {**merged([child.tally for child in self.children if child.attack is each]), **each.notes}
            broken += each.broken(own)
            label = f"{each.name}: " if len(self.attacks) > 1 else ""
            counts.update({label + name: count for name, count in own.items()})
        floods = merged([self.bench.floods.child.tally])
        names = [("idle" if each.flood == "channels" else each.flood) for each in self.attacks if each.flood]
        counts.update({name: count for name, count in floods.items() if name.split(":")[0] in names})
        after = self.site.control()
        counts.update({f"Source: {name}": count - before.get(name, 0) for name, count in after["counts"].items()
                       if count > before.get(name, 0)})
        if after["longest_drip"]:
            counts["Source: seconds of the longest drip"] = round(after["longest_drip"], 1)
        return counts, broken

    def stop(self):
        """Ends the attack. Children end by themselves at the deadline; what is stuck in the mount ends with it."""
        self.site.control(active=[])
        self.bench.floods.reset()
        for child in self.children:
            child.wait(max(0.0, self.deadline + 3 - time.monotonic()))
        return kill_all(self.children)

    def close(self):
        """Leaves nothing of this run. It may be called at any time, and again."""
        if self.closed:
            return
        stuck = kill_all(self.children)
        if stuck:
            self.mount.abort()
        self.mount.end()
        for child in stuck:
            child.wait(10)
        self.closed = True


def read_phase(_tally, reader, seconds, results, warm_up):
    result = reader.warm_up() if warm_up else reader.run(seconds)
    with open(results, "w", encoding="utf-8") as out:
        json.dump(result, out)


def load(path):
    try:
        with open(path, encoding="utf-8") as saved:
            found = json.load(saved)
        os.remove(path)
        return found
    except (OSError, ValueError):
        return None
