"""Makes documents in the styles that programs write, versions of each, and patches from one to the next.

Usage: make_patches.py DIRECTORY SEED. Writes the files, and `made.json`, which lists them: for each document its
name, and its versions with the file of each, and the file and the media type of the patch that makes it of the one
before.
"""

import copy
import json
import os
import random
import sys

import jsonpatch
from lxml import etree

target, seed = sys.argv[1], int(sys.argv[2])
chance = random.Random(seed)
made = []

WORDS = ["river", "archive", "Grüße", "日本", "a/b", "quote \" here", "tab\there", "<angle>", "€ 5 & more", "", "x" * 40]


def write(name, content):
    with open(os.path.join(target, name), "wb") as file:
        file.write(content)
    return name


def record(name, versions):
    """versions: (bytes, patch bytes or None, media type or None)"""
    entries = []
    for number, (content, patch, media) in enumerate(versions):
        entry = {"file": write(f"{name}.{number}", content)}
        if patch is not None:
            entry["patch"] = write(f"{name}.{number}.patch", patch)
            entry["type"] = media
        entries.append(entry)
    made.append({"name": name, "versions": entries})


# JSON

def value(depth=0):
    choice = chance.randrange(9 if depth < 3 else 6)
    if choice == 0:
        return chance.choice([None, True, False])
    if choice == 1:
        return chance.randrange(-1000, 10**12)
    if choice == 2:
        return chance.choice([0.5, 1.0, 1e22, -2.25e-7, 100000.0])
    if choice < 6:
        return chance.choice(WORDS)
    if choice < 8:
        return {f"key {number} {chance.choice(WORDS)}": value(depth + 1) for number in range(chance.randrange(5))}
    return [value(depth + 1) for _ in range(chance.randrange(5))]


def document():
    return {
        "id": chance.randrange(10**6),
        "title": chance.choice(WORDS),
        "authors": [{"name": chance.choice(WORDS), "orcid": None} for _ in range(3)],
        "nested": {"deep": {"deeper": [value() for _ in range(4)]}},
        "score": 1.0,
        "abstract": "A long text that no patch should have to repeat. " * 30,
        "more": value(),
    }


def changed(old):
    new = copy.deepcopy(old)
    for _ in range(chance.randrange(1, 4)):
        choice = chance.randrange(6)
        if choice == 0:
            new["title"] = chance.choice(WORDS) + str(chance.randrange(1000))
        elif choice == 1:
            new["authors"].insert(chance.randrange(len(new["authors"]) + 1), {"name": chance.choice(WORDS)})
        elif choice == 2 and len(new["authors"]) > 1:
            del new["authors"][chance.randrange(len(new["authors"]))]
        elif choice == 3:
            new["nested"]["deep"]["deeper"].append(value())
        elif choice == 4:
            new[f"field {chance.randrange(100)}"] = value()
        else:
            new["score"] = chance.choice([1, 2.5, 3.0, 1e5])
    if new == old:
        new["title"] = f"changed {chance.randrange(10**9)}"
    return new


STYLES = [
    ("default", {}, ""),
    ("compact", {"separators": (",", ":")}, ""),
    ("compact-newline", {"separators": (",", ":")}, "\n"),
    ("utf-8", {"ensure_ascii": False}, "\n"),
    ("indent-2", {"indent": 2}, ""),
    ("indent-2-newline", {"indent": 2, "ensure_ascii": False}, "\n"),
    ("indent-4", {"indent": 4}, "\n"),
    ("tabs", {"indent": "\t"}, "\n"),
    ("indent-1-compact", {"indent": 1, "separators": (",", ":")}, ""),
    ("sorted", {"sort_keys": True, "indent": 2}, "\n"),
    ("sorted-compact", {"sort_keys": True, "separators": (",", ":")}, ""),
]

for style, options, end in STYLES:
    for number in range(3):
        state = document()
        versions = [((json.dumps(state, **options) + end).encode(), None, None)]
        for _ in range(3):
            after = changed(state)
            # As the file has it: a round trip is what readers of it see.
            patch = jsonpatch.make_patch(state, after)
            after = patch.apply(copy.deepcopy(state))
            media = chance.choice(["application/json-patch+json", "application/json-patch"])
            versions.append(((json.dumps(after, **options) + end).encode(), str(patch).encode(), media))
            state = after
        record(f"json-{style}-{number}", versions)
    state = document()
    after = copy.deepcopy(state)
    merge = {"title": "merged", "score": None, "nested": {"shallow": [1, 2]}}
    del after["score"]
    after["title"] = "merged"
    after["nested"]["shallow"] = [1, 2]
    record(
        f"merge-{style}",
        [
            ((json.dumps(state, **options) + end).encode(), None, None),
            ((json.dumps(after, **options) + end).encode(), json.dumps(merge).encode(), "application/merge-patch+json"),
        ],
    )

# XML

