"""What all groups of scripts/bench share: sizes, rounds, turns, and what to do when a measure fails."""

import contextlib
import dataclasses
import os

from benchlib.machine import Failure, Unavailable, say
from benchlib.mounts import Mount


@dataclasses.dataclass
class Sizes:
    """How much there is to measure, how often slow peers take part, and how long reads at random go on."""

    listed: int
    listed_directories: int
    files: int
    directories: int
    large: int
    far: int
    samples: dict
    few: int
    seconds: float


LONG = Sizes(3_770_000, 420, 20_000, 20, 1 << 30, 1000, {"rclone": 2000, "httpdirfs": 500}, 3, 2)
SHORT = Sizes(200_000, 40, 2_000, 4, 128 << 20, 200, {"rclone": 500, "httpdirfs": 200}, 2, 0.3)


def same(what, found, wanted):
    if found != wanted:
        raise Failure(f"{what}: {found}, not {wanted}")


class Bench:
    """One run: where it works, how much it does, what it found."""

    def __init__(self, work, sizes, rounds, without, book, sources):
        self.work, self.sizes, self.rounds, self.without, self.book = work, sizes, rounds, without, book
        self.sources = sources
        self.out = set()

    def has(self, peer):
        return peer not in self.without

    def path(self, name):
        return os.path.join(self.work, name)

    def turns(self, group, players, rounds=None):
        """Who is next, round by round: neighbours change places in each. Slow peers leave after a few rounds,
        and who failed is left out from then on."""
        for number in range(rounds or self.rounds):
            say(f"{group}: round {number + 1} of {rounds or self.rounds}")
            for player in players if number % 2 == 0 else players[::-1]:
                slow = player.peer in ("rclone", "httpdirfs")
                if (group, player.name) not in self.out and not (slow and number >= self.sizes.few):
                    yield player

    @contextlib.contextmanager
    def attempt(self, group, player, work):
        """Notes a failure, and that this player takes no further part in the group."""
        try:
            yield
        except (Failure, OSError) as bad:
            say(f"{group}: {work}: {player.name}: {bad}")
            self.out.add((group, player.name))
            if isinstance(player, Mount):
                with contextlib.suppress(Failure, OSError):
                    player.unmount()
            if isinstance(bad, Unavailable):
                self.book.lacks(group, player.name, bad)
            else:
                self.book.fail(group, work, player.name, bad)

    def mounted(self, group, players):
        """Those that could be mounted with an empty cache, and filled."""
        for player in players:
            with self.attempt(group, player, "mount"):
                say(f"{group}: {player.name} is mounted and filled")
                player.forget()
                player.mount()
                player.fill()
        return [player for player in players if (group, player.name) not in self.out]
