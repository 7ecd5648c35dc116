"""The Sources that scripts/bench mounts: documents, and the resources where any are read.

Everything is drawn from seeded generators: the same arguments make the same Source. A Source keeps a small
book of what it holds, `book.json`, written last: a folder that has one is whole and can be used again.
"""

import hashlib
import json
import os
import random
import shutil
import stat
import time
import zipfile

HEAD = ('<?xml version="1.0" encoding="UTF-8"?>\n<%s xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
        'xmlns:rs="http://www.openarchives.org/rs/terms/">\n<rs:md capability="%s"%s/>\n')
AT = ' at="2026-03-04T05:06:07Z"'
OLDEST = 1_500_000_000
PART = 50_000
KINDS = [("pdf", "application/pdf"), ("txt", "text/plain"), ("html", "text/html"), ("png", "image/png")]
SMALLEST, LARGEST = 200, 64 << 10
POOL = 4 << 20
CAPABILITIES = "capabilitylist.xml"


def document(path, capability, entries, attributes="", root="urlset"):
    """Writes one document of the framework."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as out:
        out.write(HEAD % (root, capability, attributes))
        out.writelines(entries)
        out.write(f"</{root}>\n")


def moment(second):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


class Source:
    """A folder that is served as http://127.0.0.1:PORT, and the book of what it holds."""

    def __init__(self, folder, port):
        self.folder, self.base = folder, f"http://127.0.0.1:{port}"
        self.book = {}

    def path(self, name):
        return os.path.join(self.folder, name)

    def url(self, name):
        return f"{self.base}/{name}"

    def made(self, wanted, make):
        """Makes the Source unless its book says that this one is here already, at this address."""
        wanted = {**wanted, "base": self.base}
        try:
            with open(self.path("book.json"), encoding="utf-8") as kept:
                self.book = json.load(kept)
        except OSError:
            pass
        if self.book.get("wanted") != wanted:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.makedirs(self.folder)
            self.book = {"wanted": wanted, **make()}
            with open(self.path("book.json"), "w", encoding="utf-8") as out:
                json.dump(self.book, out)
        return self

    def entry(self, path, modified, md5, sha256, size, kind, place=""):
        return (f'<url><loc>{self.base}/{path}</loc><lastmod>{modified}</lastmod><rs:md hash="md5:{md5} '
                f'sha-256:{sha256}" length="{size}" type="{kind}"{place}/></url>\n')

    def named(self, name, attributes, element="url"):
        return f"<{element}><loc>{self.url(name)}</loc><rs:md {attributes}/></{element}>\n"

    def offer(self, name, capabilities):
        """A Capability List of that name; the one by its usual name is found from the Source's address, too."""
        entries = [self.named(f"{each}.xml", f'capability="{each}"') for each in capabilities]
        document(self.path(name), "capabilitylist", entries)
        if name == CAPABILITIES:
            sets = self.named(name, 'capability="capabilitylist"')
            document(self.path(".well-known/resourcesync"), "description", [sets])


