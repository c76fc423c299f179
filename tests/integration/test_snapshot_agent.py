"""Snapshots over real HTTP on loopback: sent, interrupted, continued, fetched, refused."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import httpx
import pytest
from served_agent import TOKEN, ServedAgent
from snapshot_cases import JOB, Files, content_of, home_at, manifest_of, sha, upload

from penstock import node_client
from penstock.backups.snapshots.snapshot_client import SnapshotClient
from penstock.backups.snapshots.snapshot_errors import (
    NoCompleteSnapshotError,
    SnapshotDamagedError,
    SnapshotError,
    SnapshotMissingError,
    TransferStoppedError,
)
from penstock.backups.snapshots.snapshot_manifest import Manifest, SnapshotFile
from penstock.backups.snapshots.snapshot_restore import restore
from penstock.backups.snapshots.snapshot_store import SnapshotStore
from penstock.backups.snapshots.transfer_format import MOST_BODY, frame
from penstock.bundles.blob_store import BlobStore
from penstock.node_client import NodeRequestError
from penstock.web.supervisor_api import make_supervisor_api
from support.waiting import eventually

LARGE = 3_000_000


class Node(ServedAgent):
    """A supervisor's agent with a store of snapshots."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "snapshots"
        self.store = SnapshotStore(self.folder)
        agent = make_supervisor_api(BlobStore(folder / "blobs"), list, TOKEN, "n1", snapshots=self.store)
        super().__init__(agent)
        self.client = SnapshotClient(self.url, TOKEN)

    @property
    def is_idle(self) -> bool:
        """Whether it has no connection and handles no request."""
        state = self.served._server.server_state
        return not state.connections and not state.tasks

    def close(self) -> None:
        self.client.close()
        super().close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.close()


