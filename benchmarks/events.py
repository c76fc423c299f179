"""The records of the benchmarks, made up the same way every time, and the work that jobs do on them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from benchmarks.arrow_files import Pair

ACTIONS = ("view", "click", "cart", "order", "return")
COUNTRIES = ("at", "br", "ca", "de", "es", "fr", "in", "jp", "us", "za")
LEAST_CENTS = 1_000
MOST_CENTS = 10_000
RATES = {country: 90 + 3 * index for index, country in enumerate(COUNTRIES)}
EVENT_BYTES = 256
_FILLER = "a gated pipe feeds the turbine while the river runs on below the dam and the mill " * 8


def event_batches(batches: int, size: int, users: int = 10_000, seed: int = 1) -> Iterator[list[Pair]]:
    """Yield micro-batches of events: user, action, country, cents, time and a note, 256 bytes each."""
    chance = random.Random(seed)
    pick, below = chance.choice, chance.random
    time = 1_700_000_000
    for _ in range(batches):
        pairs = []
        for _ in range(size):
            time += 1
            user = f"user-{int(below() * users):06d}"
            head = f"{user},{pick(ACTIONS)},{pick(COUNTRIES)},{int(below() * MOST_CENTS)},{time},"
            start = int(below() * 200)
            pairs.append((user, head + _FILLER[start : start + EVENT_BYTES - len(head)]))
        yield pairs


def keyed_batches(batches: int, size: int, keys: int, seed: int = 2) -> Iterator[list[Pair]]:
    """Yield micro-batches of records with evenly spread keys and short values."""
    chance = random.Random(seed)
    for _ in range(batches):
        yield [(f"key-{int(chance.random() * keys):07d}", f"value {number:026d}") for number in range(size)]


def growth_batches(held: int, load: int, touched: int, batches: int) -> Iterator[list[Pair]]:
    """Yield batches that bring ``held`` keys in, ``load`` a batch, then ones that touch some of them.

    Each of the later batches touches ``touched`` different keys, spread over all that are held.
    """
    for start in range(0, held, load):
        yield [(f"key-{number:07d}", "load") for number in range(start, min(start + load, held))]
    stride = held // touched
    for number in range(batches):
        yield [(f"key-{index * stride + number % stride:07d}", "touch") for index in range(touched)]


def one_step(line: str) -> str | None:
    """Parse an event, drop the small ones, write the action in capitals."""
    fields = line.split(",", 5)
    if int(fields[3]) < LEAST_CENTS:
        return None
    fields[1] = fields[1].upper()
    return ",".join(fields)


Event = tuple[str, str, str, int, int, str]
"""A parsed event: user, action, country, cents, time, note."""


def parse(line: str) -> Event:
    """Step 1 of 5: read the fields."""
    user, action, country, cents, time, note = line.split(",", 5)
    return user, action, country, int(cents), int(time), note


def is_large(event: Event) -> bool:
    """Step 2 of 5: say whether to keep an event."""
    return event[3] >= LEAST_CENTS


def normalise(event: Event) -> Event:
    """Step 3 of 5: write names in the form that everybody expects."""
    user, action, country, cents, time, note = event
    return user, action.upper(), country.upper(), cents, time, note


def convert(event: Event) -> Event:
    """Step 4 of 5: convert the amount to another currency."""
    user, action, country, cents, time, note = event
    return user, action, country, cents * RATES[country.lower()] // 100, time, note


def render(event: Event) -> str:
    """Step 5 of 5: write the event out again."""
    user, action, country, cents, time, note = event
    return f"{user}|{action}|{country}|{cents}|{time}|{note}"


def five_steps(line: str) -> str | None:
    """Do all five steps, one after the other."""
    event = parse(line)
    if not is_large(event):
        return None
    return render(convert(normalise(event)))
