"""The values that were measured, and the table that is made of them."""

import json
import math
import statistics

HEAD = ("| work | unit | ours: median (min-max) | other | its median (min-max) | n | ratio (of the rounds) | goal "
        "| met |\n| --- | --- | --: | --- | --: | --: | --: | --: | --- |")


def number(value):
    """Three digits that count."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def spread(values):
    return f"{number(statistics.median(values))} ({number(min(values))}-{number(max(values))})"


def middle(values):
    """Where the true median lies, by 95 in 100; None of too few values."""
    n, chance, rank = len(values), 0.0, 0
    while chance + math.comb(n, rank) / 2 ** n <= 0.025:
        chance += math.comb(n, rank) / 2 ** n
        rank += 1
    return (sorted(values)[rank - 1], sorted(values)[n - rank]) if rank else None


class Goal:
    """At least, or at most, so much; of a peer that may itself be as fast as native, it is enough to be so, too."""

    def __init__(self, sign, limit, like_native=False):
        self.sign, self.limit, self.like_native = sign, limit, like_native

    def __str__(self):
        return f"{self.sign} {self.limit:g}"

    def holds(self, value, slack=1.0):
        return value >= self.limit / slack if self.sign == ">=" else value <= self.limit * slack

    def verdict(self, value, rounds):
        """Whether it is met; `noise`: the true median may as well lie on the other side. Few rounds cannot tell."""
        between = middle(rounds)
        if not between:
            return "yes (few rounds)" if self.holds(value) else "NO (few rounds)"
        if all(map(self.holds, between)):
            return "yes"
        word = "yes, within noise" if self.holds(value) else "noise"
        return word if any(map(self.holds, between)) else "NO"


def at_least(limit):
    return Goal(">=", limit)


def at_most(limit):
    return Goal("<=", limit)


# Faster than a peer, which may itself be as fast as native.
MORE, LESS = Goal(">=", 1, like_native=True), Goal("<=", 1, like_native=True)
SLACK = 1.1


class Book:
    """All values, by group, work and who did it, in the order in which they came, and rows to make of them."""

    def __init__(self):
        self.values, self.units, self.failures, self.rows, self.lacking = {}, {}, [], [], {}

    def add(self, group, work, who, unit, value):
        self.values.setdefault((group, work, who), []).append(value)
        self.units[group, work] = unit

    def fail(self, group, work, who, why):
        self.failures.append((group, work, who, str(why)))

    def lacks(self, group, who, why):
        self.lacking[group, who] = str(why)

    def compare(self, group, work, ours, other, goal=None):
        """A row: ours / other's, by a goal for that ratio."""
        self.rows.append((group, work, ours, other, goal))

    def weigh(self, group, work, ours, goal=None):
        """A row: ours alone, by a goal for itself."""
        self.rows.append((group, work, ours, None, goal))

    def found(self, group, work, who):
        return self.values.get((group, work, who), [])

    def row(self, group, work, ours, other, goal):
        label = f"{group}: {work}" + ("" if ours == "ours" else f" [{ours}]")
        unit = self.units.get((group, work), "")
        mine, theirs = self.found(group, work, ours), self.found(group, work, other)
        if not mine or (other and not theirs):
            missing = other if mine else ours
            return [label, unit, "", other or "", "", "", "", goal or "", f"{missing}: not measured"]
        value, rounds, ratio, counts = statistics.median(mine), mine, "", len(mine)
        if other:
            value, rounds = self.ratio(mine, theirs)
            ratio = f"{number(value)} ({number(min(rounds))}-{number(max(rounds))})"
            counts = len(mine) if len(mine) == len(theirs) else f"{len(mine)}, {len(theirs)}"
        verdict = goal.verdict(value, rounds) if goal else ""
        if verdict.startswith("NO") and goal.like_native and self.both_native(group, work, other, goal, value):
            verdict = "both native"
        their = [other, spread(theirs)] if other else ["", ""]
        return [label, unit, spread(mine), *their, counts, ratio, goal or "", verdict]

    @staticmethod
    def ratio(mine, theirs):
        """That of the medians; and those of the rounds, or the furthest apart where there are not as many of both."""
        value = statistics.median(mine) / statistics.median(theirs)
        if len(mine) == len(theirs):
            return value, [one / other for one, other in zip(mine, theirs)]
        return value, [min(mine) / max(theirs), max(mine) / min(theirs)]

    def both_native(self, group, work, other, goal, value):
        """The peer is within a tenth of the native file system, and ours within a tenth of the peer."""
        native = self.found(group, work, "native")
        theirs = statistics.median(self.found(group, work, other))
        return bool(native) and goal.holds(theirs / statistics.median(native), SLACK) and goal.holds(value, SLACK)

    def table(self):
        lines = ["| " + " | ".join(map(str, self.row(*row))) + " |" for row in self.rows if self.tried(*row[:4])]
        lines[:0] = [HEAD] if lines else []
        lines += [f"\nNOT AVAILABLE {group}: {who}: {why}" for (group, who), why in self.lacking.items()]
        lines += [f"\nFAILED {group}: {work}: {who}: {why}" for group, work, who, why in self.failures]
        return "\n".join(lines)

    def tried(self, group, work, *players):
        """There are values for such a row, or would be had it not failed."""
        failed = any((group, who) == (each[0], each[2]) for each in self.failures for who in players)
        found = any(self.found(group, work, who) for who in players)
        return failed or (found and (group, players[0]) not in self.lacking)

    def save(self, path, facts):
        values = [{"group": group, "work": work, "who": who, "unit": self.units[group, work], "values": values}
                  for (group, work, who), values in self.values.items()]
        failures = [dict(zip(("group", "work", "who", "why"), each)) for each in self.failures]
        with open(path, "w", encoding="utf-8") as out:
            json.dump({**facts, "measured": values, "failures": failures}, out, indent=1)
            out.write("\n")