class Relay:
    """A way to a node that breaks after so many bytes in one direction, as often as it is told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.up: int | None = None
        """How many bytes go to the node until the connection breaks; None for all."""
        self.down: int | None = None
        self.accepted = 0
        self.carried_up = 0
        self.carried_down = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            far = socket.create_connection(("127.0.0.1", self._port))
            for source, target, way in ((near, far, "up"), (far, near, "down")):
                thread = threading.Thread(target=self._carry, args=(source, target, way), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _carry(self, source: socket.socket, target: socket.socket, way: str) -> None:
        with suppress(OSError):
            while True:
                left = getattr(self, way)
                data = source.recv(65536 if left is None else min(65536, max(left, 1)))
                if left is not None:
                    setattr(self, way, left - len(data))
                if not data or (left is not None and left <= 0):
                    break
                target.sendall(data)
                setattr(self, f"carried_{way}", getattr(self, f"carried_{way}") + len(data))
        with suppress(OSError):
            source.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            # A node that is slow must still get what was carried to it: no end of both ways at once.
            target.shutdown(socket.SHUT_WR if way == "up" else socket.SHUT_RDWR)
        source.close()
        if way == "down":
            target.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)


@pytest.fixture
def relay(node: Node) -> Iterator[Relay]:
    relay = Relay(node.served.port)
    yield relay
    relay.close()


def test_a_snapshot_is_sent_and_the_next_one_costs_what_is_new(node: Node) -> None:
    first, second = home_at(0, large=LARGE), home_at(1)
    large = {path: data for path, data in first.items() if len(data) == LARGE}
    second |= large
    files = Files(first)
    sent = node.client.send(manifest_of(first, 0), files)
    assert (sent.number, sent.objects) == (1, len({sha(data) for data in first.values()}))
    assert LARGE < sent.bytes_sent < LARGE + 10_000
    files = Files(second)
    sent = node.client.send(manifest_of(second, 1), files)
    new = {sha(data) for data in second.values()} - {sha(data) for data in first.values()}
    assert (sent.number, sent.objects) == (2, len(new))
    assert sent.bytes_sent < 10_000
    assert {sha(second[path]) for path in files.opened} == new
    assert [each.batch for each in node.client.manifests(JOB).manifests] == [1, 0]
    assert node.client.manifests(JOB, limit=1).manifests == (replace(manifest_of(second, 1), number=2),)
    # Another client knows nothing of this, and asks.
    with SnapshotClient(node.url, TOKEN) as other:
        assert other.send(manifest_of(second, 2), files).objects == 0


def test_what_was_sent_is_fetched(node: Node, tmp_path: Path) -> None:
    home = home_at(2, large=LARGE)
    node.client.send(manifest_of(home, 2), Files(home))
    [manifest] = node.client.manifests(JOB).manifests
    into = tmp_path / "into"
    total = sum(len(data) for data in {sha(data): data for data in home.values()}.values())
    assert node.client.fetch(JOB, manifest, into) == total
    assert {name: sha(data) for name, data in content_of(into).items()} == {
        sha(data): sha(data) for data in home.values()
    }
    assert node.client.fetch(JOB, manifest, into) == 0


def test_thousands_of_small_files_are_few_requests(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = {f"logs/in/p00000/{number:020d}.seg": b"%d" % number * 20 for number in range(3_000)}
    asked: list[str] = []
    real = node.client._node.stream

    def counting(method: str, url: str, **options: Any) -> AbstractContextManager[httpx.Response]:
        asked.append(method)
        return real(method, url, **options)

    monkeypatch.setattr(node.client._node, "stream", counting)
    node.client.send(manifest_of(home, 0), Files(home))
    node.client.fetch(JOB, manifest_of(home, 0), tmp_path / "into")
    assert len(asked) <= 5
    assert len(content_of(tmp_path / "into")) == 3_000


def test_sending_goes_on_where_the_connection_broke(node: Node, relay: Relay) -> None:
    home = home_at(0, large=LARGE)
    [large] = [sha(data) for data in home.values() if len(data) == LARGE]
    stored = [0]
    with SnapshotClient(relay.url, TOKEN, timeout=60) as client:
        while True:
            relay.up = 1_000_000
            try:
                sent = client.send(manifest_of(home, 0), Files(home))
                break
            except NodeRequestError as error:
                # How much of what a broken connection carried is stored depends on the machine's load.
                if not error.again or len(stored) > 40:
                    raise
                eventually("the node has done with the connection", lambda: node.is_idle)
                stored.append(node.store._job(JOB).objects.received(large))
    assert len(stored) > 2
    assert stored == sorted(stored)
    # What is stored is not sent again, what is not is sent; beside it go the small files and the manifest.
    assert LARGE - stored[-1] <= sent.bytes_sent < LARGE - stored[-1] + 10_000
    assert node.store.manifests(JOB).manifests[0].total_bytes == manifest_of(home, 0).total_bytes


def test_fetching_goes_on_where_the_connection_broke(node: Node, relay: Relay, tmp_path: Path) -> None:
    home = home_at(0, large=LARGE)
    node.client.send(manifest_of(home, 0), Files(home))
    place = tmp_path / "kept" / "home"
    tries = 0
    with SnapshotClient(relay.url, TOKEN, timeout=60) as client:
        while True:
            relay.down = 1_000_000
            try:
                made = restore(place, JOB, client=client, revision=1)
                break
            except NodeRequestError as error:
                if not error.again or tries > 5:
                    raise
                tries += 1
                assert not place.exists()
        assert tries == 3
        assert made.bytes_moved < 1_000_000
        assert client.fetched == sum(len(data) for data in {sha(d): d for d in home.values()}.values())
    assert content_of(place) == home


def test_only_the_tokens_owner_is_heard(node: Node) -> None:
    home = home_at(0)
    with SnapshotClient(node.url, "wrong") as client:
        for call in (
            lambda: client.send(manifest_of(home, 0), Files(home)),
            lambda: client.manifests(JOB),
            lambda: client.forget(JOB, revision=9, attempt=1),
        ):
            with pytest.raises(NodeRequestError, match="401: the token is missing or wrong") as raised:
                call()
            assert (raised.value.again, raised.value.status) == (False, 401)
    assert not node.folder.exists()


def test_a_file_that_is_not_what_the_manifest_says_is_refused(node: Node) -> None:
    home = home_at(0, large=LARGE)
    changed = {path: altered(data) if len(data) == LARGE else data for path, data in home.items()}
    with pytest.raises(NodeRequestError, match="422: the content received for object") as raised:
        node.client.send(manifest_of(home, 0), Files(changed))
    assert not raised.value.again
    shorter = {path: data[:-1] if data else data for path, data in home.items()}
    with pytest.raises(SnapshotError, match="has changed"):
        node.client.send(manifest_of(home, 0), Files(shorter))
    assert node.store.manifests(JOB).manifests == ()
    assert node.client.send(manifest_of(home, 0), Files(home)).number == 1


@pytest.mark.parametrize("path", ["../../../evil", "/etc/evil", "a/../../evil", "a\x00b"])
def test_manifests_that_lead_elsewhere_are_refused(node: Node, path: str) -> None:
    manifest = Manifest(JOB, 0, 1, 1, 0, 1.0, (SnapshotFile(path, sha(b"x"), 1),))
    with pytest.raises(NodeRequestError, match=r"400: .* is not a path inside"):
        node.client.send(manifest, Files({path: b"x"}))
    assert node.store.manifests(JOB).manifests == ()


def test_a_store_that_gives_paths_that_lead_elsewhere_is_not_believed(tmp_path: Path) -> None:
    manifest = Manifest(JOB, 1, 1, 1, 0, 1.0, (SnapshotFile("../evil", sha(b"x"), 1),))
    body = json.dumps({"manifests": [manifest.to_json().decode()], "damaged": []}).encode()
    with (
        Liar(_answer(body)) as url,
        SnapshotClient(url, TOKEN) as client,
        pytest.raises(NodeRequestError, match="not a path inside"),
    ):
        restore(tmp_path / "kept" / "home", JOB, client=client, revision=1)
    assert not (tmp_path / "kept" / "home").exists()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/snapshots/count/missing", b"", 400),
        ("POST", "/snapshots/count/missing", b"[]", 400),
        ("POST", "/snapshots/count/missing", b'{"objects": {"x": 1}}', 400),
        ("POST", "/snapshots/count/missing", b'{"objects": {"%s": -1}}' % (b"a" * 64), 400),
        ("POST", "/snapshots/count/missing", b"[" * 100_000, 400),
        ("POST", "/snapshots/..%2fx/missing", b'{"objects": {}}', 404),
        ("POST", "/snapshots/.x/missing", b'{"objects": {}}', 400),
        ("POST", "/snapshots/count/manifests", b"{}", 400),
        ("POST", "/snapshots/count/manifests", b'{"manifest": "{}"}', 400),
        ("POST", "/snapshots/count/objects", b"garbage", 422),
        ("POST", "/snapshots/count/pack", b'{"objects": ["../../etc/passwd"]}', 400),
        ("PUT", f"/snapshots/count/objects/{'a' * 64}", b"x", 400),
        ("PUT", f"/snapshots/count/objects/{'a' * 64}?offset=-1&size=1", b"x", 400),
        ("PUT", f"/snapshots/count/objects/{'a' * 64}?offset=0&size=99999999999999", b"x", 413),
        ("PUT", f"/snapshots/count/objects/{'a' * 64}?offset=1&size=2", b"x", 409),
        ("PUT", f"/snapshots/count/objects/{'a' * 64}?offset=0&size=1", b"xy", 413),
        ("PUT", f"/snapshots/count/objects/{'a' * 64}?offset=0&size=1", b"x", 422),
        ("PUT", "/snapshots/count/objects/..?offset=0&size=1", b"x", 400),
        ("PUT", "/snapshots/count/objects/%2e%2e%2fx?offset=0&size=1", b"x", 404),
        ("PUT", "/snapshots/count/objects/xyz?offset=0&size=1", b"x", 400),
        ("GET", f"/snapshots/count/objects/{'a' * 64}", b"", 404),
        ("GET", "/snapshots/count/manifests?limit=x", b"", 400),
        ("GET", "/snapshots/count", b"", 405),
        ("DELETE", "/snapshots/..", b"", 400),
    ],
)
def test_questions_that_make_no_sense_are_refused(
    node: Node, method: str, path: str, body: bytes, status: int
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", node.served.port, timeout=60)
    connection.request(method, path, body, {"Authorization": f"Bearer {TOKEN}"})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    assert answer.status == status, content
    assert set(json.loads(content)) == {"error"}
    assert all(path.name.endswith(".part") for path in node.folder.rglob("*") if path.is_file())


def test_bodies_that_are_too_large_are_refused_at_once_or_on_the_way(node: Node) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", node.served.port, timeout=60)
    connection.putrequest("POST", f"/snapshots/{JOB}/objects")
    connection.putheader("Authorization", f"Bearer {TOKEN}")
    connection.putheader("Content-Length", str(MOST_BODY + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()

    def chunks() -> Iterator[bytes]:
        for _ in range(MOST_BODY // 500_000 + 2):
            yield b"x" * 500_000

    assert node.http.post(f"/snapshots/{JOB}/objects", content=chunks()).status_code == 413
    # A small body can be a large one.
    import zlib

    bomb = zlib.compress(b" " * (300 << 20), 9)
    answer = node.http.post(
        f"/snapshots/{JOB}/missing", content=bomb, headers={"Content-Encoding": "deflate"}
    )
    assert answer.status_code == 400


def test_objects_of_a_body_that_is_cut_off_are_kept(node: Node) -> None:
    small = [b"%d" % number for number in range(100)]
    body = b"".join(frame(sha(each), each) for each in small)
    with socket.create_connection(("127.0.0.1", node.served.port)) as connection:
        head = (
            f"POST /snapshots/{JOB}/objects HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        )
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[: len(body) // 2])
        # The server has read it when it has answered somebody who asked later.
        node.http.get(f"/snapshots/{JOB}/manifests")
    pieces = [SnapshotFile("", sha(each), len(each)) for each in small]
    eventually("some of the objects are kept", lambda: len(node.store.missing(JOB, pieces)) in range(1, 60))


def test_a_range_is_the_rest_of_an_object(node: Node) -> None:
    data = os.urandom(100_000)
    assert upload(node.store, data, 0, len(data), name=sha(data))
    path = f"/snapshots/{JOB}/objects/{sha(data)}"
    for first in (1, 50_000, 99_999):
        answer = node.http.get(path, headers={"Range": f"bytes={first}-"})
        assert (answer.status_code, answer.content) == (206, data[first:])
        assert answer.headers["content-range"] == f"bytes {first}-99999/100000"
    assert node.http.get(path, headers={"Range": "bytes=0-"}).content == data
    for bad in ("bytes=100001-", "bytes=-5", "bytes=1-2", "lines=1-", ""):
        answer = node.http.get(path, headers={"Range": bad})
        assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */100000")


def test_a_worker_that_was_succeeded_is_told_so(node: Node) -> None:
    home = home_at(0)
    node.client.send(manifest_of(home, 0, revision=2), Files(home))
    with pytest.raises(NodeRequestError, match="412: job 'count': revision 1") as raised:
        node.client.send(manifest_of(home, 1, revision=1), Files(home))
    assert not raised.value.again


def test_a_store_that_lost_something_gets_it_again(node: Node) -> None:
    home = home_at(0)
    node.client.send(manifest_of(home, 0), Files(home))
    node.store.path(JOB, sha(b"{}")).unlink()
    # The client believes that the store has it all, until it hears otherwise.
    assert node.client.send(manifest_of(home, 1), Files(home)).objects == 1
    node.client.forget(JOB, revision=9, attempt=1)
    assert not (node.folder / JOB).exists()
    assert node.client.send(manifest_of(home, 2), Files(home)).objects > 5


def altered(data: bytes) -> bytes:
    """Return random data with another last byte, whatever that was."""
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("damage", ["missing", "torn", "altered"])
@pytest.mark.parametrize("size", [100, LARGE])
def test_what_a_store_has_lost_is_found_out(node: Node, tmp_path: Path, damage: str, size: int) -> None:
    homes = [home_at(0, large=size), home_at(1, large=size)]
    for batch, home in enumerate(homes):
        node.client.send(manifest_of(home, batch), Files(home))
    path = node.store.path(JOB, sha(homes[1]["logs/in/p00001/00000000000000000000.seg"]))
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[: size // 2] if damage == "torn" else altered(content))
    newest = node.client.manifests(JOB).manifests[0]
    with pytest.raises(SnapshotMissingError if damage == "missing" else SnapshotDamagedError):
        node.client.fetch(JOB, newest, tmp_path / "into")
    home_folder = tmp_path / "kept" / "home"
    made = restore(home_folder, JOB, client=node.client, revision=3)
    assert (made.number, made.batch, len(made.skipped)) == (1, 0, 1)
    assert content_of(home_folder) == homes[0]
    for number in (1, 2):
        (node.folder / JOB / "manifests" / f"{number:012d}.json").write_bytes(b"torn")
    with pytest.raises(NoCompleteSnapshotError) as raised:
        restore(home_folder, JOB, client=node.client, revision=4)
    assert len(raised.value.reasons) == 2
    assert content_of(home_folder) == homes[0]


def test_what_an_earlier_try_left_is_used_but_not_believed(node: Node, tmp_path: Path) -> None:
    home = home_at(0, large=LARGE)
    large = home["logs/in/p00001/00000000000000000000.seg"]
    node.client.send(manifest_of(home, 0), Files(home))
    objects = tmp_path / "kept" / "restoring" / "objects"
    objects.mkdir(parents=True)
    for left in (large[:2_000_000], b"?" * 2_000_000, large + b"?"):
        (objects / f"{sha(large)}.part").write_bytes(left)
        before = node.client.fetched
        node.client.fetch(JOB, node.client.manifests(JOB).manifests[0], objects)
        expected = LARGE - 2_000_000 if left == large[:2_000_000] else LARGE
        assert node.client.fetched - before in range(expected, LARGE + 1_010_000)
        assert (objects / sha(large)).read_bytes() == large
        (objects / sha(large)).unlink()
    (objects / sha(large)).write_bytes(altered(large))
    restore(tmp_path / "kept" / "home", JOB, client=node.client, revision=1)
    assert content_of(tmp_path / "kept" / "home") == home


def test_sending_and_fetching_can_be_stopped(node: Node, tmp_path: Path) -> None:
    home = home_at(0, large=LARGE)
    stop = threading.Event()
    files = Files(home)

    def opened(piece: SnapshotFile) -> BinaryIO:
        stop.set()
        return files(piece)

    with pytest.raises(TransferStoppedError):
        node.client.send(manifest_of(home, 0), opened, stop)
    stop.clear()
    node.client.send(manifest_of(home, 0), files, stop)
    stop.set()
    with pytest.raises(TransferStoppedError):
        node.client.fetch(JOB, manifest_of(home, 0), tmp_path / "into", stop)


def test_the_rate_is_kept_to(node: Node, tmp_path: Path) -> None:
    """On a clock of its own, so that a slow machine does not matter."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    home = home_at(0, large=LARGE)
    with SnapshotClient(node.url, TOKEN, rate=1_000_000, clock=lambda: now[0], sleep=sleep) as client:
        client.send(manifest_of(home, 0), Files(home))
        assert 2.7 <= now[0] <= 3.0
        now[0] = 100.0
        client.fetch(JOB, manifest_of(home, 0), tmp_path / "into")
        assert 102.7 <= now[0] <= 103.0


