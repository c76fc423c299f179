"""ZooKeeper servers die, hang and come back; so do those who use them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from store_support import Calls, gets
from zookeeper_servers import PASSWORD, ZooKeeperServers

from penstock.coord.coordination_store import DisconnectedError, Session
from penstock.coord.embedded_zookeeper import EmbeddedZooKeeper
from penstock.coord.leadership import Lock
from penstock.coord.zookeeper_store import ZooKeeperStore
from penstock.errors import SettingError
from support.nobody import run_as_nobody
from support.paused_processes import pause
from support.waiting import DEADLINE, eventually

LONG = 20.0
"""Seconds of a session that must not end because this process, or a server, got no time for a while."""
SHORT = 10.0
"""Seconds of a session that would end while the servers are away, if they counted that time."""

_STRANGER = Path(__file__).with_name("quorum_stranger.py")

_HOLDER = """
import os, sys, threading
from penstock.coord.leadership import Lock
from penstock.coord.zookeeper_store import ZooKeeperStore
store = ZooKeeperStore.connect(sys.argv[1], os.environ["PASSWORD"], root=sys.argv[2], session_seconds=5.0)
store.listen(lambda session: print(session.value, flush=True))
print(Lock(store, "/leader", b"helper").try_acquire(lambda: None), flush=True)
threading.Event().wait()
"""


@contextmanager
def _running(server: EmbeddedZooKeeper) -> Iterator[EmbeddedZooKeeper]:
    try:
        server.start()
        server.wait_ready(timeout=DEADLINE)
        yield server
    finally:
        for pid in server.pids().values():
            os.kill(pid, signal.SIGCONT)
        server.stop()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    with _running(EmbeddedZooKeeper(tmp_path_factory.mktemp("three"), servers=3, hosts=hosts)) as servers:
        yield servers


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with _running(EmbeddedZooKeeper(tmp_path_factory.mktemp("one"))) as server:
        yield server


def _write(store: ZooKeeperStore, path: str) -> None:
    """Write as a daemon does: whether a write happened that was not answered is seen by reading."""

    def written() -> bool:
        with suppress(DisconnectedError):
            if store.get(path) is not None:
                return True
            store.create(path)
        return False

    eventually(f"{path} is written", written)


def test_each_of_three_servers_can_die_and_be_started_again(three: EmbeddedZooKeeper) -> None:
    servers = ZooKeeperServers(three.connect_string)
    try:
        store = servers.open(session_seconds=LONG)
        store.create("/nodes/a", ephemeral=True)
        session_id = store.session_id
        heard: list[Session] = []
        store.listen(heard.append)
        for number in three.numbers:
            before = three.pids()
            os.kill(before[number], signal.SIGKILL)
            for item in range(20):
                _write(store, f"/after-{number}/{item}")
            eventually("it is dead", lambda number=number: number not in three.pids())  # type: ignore[misc]
            three.start(number)
            three.wait_ready(number, timeout=DEADLINE)
            after = three.pids()
            assert after[number] != before.pop(number)
            assert before.items() <= after.items()
        assert store.session_id == session_id
        assert Session.LOST not in heard
        assert gets(store, "/nodes/a").owner == session_id
        for number in three.numbers:
            assert len(store.children(f"/after-{number}")) == 20
    finally:
        servers.close()


def test_all_servers_listen_on_loopback_only(three: EmbeddedZooKeeper) -> None:
    for number, pid in three.pids().items():
        address = three.addresses[number - 1]
        connections = psutil.Process(pid).net_connections()
        listening = {tuple(c.laddr) for c in connections if c.status == psutil.CONN_LISTEN}
        expected = {(address.host, address.client), (address.host, address.election)}
        assert listening - {(address.host, address.peer)} == expected


def test_a_stranger_gets_nothing_from_the_ports_between_servers(three: EmbeddedZooKeeper) -> None:
    servers = ZooKeeperServers(three.connect_string)
    try:
        store = servers.open(session_seconds=LONG)
        store.create("/jobs/hidden", b"only for those who have the key")
        addresses = [f"{each.host}:{each.peer}:{each.election}" for each in three.addresses]
        told = json.loads(run_as_nobody(_STRANGER.read_text(), "only for those", *addresses))
        peers = [told[f"{each.host}:{each.peer}"] for each in three.addresses]
        elections = {told[f"{each.host}:{each.election}"] for each in three.addresses}
        assert sorted(peers) == ["nobody listens", "nobody listens", "refused after 0 bytes"], "the leader"
        assert elections == {"refused after 0 bytes"}
        assert gets(store, "/jobs/hidden").data == b"only for those who have the key"
    finally:
        servers.close()


def test_the_secret_of_the_servers_is_private_and_on_no_command_line(three: EmbeddedZooKeeper) -> None:
    secret = (three.folder / "quorum.key").read_text().strip()
    for number, pid in three.pids().items():
        jaas = three.folder / f"server-{number}" / "quorum.jaas"
        assert secret in jaas.read_text()
        assert jaas.stat().st_mode & 0o077 == 0
        assert secret not in " ".join(psutil.Process(pid).cmdline())
    assert (three.folder / "quorum.key").stat().st_mode & 0o077 == 0


def test_nothing_is_lost_when_all_servers_are_away_for_some_seconds(three: EmbeddedZooKeeper) -> None:
    servers = ZooKeeperServers(three.connect_string)
    try:
        store = servers.open(session_seconds=SHORT)
        store.create("/nodes/a", b"here", ephemeral=True)
        store.create("/jobs/a", b"job")
        session_id = store.session_id
        heard: list[Session] = []
        store.listen(heard.append)
        fired = Calls()
        store.get("/jobs/a", fired)
        lock = Lock(store, "/leader", b"me")
        assert lock.try_acquire(Calls())
        three.stop()
        assert three.pids() == {}
        eventually("the store is suspended", lambda: store.session is Session.SUSPENDED)
        eventually("the watch fires", lambda: fired.count == 1)
        eventually("the listener hears of it", lambda: heard[-1:] == [Session.SUSPENDED])
        # It may have found another of the three before that one ended as well.
        del heard[:]
        # While there are servers they may take their time: only now is it a matter of how long a call waits.
        store._timeout = 1.0
        assert not lock.held()
        away = time.monotonic()
        waited = []
        while time.monotonic() < away + SHORT + 2:
            began = time.monotonic()
            with pytest.raises(DisconnectedError):
                store.get("/jobs/a")
            with pytest.raises(DisconnectedError):
                store.set("/jobs/a", b"must not arrive later")
            waited.append(time.monotonic() - began)
        # One of them may have met a machine that stood still.
        assert sorted(waited)[-2] < 3.0, waited
        store._timeout = 10.0
        three.start()
        three.wait_ready(timeout=DEADLINE)
        eventually("the store is connected", lambda: heard == [Session.CONNECTED])
        assert store.session_id == session_id
        assert gets(store, "/nodes/a").owner == session_id
        assert lock.held()
        assert gets(store, "/jobs/a").data == b"job"
    finally:
        servers.close()


def test_no_call_waits_for_a_server_that_hangs(one: EmbeddedZooKeeper) -> None:
    servers = ZooKeeperServers(one.connect_string)
    try:
        # Kazoo itself gives a silent server up after two thirds of a session: later than is allowed below.
        store = servers.open(session_seconds=15.0)
        store._timeout = 1.0
        pause(one.pids()[1])
        began = time.monotonic()
        with pytest.raises(DisconnectedError):
            store.create("/a")
        assert time.monotonic() - began < 8.0
        eventually("the store sees that nobody answers", lambda: store.session is Session.SUSPENDED)
        began = time.monotonic()
        with pytest.raises(DisconnectedError):
            store.get("/a")
        other = ZooKeeperServers(one.connect_string)
        with pytest.raises(DisconnectedError):
            other.open(timeout=1.0, session_seconds=LONG)
        assert time.monotonic() - began < 12.0
        os.kill(one.pids()[1], signal.SIGCONT)
        eventually("the store is connected", lambda: store.session is Session.CONNECTED)
        began = time.monotonic()
        pause(one.pids()[1])
        store.close()
        assert time.monotonic() - began < 8.0
    finally:
        os.kill(one.pids()[1], signal.SIGCONT)
        servers.close()


def test_a_holder_that_is_paused_past_its_session_hears_that_it_lost_it(one: EmbeddedZooKeeper) -> None:
    servers = ZooKeeperServers(one.connect_string)
    store = servers.open(session_seconds=LONG)
    helper = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, one.connect_string, servers.root],
        env={**os.environ, "PASSWORD": PASSWORD},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert helper.stdout is not None
        assert helper.stdout.readline() == "True\n"
        woken = Calls()
        lock = Lock(store, "/leader", b"me")
        assert not lock.try_acquire(woken)
        helper.send_signal(signal.SIGSTOP)
        eventually("the lock is free", lambda: woken.count == 1)
        assert lock.try_acquire(Calls())
        helper.send_signal(signal.SIGCONT)
        assert [helper.stdout.readline().strip() for _ in range(3)] == ["suspended", "lost", "connected"]
        assert lock.held()
    finally:
        helper.kill()
        helper.wait()
        assert helper.stdout is not None
        helper.stdout.close()
        servers.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_store_outlives_an_error_inside_its_client(one: EmbeddedZooKeeper) -> None:
    servers = ZooKeeperServers(one.connect_string)
    try:
        store = servers.open(session_seconds=LONG)
        heard: list[Session] = []
        store.listen(heard.append)
        client = store._client
        # No request is like this: kazoo's thread raises, and ends.
        client._queue.append((object(), None))
        client._connection._write_sock.send(b"\0")
        eventually("it has a new session", lambda: heard == [Session.LOST, Session.CONNECTED])
        store.create("/a")
    finally:
        servers.close()


def test_servers_are_found_again_by_their_folder(one: EmbeddedZooKeeper) -> None:
    store = ZooKeeperStore.connect(one.connect_string, PASSWORD)
    store.create("/a", b"kept")
    store.close()
    again = EmbeddedZooKeeper(one.folder)
    assert again.connect_string == one.connect_string
    again.start()
    assert again.pids() == one.pids()
    again.stop()
    assert one.pids() == {}
    again.start()
    again.wait_ready(timeout=DEADLINE)
    store = ZooKeeperStore.connect(one.connect_string, PASSWORD)
    assert gets(store, "/a").data == b"kept"
    store.close()


def test_a_server_that_cannot_start_says_why(one: EmbeddedZooKeeper, tmp_path: Path) -> None:
    """The last test of this module with this server, whose folder it damages."""
    with pytest.raises(SettingError, match="cannot use"):
        EmbeddedZooKeeper(tmp_path / "other", ports=[one.addresses[0].client])
    one.stop()
    (one.folder / "server-1" / "data" / "version-2").rename(tmp_path / "moved")
    (one.folder / "server-1" / "data" / "version-2").write_text("not a folder")
    one.start()
    with pytest.raises(SettingError, match="server 1 ended"):
        one.wait_ready(timeout=DEADLINE)
