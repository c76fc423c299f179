"""How large a bundle may be. Code is small: whoever reaches these packs data, which belongs elsewhere."""

from __future__ import annotations

MOST_FILES = 10_000
"""As many files as a large package has; each costs a header, a hash and a file on every node."""
MOST_UNPACKED = 256 << 20
"""Bytes on the disk of each node, for each bundle."""
MOST_PACKED = 64 << 20
"""Bytes that a master and a supervisor hold in memory while they check a bundle."""
MOST_RATIO = 100
"""How many bytes may come of one: code gives three to ten, a zip bomb gives a thousand."""
MOST_MANIFEST = 8 << 20
"""Bytes of a manifest: those of all files with long names."""
LONGEST_NAME = 1_000
"""Bytes of a file's name with its folders; a file system takes about 4,000 for the whole path."""
LONGEST_PART = 255
"""Bytes of one part of a name, which is what file systems take."""


def megabytes(size: int) -> str:
    """Return a number of bytes as a person says it.

    >>> megabytes(64 << 20)
    '64 MiB'
    """
    return f"{size >> 20} MiB"
