"""Stores and workers that are killed in the middle of a snapshot, and full disks: nothing is half."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from snapshot_cases import JOB, Files, content_of, home_at, keep, manifest_of

from penstock.backups.snapshots.snapshot_client import SnapshotClient
from penstock.backups.snapshots.snapshot_errors import SnapshotFullError
from penstock.backups.snapshots.snapshot_restore import needs_restore, restore
from penstock.backups.snapshots.snapshot_store import SnapshotStore
from penstock.node_client import NodeRequestError
from support.waiting import eventually

TOKEN = "7" * 64
LARGE = 8_000_000
SERVER = Path(__file__).with_name("snapshot_server.py")


class Server:
    """A store in a process of its own, which always comes back at the same place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        command = [sys.executable, str(SERVER), str(self.folder), str(self._port), TOKEN]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def part(self) -> int:
        """How much of unfinished objects is on the disk."""
        return unfinished_in(self.folder / "snapshots" / JOB / "parts")


def unfinished_in(folder: Path) -> int:
    """How many bytes of unfinished objects a folder has, while they are written and get their names."""
    held = 0
    for path in folder.glob("*.part"):
        with suppress(FileNotFoundError):
            held += path.stat().st_size
    return held


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "store")
    yield server
    server.kill()


def test_a_store_that_is_killed_in_the_middle_gets_only_the_rest(server: Server) -> None:
    home = home_at(0, large=LARGE)
    waited = 0

    def sleep(_: float) -> None:
        # Called between blocks, as soon as those before have used up the rate: on a clock that stands still,
        # so that it is always after as many bytes.
        nonlocal waited
        waited += 1
        if waited == 20:
            eventually("a part of the object", lambda: server.part > 500_000)
            server.kill()

    with SnapshotClient(server.url, TOKEN, rate=4_000_000, clock=lambda: 0.0, sleep=sleep) as client:
        with pytest.raises(NodeRequestError) as raised:
            client.send(manifest_of(home, 0), Files(home))
        assert raised.value.again
        held = server.part
        assert held > 500_000
        server.start()
        sent = client.send(manifest_of(home, 0), Files(home))
        assert sent.bytes_sent < LARGE - held + 10_000
        [manifest] = client.manifests(JOB).manifests
    store = SnapshotStore(server.folder / "snapshots")
    found = {piece.path: store.open(JOB, piece.sha256).read() for piece in manifest.pieces}
    assert found == home


def restoring(home: Path, url: str) -> None:
    """Restore slowly, in a process that is going to be killed: whoever does that has a quarter minute."""
    with SnapshotClient(url, TOKEN, rate=500_000) as client:
        restore(home, JOB, client=client, revision=1)


def test_a_worker_that_is_killed_while_it_restores_leaves_nothing_half(
    server: Server, tmp_path: Path
) -> None:
    content = home_at(0, large=LARGE)
    place = tmp_path / "kept" / JOB
    home = place / "home"
    home.mkdir(parents=True)
    (home / "old").write_bytes(b"of an earlier time")
    with SnapshotClient(server.url, TOKEN) as client:
        client.send(manifest_of(content, 0), Files(content))
        process = multiprocessing.get_context("spawn").Process(target=restoring, args=(home, server.url))
        process.start()
        assert process.pid is not None
        objects = place / "restoring" / "objects"
        eventually("a part of the object", lambda: unfinished_in(objects) > 500_000)
        os.kill(process.pid, signal.SIGKILL)
        process.join(60)
        held = unfinished_in(objects)
        assert content_of(home) == {"old": b"of an earlier time"}
        assert needs_restore(home, 1)
        made = restore(home, JOB, client=client, revision=1)
    assert made.bytes_moved <= LARGE - held
    assert content_of(home) == content
    assert content_of(place / "home.before-1") == {"old": b"of an earlier time"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB; who may not mount one has a limit on the size of files."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = _run("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder))
    before = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    if not mounted:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, before[0][1]))
    try:
        yield folder
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before[0])
        signal.signal(signal.SIGXFSZ, before[1])
        if mounted:
            assert _run("umount", str(folder))


def _run(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0
    except OSError:
        return False


@pytest.mark.parametrize("reserve", [0, -(1 << 40)])
def test_a_full_disk_loses_no_snapshot_that_counts(small_disk: Path, reserve: int) -> None:
    """Whether it is found out before a byte comes, or in the middle of one."""
    store = SnapshotStore(small_disk / "snapshots", reserve=reserve)
    first, second = home_at(0, large=1_000_000), home_at(1, large=4_000_000)
    keep(store, first, manifest_of(first, 0))
    with pytest.raises(SnapshotFullError):
        keep(store, second, manifest_of(second, 1))
    assert [each.batch for each in store.manifests(JOB).manifests] == [0]
    home = small_disk.parent / "kept" / "home"
    restore(home, JOB, local=store, revision=1)
    assert content_of(home) == first


def test_a_home_for_which_there_is_no_room_is_not_half_there(small_disk: Path, tmp_path: Path) -> None:
    if small_disk.stat().st_dev == small_disk.parent.stat().st_dev:
        pytest.skip("this needs the right to mount a file system")
    content = home_at(0, large=4_000_000)
    store = SnapshotStore(tmp_path / "snapshots")
    keep(store, content, manifest_of(content, 0))
    home = small_disk / "kept" / "home"
    with pytest.raises(SnapshotFullError):
        restore(home, JOB, local=store, revision=1)
    assert not home.exists()
    assert needs_restore(home, 1)
