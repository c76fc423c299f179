"""Limits on the number, size and names of the files of a bundle."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from penstock.bundles.bundle_signature import BundleError

MOST_FILES = 10_000
"""As many files as a large package has; each costs a header, a hash and a file on every node."""
MOST_UNPACKED = 256 << 20
"""Bytes on the disk of each node, for each bundle."""
MOST_PACKED = 64 << 20
"""Bytes that a master and a supervisor hold in memory while they check a bundle."""
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


_DRIVE = re.compile(r"[A-Za-z]:")
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def file_name_fault(name: str) -> str | None:
    """Return why a file must not be called so, or None when it may.

    >>> file_name_fault("shop/orders.py")
    >>> file_name_fault("../orders.py")
    "it has a part '..'"
    """
    if not name:
        return "it is empty"
    if any(unicodedata.category(character) in _INVISIBLE for character in name):
        return "it has characters that cannot be seen"
    if name != unicodedata.normalize("NFC", name):
        return "it is not in Unicode's composed form (NFC)"
    if _ENCODED.search(name):
        return "it has an encoded character (% and two digits)"
    if len(name.encode()) > LONGEST_NAME:
        return f"it is longer than {LONGEST_NAME} bytes"
    # Wide letters and the like become plain ones on some systems: they are judged as what they may become.
    return _plain_fault(unicodedata.normalize("NFKC", name))


def _plain_fault(name: str) -> str | None:
    if _DRIVE.match(name):
        return "it begins with the letter of a drive"
    if name.startswith("/"):
        return "it is absolute"
    for character in "\\:":
        if character in name:
            return f"it has a {character!r}"
    for part in name.split("/"):
        if part in ("", ".", ".."):
            return f"it has a part {part!r}"
        if part != part.strip() or part.endswith("."):
            return f"its part {part!r} begins or ends with a space, or ends with a dot"
        if len(part.encode()) > LONGEST_PART:
            return f"it has a part that is longer than {LONGEST_PART} bytes"
    return None


def check_names(names: Iterable[str]) -> None:
    """Raise BundleError for a name that is at fault, comes twice, or is another's on some file system."""
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for name in names:
        fault = file_name_fault(name)
        if fault is not None:
            raise BundleError(f"a file is called {name!r}, which a bundle cannot hold: {fault}")
        if files.get(_folded(name)) == name:
            raise BundleError(f"the file {name!r} is there twice")
        _claim(files, name, name)
        parts = name.split("/")[:-1]
        for depth in range(len(parts)):
            _claim(folders, "/".join(parts[: depth + 1]), name)
    for folded in sorted(files.keys() & folders.keys()):
        raise BundleError(f"{files[folded]!r} is a file and a folder at once")


def _claim(taken: dict[str, str], name: str, file: str) -> None:
    other = taken.setdefault(_folded(name), name)
    if other != name:
        raise BundleError(f"{other!r} and {name!r} (of {file!r}) differ by case only: rename one of them")


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
