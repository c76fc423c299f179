"""Shared by the master and supervisor processes: connecting to the store, signals, exit codes."""

from __future__ import annotations

import fcntl
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec

from penstock.errors import PenstockError, SettingError
from penstock.local.local_cluster import address_fault
from penstock.setting_values import name_fault

if TYPE_CHECKING:
    from penstock.coord.zookeeper_store import ZooKeeperStore
    from penstock.keyring import Keyring

_FAILED = 1
_TRY_SECONDS = 10.0

P = ParamSpec("P")


class UnavailableError(PenstockError):
    """A resource that a daemon needs is unavailable now and may be available later."""


def daemon_errors(command: Callable[P, None]) -> Callable[P, None]:
    """End with a message and an exit code: 3 when a retry cannot help, 1 when it may help."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except SettingError as error:
            from penstock.local.cluster_keeper import EXIT_REFUSED

            _exit_with_error(str(error), EXIT_REFUSED)
        except (PenstockError, OSError) as error:
            _exit_with_error(str(error), _FAILED)

    return run


def _exit_with_error(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"error: {message}\n")
    sys.exit(code)


def block_rich_import() -> None:
    """Prevent the import of rich, which a daemon does not need; called before other imports.

    structlog imports rich if it is installed, for colours that our logs do not use: 4 MB of memory.
    """
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]


def check_name(name: str) -> None:
    """Raise SettingError unless a name is valid as a part of paths and addresses."""
    if fault := name_fault(name):
        raise SettingError(f"--name: {fault}")


def check_address(host: str, port: int) -> None:
    """Raise UnavailableError unless the address is free; checked before anything that takes time."""
    if trouble := address_fault(host, port):
        raise UnavailableError(trouble)


def open_store(connect: str, keyring: Keyring, root: str, wait: float) -> ZooKeeperStore:
    """Connect to ZooKeeper, which may still be starting. Raises UnavailableError after ``wait`` seconds."""
    from penstock.coord.coordination_store import DisconnectedError
    from penstock.coord.zookeeper_store import ZooKeeperStore

    deadline = time.monotonic() + wait
    while True:
        left = max(0.1, deadline - time.monotonic())
        try:
            return ZooKeeperStore.connect(
                connect, keyring.store_password, root=root, timeout=min(left, _TRY_SECONDS)
            )
        except DisconnectedError as error:
            if time.monotonic() >= deadline:
                raise UnavailableError(f"{error}: check that it runs and listens at {connect}") from None


def stop_on_signals(wake: Callable[[], None] = lambda: None) -> threading.Event:
    """Return an event that SIGTERM and SIGINT set; the signal handler also calls ``wake``."""
    stop = threading.Event()

    def handle(number: int, frame: Any) -> None:  # noqa: ARG001
        stop.set()
        wake()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    return stop


@contextmanager
def lock_folder(folder: Path, who: str) -> Iterator[None]:
    """Lock a folder for this process. Raises UnavailableError when another process holds it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UnavailableError(f"{who} is already running on this machine with {folder}") from None
    try:
        yield
    finally:
        os.close(descriptor)
