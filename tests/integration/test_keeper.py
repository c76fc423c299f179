"""The keeper with small programs in place of daemons."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from penstock.local.cluster_keeper import Keeper
from penstock.local.cluster_layout import Daemon, Layout, read_layout, write_layout
from penstock.local.cluster_shutdown import end_cluster
from penstock.processes.process_control import OsProcesses
from support.waiting import eventually

SLEEP = "import signal; signal.pause()"


def layout_of(cluster: Path, **programs: str) -> Layout:
    daemons = [
        Daemon(
            name=name,
            kind="master",
            argv=(sys.executable, "-I", "-S", "-c", program),
            folder=str(cluster / "up" / name),
            host="127.0.0.1",
            ports=(1,),
        )
        for name, program in programs.items()
    ]
    return Layout(connect="", storage=str(cluster), daemons=tuple(daemons))


def pid_of(cluster: Path, name: str) -> int | None:
    found = OsProcesses().find(cluster / "up" / name)
    return None if found is None else found.pid


class Keeping:
    def __init__(self, cluster: Path, layout: Layout) -> None:
        self.told: list[str] = []
        self.keeper = Keeper(layout, cluster, dict(os.environ), tell=self.told.append)
        self._thread = threading.Thread(target=self.keeper.run)
        self._thread.start()

    def stop(self) -> None:
        self.keeper.stop()
        self._thread.join(120)
        assert not self._thread.is_alive()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    yield folder
    end_cluster(None, folder, OsProcesses(), tell=print)


@pytest.mark.parametrize("descriptors", [True, False])
def test_what_dies_comes_back(cluster: Path, descriptors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not descriptors:
        monkeypatch.setattr(OsProcesses, "descriptor", lambda *_: None)
    keeping = Keeping(cluster, layout_of(cluster, one=SLEEP, two=SLEEP))
    try:
        eventually(
            "both daemons run",
            lambda: pid_of(cluster, "one") is not None and pid_of(cluster, "two") is not None,
        )
        first, other = pid_of(cluster, "one"), pid_of(cluster, "two")
        assert first is not None
        os.kill(first, signal.SIGKILL)
        eventually("the first daemon is back", lambda: pid_of(cluster, "one") not in (None, first))
        assert pid_of(cluster, "two") == other
        assert keeping.told == [
            f"one was ended by SIGKILL; it is restarted in 0.5 s, see {cluster / 'up/one/output.txt'}"
        ]
        eventually(
            "the layout has the new process",
            lambda: (
                (read_layout(cluster) or layout_of(cluster)).pids.get("one", {}).get("pid")
                == pid_of(cluster, "one")
            ),
        )
    finally:
        keeping.stop()
    assert pid_of(cluster, "one") is not None, "a keeper that leaves takes nobody with it"


def test_who_refuses_is_not_asked_again_and_who_fails_is_given_time(cluster: Path) -> None:
    programs = {"refusing": "import sys; sys.exit(3)", "failing": "import sys; sys.exit(1)"}
    keeping = Keeping(cluster, layout_of(cluster, **programs))

    def told_by(name: str) -> list[str]:
        return [line for line in keeping.told if line.startswith(name)]

    try:
        eventually(
            "the words of both", lambda: len(told_by("refusing")) >= 1 and len(told_by("failing")) >= 3
        )
    finally:
        keeping.stop()
    refusals, failures = told_by("refusing"), told_by("failing")
    assert len(refusals) == 1
    assert "exit code 3; it is not restarted" in refusals[0]
    assert [line.split(" in ")[1].split(" s,")[0] for line in failures[:3]] == ["0.5", "1", "2"]


def test_a_keeper_adopts_what_runs(cluster: Path) -> None:
    first = Keeping(cluster, layout_of(cluster, one=SLEEP))
    eventually("the daemon runs", lambda: pid_of(cluster, "one") is not None)
    pid = pid_of(cluster, "one")
    first.stop()
    second = Keeping(cluster, layout_of(cluster, one=SLEEP))
    try:
        assert pid is not None
        eventually(
            "the keeper knows the daemon",
            lambda: (read_layout(cluster) or layout_of(cluster)).pids.get("one", {}).get("pid") == pid,
        )
        os.kill(pid, signal.SIGKILL)
        eventually("the daemon is back", lambda: pid_of(cluster, "one") not in (None, pid))
    finally:
        second.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_in_the_background_it_ends_its_cluster_or_leaves_it(cluster: Path, number: int) -> None:
    write_layout(layout_of(cluster, one=SLEEP), cluster)
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.local.cluster_keeper", cluster], stdout=subprocess.PIPE
    )
    try:
        eventually("the daemon runs", lambda: pid_of(cluster, "one") is not None)
        process.send_signal(number)
        assert process.wait(120) == 0
        assert (pid_of(cluster, "one") is None) == (number == signal.SIGTERM)
    finally:
        process.kill()
        process.communicate()


def test_a_keeper_that_waits_costs_nothing(cluster: Path) -> None:
    write_layout(layout_of(cluster, one=SLEEP, two=SLEEP), cluster)
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.local.cluster_keeper", cluster], stdout=subprocess.PIPE
    )
    try:
        eventually("the daemon runs", lambda: pid_of(cluster, "two") is not None)
        watched = psutil.Process(process.pid)
        # Not at once perhaps: it may have to note yet what it has started. What ticks does so all the time.
        assert any(_is_idle(watched) for _ in range(5))
        assert watched.memory_info().rss < 50 << 20
        print("resident:", watched.memory_info().rss >> 20, "MB")
    finally:
        process.terminate()
        process.communicate()


def _is_idle(watched: psutil.Process) -> bool:
    before = watched.cpu_times()
    time.sleep(2)
    after = watched.cpu_times()
    # The system counts in hundredths.
    return after.user + after.system - before.user - before.system < 0.025
