"""Masters, supervisors and ZooKeeper as commands: what they say, and how they end, when they cannot run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import penstock
from penstock.keyring import open_keyring

NOWHERE = "127.0.0.1:1"


def penstock_command(home: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    source = str(Path(penstock.__file__).parents[1])
    environment = {**os.environ, "PENSTOCK_HOME": str(home), "PYTHONPATH": source}
    return [sys.executable, "-m", "penstock.cli.main", *arguments], environment


def run(home: Path, *arguments: str) -> tuple[int, str]:
    command, environment = penstock_command(home, *arguments)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=180)
    return done.returncode, done.stderr


MASTER = ("master", "--name", "m1", "--connect", NOWHERE)
SUPERVISOR = ("supervisor", "--name", "n1", "--connect", NOWHERE)


@pytest.mark.parametrize("daemon", [MASTER, SUPERVISOR])
def test_without_a_key_it_is_of_no_use_to_try_again(tmp_path: Path, daemon: Sequence[str]) -> None:
    code, told = run(tmp_path, *daemon)
    assert code == 3
    assert f"there is no key {tmp_path / 'cluster' / 'cluster.key'}" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("daemon", [MASTER, SUPERVISOR])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, daemon: Sequence[str]) -> None:
    open_keyring(tmp_path / "cluster", create=True)
    (tmp_path / "cluster" / "cluster.key").chmod(0o644)
    code, told = run(tmp_path, *daemon)
    assert code == 3
    assert "chmod 600" in told


@pytest.mark.parametrize("daemon", [MASTER, SUPERVISOR])
def test_a_port_that_is_taken(tmp_path: Path, daemon: Sequence[str]) -> None:
    open_keyring(tmp_path / "cluster", create=True)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        code, told = run(tmp_path, *daemon, "--port", str(port))
    assert code == 1
    assert f"127.0.0.1:{port} is used by another program" in told


@pytest.mark.parametrize("daemon", [MASTER, SUPERVISOR])
def test_a_zookeeper_that_does_not_answer(tmp_path: Path, daemon: Sequence[str]) -> None:
    open_keyring(tmp_path / "cluster", create=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code, told = run(tmp_path, *daemon, "--port", str(port), "--wait", "1")
    assert code == 1
    assert "no ZooKeeper server at 127.0.0.1:1 answered" in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--labels", "ssd"), "'ssd' is not a label"),
        (("--cores", "0"), "at least 1 core"),
        (("--memory", "much"), "not a size"),
        (("--memory", "0"), "an amount of memory must be above 0"),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, options: Sequence[str], words: str) -> None:
    code, told = run(tmp_path, *SUPERVISOR, *options)
    assert code == 3
    assert words in told


def test_a_zookeeper_in_the_foreground_ends_with_the_signal(tmp_path: Path) -> None:
    command, environment = penstock_command(tmp_path, "zookeeper", "--timeout", "120")
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        host, _, port = process.stdout.readline().strip().partition(":")
        socket.create_connection((host, int(port)), timeout=60).close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=60)
    finally:
        process.kill()
        process.wait()