class Listed(Source):
    """Lists alone: nothing that they list is there. The resources of a bare tree, for what walks names."""

    def fill(self, count, directories):
        return self.made({"count": count, "directories": directories}, lambda: self.write(count, directories))

    def write(self, count, directories):
        each = -(-count // directories)
        parts = []
        for begin in range(0, count, PART):
            parts.append(f"list/part{len(parts):04}.xml")
            document(self.path(parts[-1]), "resourcelist", self.part(begin, min(begin + PART, count), each), AT)
        index = (self.named(part, AT.strip(), "sitemap") for part in parts)
        document(self.path("resourcelist.xml"), "resourcelist", index, AT, "sitemapindex")
        self.offer(CAPABILITIES, ["resourcelist"])
        names = parts + ["resourcelist.xml"]
        return {"count": count, "directories": directories, "documents": names,
                "bytes": sum(os.path.getsize(self.path(name)) for name in names)}

    def name(self, number, each):
        return f"papers/{number // each:03}/{number:07}.{KINDS[number % len(KINDS)][0]}"

    def part(self, begin, end, each):
        rng = random.Random(begin)
        hashes = rng.randbytes(48 * (end - begin)).hex()
        times = [moment(OLDEST + rng.randrange(250_000_000)) for _ in range(4096)]
        sizes = [int(SMALLEST * (1 << 17) ** rng.random()) for _ in range(4093)]
        for number in range(begin, end):
            digits = 96 * (number - begin)
            yield self.entry(self.name(number, each), times[number % 4096], hashes[digits:digits + 32],
                             hashes[digits + 32:digits + 96], sizes[number % 4093], KINDS[number % len(KINDS)][1])

    def as_empty_files(self, folder):
        """The same names as empty files on the disk, for a native file system to compare with."""
        count, each = self.book["count"], -(-self.book["count"] // self.book["directories"])
        here = None
        for number in range(count):
            directory, name = os.path.split(os.path.join(folder, self.name(number, each)))
            if number % each == 0:
                if here is not None:
                    os.close(here)
                os.makedirs(directory)
                here = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            os.mknod(name, stat.S_IFREG | 0o644, dir_fd=here)
        os.close(here)


class Files(Source):
    """Real resources of 200 B to 64 KiB below `data`, listed with hashes, and in packages if any are wanted.

    `capabilitylist.xml` offers the list alone, `withdump.xml` the Resource Dump as well."""

    def fill(self, count, directories, packages):
        wanted = {"files": count, "directories": directories, "packages": packages}
        return self.made(wanted, lambda: self.write(count, directories, packages))

    def write(self, count, directories, packages):
        rng = random.Random(count)
        pools = self.pools(rng)
        made = [self.resource(rng, pools, number, -(-count // directories)) for number in range(count)]
        document(self.path("resourcelist.xml"), "resourcelist", (self.entry(*facts) for facts in made), AT)
        self.offer(CAPABILITIES, ["resourcelist"])
        names = [f"part{number:02}.zip" for number in range(packages)]
        each = -(-count // packages) if packages else count
        for number, name in enumerate(names):
            self.package(name, made[number * each:(number + 1) * each])
        if names:
            dump = [self.named(name, f'type="application/zip" length="{os.path.getsize(self.path(name))}"{AT}')
                    for name in names]
            document(self.path("resourcedump.xml"), "resourcedump", dump, AT)
            self.offer("withdump.xml", ["resourcelist", "resourcedump"])
        return {"count": count, "bytes": sum(facts[4] for facts in made), "packages": names,
                "paths": [facts[0] for facts in made]}

    @staticmethod
    def pools(rng):
        words = ["".join(rng.choices("aeionrtslhdu", k=rng.randint(2, 10))) for _ in range(5000)]
        text = " ".join(rng.choices(words, k=POOL // 5)).encode()
        return [text, rng.randbytes(POOL)]

    def resource(self, rng, pools, number, each):
        """Writes one resource; about every second one can be compressed. Returns the facts of its entry."""
        size = int(SMALLEST * (LARGEST / SMALLEST) ** rng.random())
        pool = pools[number % 2]
        begin = rng.randrange(len(pool) - size)
        content = (b"%d\n" % number + pool[begin:begin + size])[:size]
        extension, kind = KINDS[1:3][number // 2 % 2] if number % 2 == 0 else KINDS[::3][number // 2 % 2]
        path = f"data/{number // each:02}/{number:06}.{extension}"
        os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
        with open(self.path(path), "wb") as out:
            out.write(content)
        modified = moment(OLDEST + rng.randrange(250_000_000))
        return path, modified, hashlib.md5(content).hexdigest(), hashlib.sha256(content).hexdigest(), size, kind

    def package(self, name, resources):
        with zipfile.ZipFile(self.path(name), "w", zipfile.ZIP_DEFLATED) as package:
            entries = []
            for facts in resources:
                with open(self.path(facts[0]), "rb") as content:
                    package.writestr(self.member(facts[0]), content.read())
                entries.append(self.entry(*facts, place=f' path="/{facts[0]}"'))
            manifest = HEAD % ("urlset", "resourcedump-manifest", AT) + "".join(entries) + "</urlset>\n"
            package.writestr(self.member("manifest.xml"), manifest)

    @staticmethod
    def member(path):
        info = zipfile.ZipInfo(path, (2026, 3, 4, 5, 6, 8))
        info.compress_type = zipfile.ZIP_DEFLATED
        # Without the type of a file in it, fuse-zip shows a member as no file at all.
        info.external_attr = (stat.S_IFREG | 0o644) << 16
        return info


class Large(Source):
    """One resource of random bytes, `data/large.bin`."""

    def fill(self, size):
        return self.made({"large": size}, lambda: self.write(size))

    def write(self, size):
        rng = random.Random(size)
        hashes = hashlib.md5(), hashlib.sha256()
        os.makedirs(self.path("data"))
        with open(self.path("data/large.bin"), "wb") as out:
            for _ in range(size >> 20):
                block = rng.randbytes(1 << 20)
                out.write(block)
                for each in hashes:
                    each.update(block)
        facts = ("data/large.bin", moment(OLDEST), *(each.hexdigest() for each in hashes), size,
                 "application/octet-stream")
        document(self.path("resourcelist.xml"), "resourcelist", [self.entry(*facts)], AT)
        self.offer(CAPABILITIES, ["resourcelist"])
        return {"count": 1, "bytes": size}
