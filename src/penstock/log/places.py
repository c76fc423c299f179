"""Where logs live when a user names them instead of giving a path."""

from __future__ import annotations

import os
import re
from pathlib import Path

from penstock.errors import SettingError
from penstock.local_paths import local_path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def home() -> Path:
    """The folder of everything Penstock keeps for this user: ``$PENSTOCK_HOME`` or ``~/.penstock``.

    >>> home().is_absolute()
    True
    """
    configured = os.environ.get("PENSTOCK_HOME")
    return local_path("PENSTOCK_HOME", configured) if configured else Path.home() / ".penstock"


def log_folder(name: str, root: str | Path | None = None) -> Path:
    """The folder of the log called ``name`` below ``root``, which is ``home()`` unless given.

    >>> log_folder("orders", root="/data").as_posix()
    '/data/logs/orders'
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or ".." in name:
        raise SettingError(
            f"{name!r} cannot name a log: use 1 to 200 letters, digits, '.', '_' or '-', "
            "beginning with a letter or digit and without '..'"
        )
    return (home() if root is None else local_path("root", root)) / "logs" / name


def log_names(root: str | Path | None = None) -> list[str]:
    """The names of the logs below ``root``, which is ``home()`` unless given, in order."""
    folder = (home() if root is None else local_path("root", root)) / "logs"
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    return [name for name in names if _NAME.fullmatch(name) and (folder / name / "log.json").exists()]
