"""Limits on the number, size and names of the files of a bundle."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from penstock.bundles.bundle_signature import BundleError

MOST_FILES = 10_000
"""Maximum number of files, enough for a large package; each costs a header, a hash and a file per node."""
MOST_UNPACKED = 256 << 20
"""Maximum bytes of an unpacked bundle, on the disk of each node."""
MOST_PACKED = 64 << 20
"""Maximum bytes of a bundle: a master and a supervisor hold it in memory while they check it."""
MOST_MANIFEST = 8 << 20
"""Maximum bytes of a manifest: enough for all files with long names."""
LONGEST_NAME = 1_000
"""Maximum bytes of a file name with its folders; file systems allow about 4,000 for the whole path."""
LONGEST_PART = 255
"""Maximum bytes of one part of a name, the limit of file systems."""


def megabytes(size: int) -> str:
    """Format a number of bytes as MiB.

    >>> megabytes(64 << 20)
    '64 MiB'
    """
    return f"{size >> 20} MiB"


_DRIVE = re.compile(r"[A-Za-z]:")
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def file_name_fault(name: str) -> str | None:
    """Return why a file name is not allowed, or None if it is.

    >>> file_name_fault("shop/orders.py")
    >>> file_name_fault("../orders.py")
    "it has a part '..'"
    """
    if not name:
        return "it is empty"
    if any(unicodedata.category(character) in _INVISIBLE for character in name):
        return "it has invisible characters"
    if name != unicodedata.normalize("NFC", name):
        return "it is not in Unicode's composed form (NFC)"
    if _ENCODED.search(name):
        return "it has an encoded character (% and two digits)"
    if len(name.encode()) > LONGEST_NAME:
        return f"it is longer than {LONGEST_NAME} bytes"
    # Some systems convert compatibility characters such as full-width letters: check the converted name.
    return _converted_name_fault(unicodedata.normalize("NFKC", name))


def _converted_name_fault(name: str) -> str | None:
    if _DRIVE.match(name):
        return "it begins with a drive letter"
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
    """Raise BundleError for a name that is not allowed, or that some file system takes for another name."""
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for name in names:
        fault = file_name_fault(name)
        if fault is not None:
            raise BundleError(f"the file name {name!r} is not allowed in a bundle: {fault}")
        if files.get(_folded(name)) == name:
            raise BundleError(f"the file {name!r} occurs twice")
        _claim(files, name, name)
        parts = name.split("/")[:-1]
        for depth in range(len(parts)):
            _claim(folders, "/".join(parts[: depth + 1]), name)
    for folded in sorted(files.keys() & folders.keys()):
        raise BundleError(f"{files[folded]!r} is both a file and a folder")


def _claim(taken: dict[str, str], name: str, file: str) -> None:
    other = taken.setdefault(_folded(name), name)
    if other != name:
        raise BundleError(f"{other!r} and {name!r} (of {file!r}) differ by case only: rename one of them")


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
