"""A whole cluster on this machine: it comes up, brings back what dies, and goes without a trace."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

import penstock
from penstock.local.local_cluster import address_fault
from penstock.processes.process_control import OsProcesses
from support.waiting import eventually

SMALL = ("--nodes", "1", "--masters", "1", "--zk", "1")


def free_base() -> int:
    """Find ports that nobody has, below those that are given out, to servers of other tests too."""
    bases = range(10_000, 11_900, 60)
    for base in random.sample(bases, len(bases)):
        if not any(address_fault(host, base + n) for host in ("127.0.0.1", "127.0.0.2") for n in range(60)):
            return base
    raise AssertionError("this machine has no ports left")


class Home:
    """A user with an empty home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = folder / "cluster"
        self.port = free_base()
        source = str(Path(penstock.__file__).parents[1])
        self.environment = {**os.environ, "PENSTOCK_HOME": str(folder), "PYTHONPATH": source}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "penstock.cli.main", *arguments]

    def run(self, *arguments: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == expect, f"{arguments}: {done.stdout}{done.stderr}"
        return done

    def up(self, *arguments: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        return self.run("up", "--port", str(self.port), "--timeout", "240", *arguments, expect=expect)

    def pid(self, name: str) -> int | None:
        found = OsProcesses().find(self.cluster / "up" / name)
        return None if found is None else found.pid

    def comes_back(self, name: str, pid: int) -> bool:
        return self.pid(name) not in (None, pid)

    def left(self) -> list[Path]:
        return OsProcesses().below(self.folder)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    found = Home(tmp_path / "home")
    yield found
    processes = OsProcesses()
    processes.signal(found.cluster / "up" / "keeper", signal.SIGKILL)
    for folder in found.left():
        processes.kill_all(folder)


def test_a_cluster_in_the_background_is_kept_and_ended(home: Home) -> None:
    told = json.loads(home.up("--detach", "-o", "json", *SMALL).stdout)
    assert told["leader"] == "master-1"
    assert [daemon["name"] for daemon in told["daemons"]] == ["zookeeper-1", "master-1", "node-1"]
    token = Path(told["token_file"])
    assert token.stat().st_mode & 0o777 == 0o600
    masters = json.loads(home.cluster.joinpath("masters.json").read_text())
    assert masters == {"urls": [f"http://127.0.0.1:{home.port}"]}

    refused = home.up("--detach", *SMALL, expect=1)
    assert "is already up" in refused.stderr
    checks = {each["check"]: each for each in json.loads(home.run("doctor", "-o", "json").stdout)}
    assert checks["masters"]["found"] == "master-1 leads"
    assert checks["zookeeper"]["status"] == checks["versions"]["status"] == checks["clock"]["status"] == "ok"

    for name in ("node-1", "master-1", "zookeeper-1"):
        pid = home.pid(name)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        eventually(f"{name} comes back", partial(home.comes_back, name, pid))
    log = home.cluster.joinpath("up", "keeper", "output.txt").read_text()
    assert "node-1 was ended by SIGKILL; it is restarted in 0.5 s" in log

    ended = json.loads(home.run("down", "-o", "json").stdout)["ended"]
    assert sorted(each["name"] for each in ended) == ["keeper", "master-1", "node-1", "zookeeper-1"]
    assert home.left() == []
    assert "no cluster is running" in home.run("down").stderr


def test_a_keeper_costs_next_to_nothing_and_after_its_death_everything_is_found(home: Home) -> None:
    home.up("--detach", *SMALL)
    keeper = home.pid("keeper")
    assert keeper is not None
    watched = psutil.Process(keeper)
    # Not at once perhaps: it may be slow to begin. What costs something does so all the time.
    assert any(_is_idle(watched) for _ in range(5))
    os.kill(keeper, signal.SIGKILL)
    assert "is already up" in home.up("--detach", *SMALL, expect=1).stderr
    home.run("down")
    assert home.left() == []


@pytest.mark.parametrize("how", ["Ctrl-C", pytest.param("down", marks=pytest.mark.full), "killed"])
def test_a_cluster_in_the_foreground(home: Home, how: str) -> None:
    command = home.command("up", "--port", str(home.port), "--timeout", "240", *SMALL)
    process = subprocess.Popen(
        command, env=home.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "stop it with Ctrl-C\n"
        assert "is up or starting" in home.up("--detach", *SMALL, expect=1).stderr
        pid = home.pid("node-1")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert "node-1 was ended by SIGKILL" in process.stderr.readline()
        eventually("the supervisor comes back", partial(home.comes_back, "node-1", pid))
        if how == "Ctrl-C":
            process.send_signal(signal.SIGINT)
        elif how == "down":
            home.run("down")
        else:
            process.kill()
        out, _ = process.communicate(timeout=240)
        assert process.returncode == (-signal.SIGKILL if how == "killed" else 0)
        assert "leads" in out
        if how == "killed":
            assert home.pid("node-1") is not None
            home.run("down")
        assert home.left() == []
    finally:
        process.kill()
        process.wait()


def test_what_is_wiped_is_gone_and_logs_stay(home: Home) -> None:
    home.run("log", "create", "lines")
    home.up("--detach", *SMALL)
    for folder in ("cluster-jobs", "agreements"):
        home.folder.joinpath(folder, "old").mkdir(parents=True)
    home.run("down")
    assert "--zk 1" in home.up("--detach", "--zk", "3", expect=1).stderr
    home.run("down", "--wipe")
    assert not home.folder.joinpath("cluster-jobs").exists()
    assert not home.folder.joinpath("agreements").exists()
    assert home.folder.joinpath("logs", "lines").is_dir()
    assert [path.name for path in home.cluster.iterdir()] == ["up.lock"]


def test_a_port_that_is_taken_is_named_before_anything_starts(home: Home) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.2", home.port + 20))
        listener.listen()
        told = home.up("--detach", *SMALL, expect=1).stderr
    assert f"node-1 cannot listen: 127.0.0.2:{home.port + 20} is used by another program" in told
    assert home.left() == []


def test_a_cluster_that_does_not_come_up_is_ended(home: Home) -> None:
    told = home.up(
        "--detach", "--connect", "127.0.0.1:1", "--nodes", "1", "--masters", "1", "--timeout", "3", expect=1
    )
    assert "the cluster is not up after 3 seconds: master-1 cannot serve yet" in told.stderr
    assert home.left() == []


def _is_idle(watched: psutil.Process) -> bool:
    before = watched.cpu_times()
    time.sleep(3)
    after = watched.cpu_times()
    # The system counts in hundredths.
    return after.user + after.system - before.user - before.system < 0.035
