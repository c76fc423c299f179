"""How the records that go over an edge are divided among the instances of its target."""

from __future__ import annotations

from enum import Enum


class Partitioning(Enum):
    """The way an edge divides its records.

    >>> Partitioning.SAME_KEY.value
    'same-key'
    """

    ROUND_ROBIN = "round-robin"
    """Each record goes to one instance: it stays where it is, which costs nothing, where sender and target
    have the same number of them; else they get the records in turn."""

    SAME_KEY = "same-key"
    """All records of a key go to the same instance: a Spark shuffle."""

    BROADCAST = "broadcast"
    """Each record goes to every instance, whichever process it runs in."""


ROUND_ROBIN = Partitioning.ROUND_ROBIN
SAME_KEY = Partitioning.SAME_KEY
BROADCAST = Partitioning.BROADCAST