NAMESPACES = {"m": "urn:example:metadata"}
SOURCE = """<m:record xmlns:m="urn:example:metadata" xmlns:x="urn:example:extra" id="r{number}">
  <!-- a comment -->
  <m:title xml:lang="en">{title}</m:title>
  <m:empty/>
  <m:list>
    <m:item n="1">first &amp; foremost</m:item>
    <m:item n="2">second</m:item>
    <m:item n="3">third</m:item>
  </m:list>
  <?target some data?>
  <x:note kind='single "quoted"'>text <m:b>bold</m:b> tail</x:note>
  <m:text>{long}</m:text>
</m:record>"""


def tree():
    title = chance.choice(["Title", "Grüße", "Ünïcode 日本", "a &lt; b &gt; c"])
    text = SOURCE.format(number=chance.randrange(1000), title=title, long="Words that stay as they are. " * 60)
    return etree.ElementTree(etree.fromstring(text.encode()))


def find(root, path):
    (node,) = root.xpath(path, namespaces=NAMESPACES)
    return node


def drop(node):
    """Removes an element, and leaves the text after it where it was."""
    parent, before = node.getparent(), node.getprevious()
    if node.tail:
        if before is not None:
            before.tail = (before.tail or "") + node.tail
        else:
            parent.text = (parent.text or "") + node.tail
    node.tail = None
    parent.remove(node)


def operation(root, number):
    """Changes the tree, and returns the operation that says so."""
    choice = number % 8
    text = f"text {chance.randrange(1000)} <&> é"
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if choice == 0:
        find(root, "/m:record/m:title").text = text
        return f'<replace sel="m:record/m:title/text()">{escaped}</replace>'
    if choice == 1:
        parent = find(root, "/m:record/m:list")
        item = etree.SubElement(parent, "{urn:example:metadata}item", n=f"new{number}")
        item.text = text
        return f'<add sel="m:record/m:list"><m:item n="new{number}">{escaped}</m:item></add>'
    if choice == 2:
        item = root.xpath("/m:record/m:list/m:item[1]", namespaces=NAMESPACES)[0]
        drop(item)
        return '<remove sel="m:record/m:list/m:item[1]"/>'
    if choice == 3:
        find(root, "/m:record/m:title").set("checked", f"yes {number}")
        return f'<add sel="m:record/m:title" type="@checked">yes {number}</add>' if number < 8 else \
               f'<replace sel="m:record/m:title/@checked">yes {number}</replace>'
    if choice == 4:
        find(root, "/m:record/m:empty").text = "filled"
        return '<add sel="m:record/m:empty">filled</add>'
    if choice == 5:
        node = find(root, "/m:record/m:list/m:item[last()]")
        place = len(root.xpath("/m:record/m:list/m:item", namespaces=NAMESPACES))
        fresh = etree.Element("{urn:example:metadata}item", nsmap={"m": NAMESPACES["m"]})
        fresh.set("n", "replaced")
        fresh.tail, node.tail = node.tail, None
        node.getparent().replace(node, fresh)
        return f'<replace sel="m:record/m:list/m:item[{place}]"><m:item n="replaced"/></replace>'
    if choice == 6:
        find(root, "/m:record").set("id", f"r{number}x")
        return f'<replace sel="m:record/@id">r{number}x</replace>'
    node = find(root, "/m:record/m:text")
    fresh = etree.Element("{urn:example:metadata}added", nsmap={"m": NAMESPACES["m"]})
    fresh.set("number", str(number))
    node.addprevious(fresh)
    return f'<add sel="m:record/m:text" pos="before"><m:added number="{number}"/></add>'


XML_STYLES = [
    ("ascii", lambda tree: etree.tostring(tree)),
    ("unicode", lambda tree: etree.tostring(tree, encoding="unicode").encode()),
    ("utf-8", lambda tree: etree.tostring(tree, encoding="UTF-8", xml_declaration=True)),
    ("utf-8-newline", lambda tree: etree.tostring(tree, encoding="utf-8", xml_declaration=True) + b"\n"),
    ("latin-1", lambda tree: etree.tostring(tree, encoding="ISO-8859-1")),
    ("pretty", lambda tree: etree.tostring(tree, encoding="UTF-8", xml_declaration=True, pretty_print=True)),
    ("standalone", lambda tree: etree.tostring(tree, encoding="UTF-8", standalone=True)),
]

for style, serialise in XML_STYLES:
    for number in range(2):
        state = tree()
        versions = [(serialise(state), None, None)]
        for step in range(8):
            operations = operation(state, step)
            patch = f'<?xml version="1.0" encoding="UTF-8"?>\n<diff xmlns:m="urn:example:metadata">\n{operations}\n</diff>\n'
            media = chance.choice(["application/xml-patch+xml", "application/patch-ops-error+xml"])
            versions.append((serialise(state), patch.encode(), media))
        record(f"xml-{style}-{number}", versions)

write("made.json", json.dumps(made).encode())
