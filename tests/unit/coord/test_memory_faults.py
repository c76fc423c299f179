"""Sessions in memory end, pause and come back as a simulation wants it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from store_support import Calls, gets

from penstock.coord.coordination_store import ConflictError, Create, DisconnectedError, ExistsError, Session
from penstock.coord.leadership import Lock
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore


@pytest.fixture
def ensemble() -> MemoryEnsemble:
    return MemoryEnsemble()


def _heard(store: MemoryStore) -> list[Session]:
    heard: list[Session] = []
    store.listen(heard.append)
    return heard


def test_a_session_that_is_not_touched_for_its_time_ends(ensemble: MemoryEnsemble) -> None:
    dead, living, busy = (MemoryStore(ensemble, session_seconds=6.0) for _ in range(3))
    for name, store in (("dead", dead), ("living", living), ("busy", busy)):
        store.create(f"/nodes/{name}", ephemeral=True)
    for now in range(1, 6):
        living.heartbeat()
        busy.get("/")
        ensemble.advance(now)
    assert busy.children("/nodes") == ["busy", "dead", "living"]
    ensemble.advance(6)
    assert busy.children("/nodes") == ["busy", "living"]
    assert len(ensemble.sessions) == 2


def test_a_paused_store_believes_in_its_session_until_it_asks(ensemble: MemoryEnsemble) -> None:
    store, other = MemoryStore(ensemble), MemoryStore(ensemble)
    lock = Lock(store, "/leader", b"paused")
    assert lock.try_acquire(Calls())
    fired = Calls()
    store.get("/leader", fired)
    heard = _heard(store)
    ensemble.advance(5)
    other.heartbeat()
    ensemble.advance(6)
    assert other.get("/leader") is None
    assert (store.session, heard, fired.count) == (Session.CONNECTED, [], 0)
    with pytest.raises(DisconnectedError, match="expired"):
        store.transact([Create("/late", b"")])
    assert other.get("/late") is None
    assert heard == [Session.LOST, Session.CONNECTED]
    assert fired.count == 1
    assert not lock.held()
    assert lock.try_acquire(Calls())


def test_a_heartbeat_finds_out_that_the_session_ended(ensemble: MemoryEnsemble) -> None:
    store = MemoryStore(ensemble)
    heard = _heard(store)
    ensemble.advance(100)
    store.heartbeat()
    assert heard == [Session.LOST, Session.CONNECTED]
    assert ensemble.sessions == [store.session_id]


def test_a_store_that_is_cut_off_comes_back_in_time_or_with_a_new_session(ensemble: MemoryEnsemble) -> None:
    store, other = MemoryStore(ensemble), MemoryStore(ensemble, session_seconds=1000)
    lock = Lock(store, "/leader", b"cut off")
    assert lock.try_acquire(Calls())
    heard = _heard(store)
    store.disconnect()
    assert not lock.held()
    for ask in (store.get, store.children, store.create, store.delete):
        with pytest.raises(DisconnectedError):
            ask("/a")
    store.heartbeat()
    ensemble.advance(5)
    store.reconnect()
    assert lock.held()
    assert heard == [Session.SUSPENDED, Session.CONNECTED]
    store.disconnect()
    store.heartbeat()
    ensemble.advance(11)
    assert other.get("/leader") is None
    assert store.session is Session.SUSPENDED
    store.reconnect()
    assert heard[2:] == [Session.SUSPENDED, Session.LOST, Session.CONNECTED]
    assert not lock.held()


def test_servers_that_are_down_end_no_session(ensemble: MemoryEnsemble) -> None:
    store, cut = MemoryStore(ensemble), MemoryStore(ensemble)
    store.create("/nodes/a", ephemeral=True)
    heard = _heard(store)
    fired = Calls()
    store.get("/nodes/a", fired)
    cut.disconnect()
    ensemble.stop()
    assert fired.count == 1
    with pytest.raises(DisconnectedError):
        store.get("/")
    with pytest.raises(DisconnectedError):
        MemoryStore(ensemble)
    ensemble.advance(1000)
    store.reconnect()
    assert store.session is Session.SUSPENDED
    ensemble.start()
    assert heard == [Session.SUSPENDED, Session.CONNECTED]
    assert cut.session is Session.SUSPENDED
    ensemble.advance(1005)
    assert gets(store, "/nodes/a").owner == store.session_id
    assert ensemble.sessions == [store.session_id, cut.session_id]
    ensemble.advance(1006)
    assert ensemble.sessions == [store.session_id]


def test_who_crashes_leaves_its_nodes_until_its_time_is_over(ensemble: MemoryEnsemble) -> None:
    store, other = MemoryStore(ensemble), MemoryStore(ensemble)
    store.create("/nodes/a", ephemeral=True)
    heard, fired = _heard(store), Calls()
    store.get("/b", fired)
    store.crash()
    other.create("/b")
    assert other.children("/nodes") == ["a"]
    ensemble.advance(5)
    other.heartbeat()
    ensemble.advance(6)
    assert other.children("/nodes") == []
    assert (heard, fired.count) == ([], 0)
    assert ensemble.watches().total() == 0


def test_what_is_delivered_can_wait(ensemble: MemoryEnsemble) -> None:
    waiting: list[Callable[[], None]] = []
    store, other = MemoryStore(ensemble, deliver=waiting.append), MemoryStore(ensemble)
    heard, fired = _heard(store), Calls()
    store.get("/a", fired)
    other.create("/a")
    ensemble.expire(store.session_id)
    assert (heard, fired.count, len(waiting)) == ([], 0, 3)
    for deliver in waiting:
        deliver()
    assert (heard, fired.count) == ([Session.LOST, Session.CONNECTED], 1)


def test_a_lock_whose_creation_was_not_answered_is_found_to_be_held(ensemble: MemoryEnsemble) -> None:
    store = MemoryStore(ensemble)
    lock = Lock(store, "/leader", b"me")
    store.lose_next_answer()
    with pytest.raises(DisconnectedError):
        lock.try_acquire(Calls())
    assert lock.try_acquire(Calls())
    assert lock.held()


def test_a_change_whose_answer_is_lost_was_made(ensemble: MemoryEnsemble) -> None:
    store = MemoryStore(ensemble)
    store.create("/a")
    heard, fired = _heard(store), Calls()
    store.get("/b", fired)
    changes: list[Callable[[], object]] = [
        lambda: store.set("/a", b"1"),
        lambda: store.transact([Create("/b", b"")]),
        lambda: store.delete("/b"),
    ]
    for change in changes:
        store.lose_next_answer()
        store.get("/a")
        with pytest.raises(DisconnectedError):
            change()
    assert (gets(store, "/a").data, store.get("/b")) == (b"1", None)
    assert heard == [Session.SUSPENDED, Session.CONNECTED] * 3
    assert fired.count == 1


def test_a_lasting_node_in_its_place_keeps_a_lock_from_all(ensemble: MemoryEnsemble) -> None:
    store = MemoryStore(ensemble)
    store.create("/leader")
    lock = Lock(store, "/leader", b"me")
    assert not lock.try_acquire(Calls())
    lock.release()
    assert store.get("/leader") is not None


def test_many_threads_lose_no_change(ensemble: MemoryEnsemble) -> None:
    MemoryStore(ensemble).create("/counter", b"0")
    created: list[str] = []

    def work() -> None:
        store = MemoryStore(ensemble)
        for _ in range(50):
            while True:
                node = gets(store, "/counter")
                try:
                    store.set("/counter", str(int(node.data) + 1).encode(), version=node.version)
                    break
                except ConflictError:
                    continue
            try:
                store.create(f"/once/{node.data.decode()}")
                created.append(node.data.decode())
            except ExistsError:
                created.append("twice")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gets(MemoryStore(ensemble), "/counter").data == b"200"
    assert len(set(created)) == 200