@pytest.mark.parametrize(("idle", "connections"), [(60.0, 1), (0.01, 2)])
def test_an_idle_connection_is_replaced(
    node: Node, relay: Relay, monkeypatch: pytest.MonkeyPatch, idle: float, connections: int
) -> None:
    monkeypatch.setattr(node_client, "_IDLE", idle)
    with SnapshotClient(relay.url, TOKEN, timeout=60) as client:
        client.manifests(JOB)
        time.sleep(0.1)
        client.manifests(JOB)
    assert relay.accepted == connections


def _answer(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class Liar:
    """A server that is no agent: it answers whatever is asked with the same."""

    def __init__(self, answer: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._answer = answer
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, suppress(OSError):
                    _read_request(connection)
                    connection.sendall(self._answer)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)


def _read_request(connection: socket.socket) -> None:
    """Read all of a request: who closes a connection with something unread in it resets it."""
    request = b""
    while b"\r\n\r\n" not in request and (more := connection.recv(65536)):
        request += more
    head, _, body = request.partition(b"\r\n\r\n")
    told = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    missing = (int(told[1]) if told else 0) - len(body)
    while missing > 0 and (more := connection.recv(65536)):
        missing -= len(more)


@pytest.mark.parametrize(
    ("answer", "reason", "again"),
    [
        (b"garbage\r\n\r\n", "does not answer", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", "does not answer", True),
        (_answer(b"hello"), "no JSON", False),
        (_answer(b"[]"), "list of snapshots|the number of|list of missing objects", False),
        (_answer(b"{}", "503 Busy"), "503: no reason was given", True),
        (_answer(b"{}", "507 Full"), "507", True),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "302", False),
    ],
)
def test_the_client_trusts_no_answer(answer: bytes, reason: str, again: bool) -> None:
    home = home_at(0)
    calls: tuple[Callable[[SnapshotClient], object], ...] = (
        lambda client: client.manifests(JOB),
        lambda client: client.send(manifest_of(home, 0), Files(home)),
    )
    with Liar(answer) as url:
        for call in calls:
            # A client of its own: that the liar has hung up may not have been heard when another call begins.
            with SnapshotClient(url, TOKEN, timeout=60) as client:
                with pytest.raises(NodeRequestError, match=reason) as raised:
                    call(client)
                assert raised.value.again == again


def test_the_client_says_who_does_not_answer() -> None:
    with (
        SnapshotClient("http://127.0.0.1:1", TOKEN, timeout=0.5) as client,
        pytest.raises(NodeRequestError, match=r"127\.0\.0\.1:1 does not answer") as raised,
    ):
        client.manifests(JOB)
    assert raised.value.again
    for url in ("no url", "file:///etc/passwd", "http://[bad", "https://x", "http://a@b", "http://h:99999"):
        with pytest.raises(NodeRequestError, match="not a supervisor's URL") as raised:
            SnapshotClient(url, TOKEN)
        assert not raised.value.again


class Pauses:
    """Tells how long a thread that wants nothing but to look at the clock did not get to it.

    That is what this machine and this process cost, whatever the others in it do.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        seen = time.monotonic()
        while not self._enough.wait(0.01):
            now = time.monotonic()
            self.longest = max(self.longest, now - seen)
            seen = now

    def __enter__(self) -> Pauses:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()


def test_the_agent_answers_others_while_it_keeps_a_large_object(node: Node) -> None:
    """Digests and disks are for threads: whether a node lives is answered meanwhile."""
    data = os.urandom(1 << 20) * 60
    manifest = manifest_of({"a": data}, 0)
    thread = threading.Thread(target=node.client.send, args=(manifest, Files({"a": data})))
    thread.start()
    slowest = 0.0
    with Pauses() as pauses:
        while thread.is_alive():
            begun = time.monotonic()
            assert node.http.get("/livez").status_code == 200
            slowest = max(slowest, time.monotonic() - begun)
    thread.join()
    assert node.store.manifests(JOB).manifests
    assert slowest < 1.0 + 2 * pauses.longest


def test_sending_and_restoring_load_nothing_heavy() -> None:
    """They are part of every worker whose data is with its node, and partly of every supervisor."""
    code = (
        "import sys, penstock.backups.snapshots.snapshot_restore, penstock.web.snapshot_routes;"
        "print(*sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    heavy = {"httpx", "fastapi", "pydantic", "pyspark", "pandas", "numpy", "pyarrow"}
    assert heavy & set(run.stdout.split()) == set()


def test_digests_are_those_of_the_content(node: Node) -> None:
    home = home_at(3, large=LARGE)
    node.client.send(manifest_of(home, 3), Files(home))
    for path in (node.folder / JOB / "objects").rglob("*"):
        if path.is_file():
            assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
