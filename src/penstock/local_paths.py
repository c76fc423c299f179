"""Paths of this machine's file systems: what only looks like one is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from penstock.errors import SettingError

_ADDRESS = re.compile(r"\s*([A-Za-z][A-Za-z0-9_+.-]+):/")
"""A path that is made of an address has one slash behind the colon. A drive has one letter before it. Schemes
have no underscores, but names of object stores that people make up do."""


def local_path(what: str, given: Any) -> Path:
    """Return an absolute path; an address such as ``s3a://bucket`` would become a folder ``s3a:`` here.

    >>> local_path("FileSink: folder", "hdfs://host/out")
    Traceback (most recent call last):
    penstock.errors.SettingError: FileSink: folder takes a path of a file system that is mounted here, not \
hdfs://host/out: Penstock knows no hdfs, and would make a folder 'hdfs:' of it
    """
    if not isinstance(given, str | Path) or not str(given):
        raise SettingError(f"{what} takes a path, not {given!r:.60}")
    address = _ADDRESS.match(str(given))
    if address is None:
        return Path(given).absolute()
    scheme = address[1]
    rest = str(given)[address.end() :].lstrip("/")
    if scheme == "file":
        raise SettingError(f"{what} takes a path, not an address: leave {scheme}:// out of {scheme}://{rest}")
    raise SettingError(
        f"{what} takes a path of a file system that is mounted here, not {scheme}://{rest}: Penstock knows no"
        f" {scheme}, and would make a folder {scheme + ':'!r} of it"
    )
