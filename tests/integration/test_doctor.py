"""What ``penstock doctor`` finds."""

from __future__ import annotations

import json
import resource
import shutil
import socket
import threading
from collections import namedtuple
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import doctor
from penstock.cli.doctor import CHECKS, FAILED, OK, WARNING, DoctorContext
from penstock.cli.main import command_line
from penstock.keyring import open_keyring

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def port(tmp_path: Path) -> int:
    """The first of some ports that nobody has: below those that are given out, to servers of tests too."""
    for base in range(11_000, 12_000, 40):
        if doctor.check_ports(DoctorContext(tmp_path, tmp_path, base)).status == OK:
            return base
    raise AssertionError("this machine has no ports left")


@pytest.fixture
def patient(tmp_path: Path, port: int) -> DoctorContext:
    return DoctorContext(tmp_path / "cluster", tmp_path, port)


def test_a_healthy_machine_has_nothing_failed(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    done = CliRunner().invoke(command_line(), ["doctor", "--port", str(port), "-o", "json"])
    findings = json.loads(done.stdout)
    assert [each["check"] for each in findings] == [name for name, _ in CHECKS]
    assert [each for each in findings if each["status"] == FAILED] == []
    assert done.exit_code == 0
    assert list(tmp_path.iterdir()) == [], "looking leaves nothing behind"


def test_what_failed_is_in_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    done = CliRunner().invoke(command_line(), ["doctor", "--port", "23400"])
    assert done.exit_code == 1
    assert "JAVA_HOME" in done.stdout
    assert "failed" in done.stdout


def test_ports_in_use_are_named(patient: DoctorContext) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", patient.port + 1))
        listener.listen()
        found = doctor.check_ports(patient)
    assert (found.status, found.text) == (FAILED, f"in use: {patient.port + 1}")
    assert doctor.check_ports(patient).status == OK


def test_storage_that_cannot_be_written(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    found = doctor.check_storage(DoctorContext(tmp_path, place, 1))
    assert found.status == FAILED
    assert str(place) in found.text


@pytest.mark.parametrize(("free", "status"), [(10 << 30, OK), (2 << 30, WARNING), (1 << 20, FAILED)])
def test_room_on_the_disk(
    patient: DoctorContext, monkeypatch: pytest.MonkeyPatch, free: int, status: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 40, 0, free))
    assert doctor.check_disk(patient).status == status


@pytest.mark.parametrize(
    ("soft", "status"), [(20_000, OK), (resource.RLIM_INFINITY, OK), (1024, WARNING), (256, FAILED)]
)
def test_open_files(patient: DoctorContext, monkeypatch: pytest.MonkeyPatch, soft: int, status: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert doctor.check_files(patient).status == status


def test_the_key(patient: DoctorContext) -> None:
    assert doctor.check_key(patient).status == OK
    open_keyring(patient.cluster, create=True)
    assert doctor.check_key(patient).status == OK
    token = patient.cluster / "token"
    token.write_text("another")
    assert doctor.check_key(patient).status == WARNING
    token.chmod(0o644)
    assert doctor.check_key(patient).status == FAILED
    (patient.cluster / "cluster.key").chmod(0o640)
    found = doctor.check_key(patient)
    assert found.status == FAILED
    assert "chmod 600" in found.advice


class Server:
    """Answers one question, as a ZooKeeper server does."""

    def __init__(self, answer: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, args=(answer,), daemon=True)
        self._thread.start()

    def _serve(self, answer: bytes) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.recv(4)
            connection.sendall(answer)
        self._listener.close()


LEADER = b"Zookeeper version: 3.9.5\nMode: leader\nNode count: 5\n"
NO_QUORUM = b"This ZooKeeper instance is not currently serving requests\n"


def test_zookeeper_servers_are_asked(tmp_path: Path) -> None:
    def check(*addresses: str) -> tuple[str, str]:
        found = doctor.check_zookeeper(DoctorContext(tmp_path, tmp_path, 1, connect=",".join(addresses)))
        return found.status, found.text

    leader = Server(LEADER).address
    assert check(leader) == (OK, f"{leader} (leader)")
    alone = Server(NO_QUORUM).address
    assert check(alone)[1] == f"{alone} (without a quorum)"
    assert check("127.0.0.1:1")[0] == FAILED
    two = Server(LEADER).address, Server(LEADER).address
    assert check(*two, "127.0.0.1:1")[0] == WARNING


def test_a_clock_that_is_off_is_found() -> None:
    assert doctor._skew(100.0, 103.0) == 0.0
    assert doctor._skew(160.0, 100.0) == 60.0
    assert doctor._skew(100.0, 160.0) == 50.0
