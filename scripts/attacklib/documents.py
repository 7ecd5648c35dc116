"""The documents and resources of the Source that scripts/attacks mounts. All is derived from numbers.

`papers/DDD/NNNNNNN.txt` are the resources that the reader walks and reads; what is below `hostile` belongs to attacks.
"""

import functools
import hashlib
import os
import time

HEAD = ('<?xml version="1.0" encoding="UTF-8"?>\n<%s xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
        'xmlns:rs="http://www.openarchives.org/rs/terms/">\n<rs:md capability="%s"%s/>\n')
BEGIN = 1_577_836_800  # 2020-01-01T00:00:00Z: when the Resource List was made.
DIRECTORIES = 300
PART = 10_000
LEAST, RANGE = 1024, 15_361
LINKED = 50  # Every 50th entry has links.
RELATIONS = 400
REDIRECTS = 20
TINY = b"a tiny resource\n"
# A C1 control that begins an escape sequence (CSI), an override of the writing direction, CR and ESC.
CONTROLS = "\u009b31m\u202egnp.\u2066"
CONTROLS_URI = "%C2%9B31m%E2%80%AEgnp.%E2%81%A6%0D%1B%5D0;x%07"


def when(second):
    """A W3C datetime, so many seconds after the Resource List was made."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(BEGIN + second))


def document(capability, entries, attributes="", root="urlset"):
    return (HEAD % (root, capability, attributes) + "".join(entries) + f"</{root}>\n").encode()


def entry(loc, attributes, links="", element="url"):
    return f"<{element}><loc>{loc}</loc><rs:md {attributes}/>{links}</{element}>\n"


def link(relation, href, more=""):
    return f'<rs:ln rel="{relation}" href="{href}"{more}/>'


def facts(content):
    return f'hash="sha-256:{hashlib.sha256(content).hexdigest()}" length="{len(content)}"'


def content(number):
    """The bytes of a resource: 1 to 16 KiB."""
    key = hashlib.sha256(b"%d" % number).hexdigest()
    return (key * 256)[:LEAST + int(key[:8], 16) % RANGE].encode()


def paper(number, count):
    """The path of a resource."""
    return f"papers/{number // per_directory(count):03}/{number:07}.txt"


def per_directory(count):
    return -(-count // DIRECTORIES)


class Documents:
    """What a Source at an address publishes. Documents without state are made when they are first requested."""

    def __init__(self, base, count, sets, channel):
        self.base, self.count, self.sets, self.channel = base, count, sets, channel
        self.parts = []

    def url(self, path):
        return f"{self.base}/{path}"

    def build(self):
        """Makes the parts of the Resource List: some seconds for 300,000 entries."""
        self.parts = [self.part(begin, min(begin + PART, self.count)) for begin in range(0, self.count, PART)]

    def part(self, begin, end):
        entries = []
        for number in range(begin, end):
            links = ""
            if number % LINKED == 0:
                links = (link("collection", self.url("collections/all"))
                         + link("canonical", self.url(f"canonical/{number}")))
            entries.append(entry(self.url(paper(number, self.count)), facts(content(number)), links))
        return document("resourcelist", entries, f' at="{when(0)}"')

    def index(self):
        """The Resource List Index of the set that the reader uses."""
        names = [f"list/part{number:04}.xml" for number in range(len(self.parts))] + ["list/hostile.xml"]
        entries = [entry(self.url(name), f'at="{when(0)}"', element="sitemap") for name in names]
        return document("resourcelist", entries, f' at="{when(0)}"', "sitemapindex")

    def hostile(self):
        """The resources of attacks. The first four have no content on the server."""
        known = facts(TINY)
        entries = [entry(self.url(f"hostile/{name}.txt"), known) for name in ("changes", "undated", "mementos")]
        many = "".join(link(f"http://relations.example/{number:03}/{'r' * 150}", self.url(f"related/{number}"))
                       for number in range(RELATIONS))
        entries.append(entry(self.url("hostile/relations.txt"), f'{known} verified="yes"', many))
        odd = link("describedby", self.url(f"x{CONTROLS}&#13;y")) + link(f"x{CONTROLS}&#13;", self.url("z"))
        name = f"hostile/{CONTROLS_URI}.txt"
        entries.append(entry(self.url(name), f'{known} type="text/{CONTROLS}&#13;" verified="yes"', odd))
        entries += [entry(self.url(f"hostile/redirect/{number}.txt"), known) for number in range(REDIRECTS)]
        return document("resourcelist", entries, f' at="{when(0)}"')

    def description(self):
        lists = ["capabilitylist.xml"] + [f"sets/{number}/capabilitylist.xml" for number in range(1, self.sets)]
        return document("description", [entry(self.url(name), 'capability="capabilitylist"') for name in lists])

    def capabilities(self, offers):
        """The Capability List of the set that the reader uses."""
        entries = [entry(self.url("resourcelist.xml"), 'capability="resourcelist"')]
        if "changelist" in offers:
            entries.append(entry(self.url("changelist.xml"), 'capability="changelist"'))
        # A mount joins one channel of each set, and prefers a hub: with several sets, these belong to others.
        if self.sets == 1:
            entries += [self.flooding(name) for name in ("pings", "messages") if name in offers]
        if "websub" in offers:
            hub = link("hub", self.url("hub"))
            entries.append(entry(self.url("topic"), 'capability="change-notification"', hub))
        return document("capabilitylist", entries)

    def flooding(self, name):
        return entry(f"{self.channel}/{name}", 'capability="change-notification"')

    def tiny_capabilities(self, number, offers):
        """The Capability List of another set. The Resource List of the first of them may drip; the next two may have
        the channels that flood."""
        entries = [entry(self.url(f"sets/{number}/resourcelist.xml"), 'capability="resourcelist"')]
        name = {2: "pings", 3: "messages"}.get(number)
        if name in offers:
            entries.append(self.flooding(name))
        elif "idle" in offers:
            entries.append(self.flooding(f"idle/{number}"))
        return document("capabilitylist", entries)

    @functools.lru_cache(maxsize=None)
    def tiny_list(self, number):
        entries = [entry(self.url(f"sets/{number}/file.txt"), facts(TINY))]
        return document("resourcelist", entries, f' at="{when(0)}"')


class ChangeFeed:
    """A Change List that grows with each edition. After some editions a list that begins where the last one ended
    takes its place, so that neither the server nor `limit_changes` bounds the attack."""

    EDITIONS = 5
    EACH = 60_000

    def __init__(self, base, path, kinds):
        self.base, self.path, self.kinds = base, path, kinds
        self.clock = self.begin = 0
        self.number = 0
        self.pieces = []

    def grow(self):
        """Publishes the next edition; returns how many changes it adds."""
        if len(self.pieces) >= self.EDITIONS * len(self.kinds):
            self.pieces, self.begin = [], self.clock
        self.number += 1
        added = 0
        for kind in self.kinds:
            entries = getattr(self, kind)()
            added += len(entries)
            self.pieces.append("".join(entries).encode())
        self.write()
        return added

    def write(self):
        head, tail = document("changelist", ["\0"], f' from="{when(self.begin)}"').split(b"\0")
        with open(self.path + ".new", "wb") as out:
            out.write(head)
            out.writelines(self.pieces)
            out.write(tail)
        os.replace(self.path + ".new", self.path)

    def tick(self):
        self.clock += 1
        return f'datetime="{when(self.clock)}"'

    def changes(self):
        """Many changes of one resource, one second apart."""
        loc = f"{self.base}/hostile/changes.txt"
        return [entry(loc, f'change="updated" {self.tick()} {facts(b"%d" % self.clock)}') for _ in range(self.EACH)]

    def one(self):
        """A single change: whether a sync can write at all."""
        loc = f"{self.base}/hostile/changes.txt"
        return [entry(loc, f'change="updated" {self.tick()} {facts(b"%d" % self.clock)}')]

    def undated(self):
        """Many changes of one resource that only their hashes distinguish."""
        loc = f"{self.base}/hostile/undated.txt"
        return [entry(loc, f'change="updated" {facts(b"%d-%d" % (self.number, each))}') for each in range(self.EACH)]

    def mementos(self):
        """60 changes of one resource with 1,000 memento links each, which is what limit_links permits."""
        made = []
        for change in range(60):
            links = "".join(link("memento", f"{self.base}/mementos/{self.number}-{change}-{each}",
                                 f' modified="{when(-1 - each - 1000 * change - 60_000 * self.number)}"')
                            for each in range(1000))
            attributes = f'change="updated" {self.tick()} {facts(b"%d" % self.clock)}'
            made.append(entry(f"{self.base}/hostile/mementos.txt", attributes, links))
        return made

    def segments(self):
        """200 new URIs of 4,050 segments each, below 8 KiB."""
        made = []
        for each in range(200):
            head = f"{self.base}/s{self.number}-{each}"
            loc = head + "/a" * min(4050, (8190 - len(head)) // 2)
            made.append(entry(loc, f'change="created" {self.tick()} {facts(TINY)}'))
        return made
