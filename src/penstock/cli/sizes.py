"""Sizes of memory as Java's users write them."""

from __future__ import annotations

import re

from penstock.errors import SettingError
from penstock.log.retention import read_size

_SHIFT = {"k": 10, "m": 20, "g": 30, "t": 40}


def read_memory(text: str) -> int:
    """Read a number of bytes; a bare letter counts in powers of two, as with Spark and Java.

    >>> read_memory("2g"), read_memory("512m"), read_memory("1GiB"), read_memory("1000")
    (2147483648, 536870912, 1073741824, 1000)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt])", text.strip(), re.IGNORECASE)
    size = round(float(match[1]) * (1 << _SHIFT[match[2].lower()])) if match else read_size(text)
    if size <= 0:
        raise SettingError(f"{text!r} is no memory at all")
    return size
