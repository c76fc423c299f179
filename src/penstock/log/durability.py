"""How much a log waits for the disk."""

from __future__ import annotations

from typing import Literal, get_args

from penstock.errors import SettingError

Fsync = Literal["none", "segment", "full"]
"""``none`` leaves the writing to the operating system. With ``segment`` the disk has a segment's bytes
before anybody can see it; with ``full`` it has their names too before the append returns, so that what was
acknowledged survives a power cut."""

LEVELS: tuple[Fsync, ...] = get_args(Fsync)


def read_fsync(level: object) -> Fsync:
    """Check the name of a level.

    >>> read_fsync("segment")
    'segment'
    """
    for known in LEVELS:
        if level == known:
            return known
    raise SettingError(f"{level!r} is not a level of fsync: choose {', '.join(LEVELS)}")
