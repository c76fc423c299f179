"""Restarts the daemons of a cluster on this machine when they die, as a service manager does.

``python -m penstock.local.cluster_keeper CLUSTER_FOLDER`` runs it in the background.
It waits on process descriptors, so it uses no processor time while no process dies.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.local.cluster_layout import Daemon, Layout, read_layout, write_layout
from penstock.processes.process_control import OsProcesses, ProcessError

EXIT_REFUSED = 3
"""The exit code of a daemon that would fail in the same way each time."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_HEALTHY_SECONDS = 60.0
"""After running this long, a daemon counts as healthy."""

_POLL_SECONDS = 1.0

Tell = Callable[[str], None]


def pause_before(failures: int) -> float:
    """Return how many seconds to wait before restarting a daemon after so many failures in a row.

    >>> [pause_before(failures) for failures in (1, 2, 3, 7, 8)]
    [0.5, 1.0, 2.0, 30.0, 30.0]
    """
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (failures - 1))


@dataclass
class _KeptDaemon:
    """The state of a daemon that the keeper runs."""

    daemon: Daemon
    descriptor: int | None = None
    began: float = 0.0
    failures: int = 0
    due: float | None = 0.0
    """When to start it; None while it runs, or if it is not to be started again."""
    runs: bool = False


class Keeper:
    """Starts all daemons of a layout, and restarts those that die."""

    def __init__(
        self,
        layout: Layout,
        cluster: Path,
        environment: Mapping[str, str],
        *,
        tell: Tell,
    ) -> None:
        self._layout = layout
        self._cluster = cluster
        self._environment = environment
        self._tell = tell
        self._processes = OsProcesses()
        self._kept = [_KeptDaemon(daemon) for daemon in layout.daemons]
        self._stopping = False
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)

    def stop(self) -> None:
        """Make :meth:`run` return; the daemons keep running. Any thread or signal handler may call it."""
        self._stopping = True
        with suppress(BlockingIOError):
            os.write(self._wake_writer, b"x")

    def run(self) -> None:
        """Keep all daemons running until :meth:`stop` is called."""
        try:
            while not self._stopping:
                self._start_due()
                self._wait()
                self._handle_deaths()
        finally:
            for kept in self._kept:
                if kept.descriptor is not None:
                    os.close(kept.descriptor)
                    kept.descriptor = None

    def _start_due(self) -> None:
        now = time.monotonic()
        changed = False
        for kept in self._kept:
            if kept.due is not None and kept.due <= now and not self._stopping:
                self._start(kept, now)
                changed = True
        if changed:
            write_layout(self._layout, self._cluster)

    def _start(self, kept: _KeptDaemon, now: float) -> None:
        daemon, folder = kept.daemon, Path(kept.daemon.folder)
        try:
            if not self._processes.alive(folder):
                # Processes left behind by the last one could occupy its port.
                self._processes.kill_all(folder)
            found = self._processes.start(
                daemon.argv, folder=folder, environment=self._environment, cwd=self._cluster
            )
        except ProcessError as error:
            kept.failures += 1
            kept.due = now + pause_before(kept.failures)
            self._tell(f"{daemon.name}: {error}; next try in {pause_before(kept.failures):g} s")
            return
        known = {"pid": found.pid, "created": found.created}
        self._layout = replace(self._layout, pids={**self._layout.pids, daemon.name: known})
        kept.began, kept.due, kept.runs = now, None, True
        kept.descriptor = self._processes.descriptor(folder)

    def _wait(self) -> None:
        """Wait until a process dies, the next start is due, or :meth:`stop` is called."""
        poll = select.poll()
        poll.register(self._wake_reader, select.POLLIN)
        for kept in self._kept:
            if kept.descriptor is not None:
                poll.register(kept.descriptor, select.POLLIN)
        due = [kept.due for kept in self._kept if kept.due is not None]
        if any(kept.runs and kept.descriptor is None for kept in self._kept):
            # The process ended at once, or the system does not support process descriptors.
            due.append(time.monotonic() + _POLL_SECONDS)
        wait = max(0.0, min(due) - time.monotonic()) * 1000 + 1 if due else None
        if (self._wake_reader, select.POLLIN) in poll.poll(wait):
            os.read(self._wake_reader, 1024)

    def _handle_deaths(self) -> None:
        for kept in self._kept:
            folder = Path(kept.daemon.folder)
            if kept.runs and not self._processes.alive(folder):
                if kept.descriptor is not None:
                    os.close(kept.descriptor)
                kept.descriptor, kept.runs = None, False
                self._schedule_restart(kept, self._processes.exit_code(folder))

    def _schedule_restart(self, kept: _KeptDaemon, code: int | None) -> None:
        now = time.monotonic()
        how, where = describe_exit(code), Path(kept.daemon.folder) / "output.txt"
        if code == EXIT_REFUSED:
            self._tell(f"{kept.daemon.name} {how}; it is not restarted, see {where}")
            return
        kept.failures = 1 if now - kept.began >= _HEALTHY_SECONDS else kept.failures + 1
        pause = pause_before(kept.failures)
        kept.due = now + pause
        self._tell(f"{kept.daemon.name} {how}; it is restarted in {pause:g} s, see {where}")


def describe_exit(code: int | None) -> str:
    """Describe how a process ended.

    >>> describe_exit(-9), describe_exit(1), describe_exit(None)
    ('was ended by SIGKILL', 'ended with exit code 1', 'ended')
    """
    if code is None:
        return "ended"
    if code < 0:
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"
    return f"ended with exit code {code}"


def main() -> int:
    """Keep the cluster of a folder running until SIGTERM, which ends it, or SIGUSR1, which does not."""
    cluster = Path(sys.argv[1])
    layout = read_layout(cluster)
    if layout is None:
        _print(f"there is no cluster in {cluster}")
        return 1
    keeper = Keeper(layout, cluster, dict(os.environ), tell=_print)
    ending = threading.Event()

    def end(number: int, _: object) -> None:
        if number != signal.SIGUSR1:
            ending.set()
        keeper.stop()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, end)
    keeper.run()
    if ending.is_set():
        from penstock.local.cluster_shutdown import end_cluster

        end_cluster(layout, cluster, OsProcesses(), tell=_print)
    return 0


def _print(text: str) -> None:
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(f"{moment} {text}", flush=True)  # noqa: T201 - its output is its log


if __name__ == "__main__":
    sys.exit(main())
