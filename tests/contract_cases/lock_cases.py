"""The lock, on every store."""

from __future__ import annotations

from store_support import Calls, Servers, gets

from penstock.coord.coordination_store import Session
from penstock.coord.leadership import Lock
from support.waiting import eventually


class LockCases:
    """One has it, and the next gets it when that one is gone."""

    def test_one_session_has_it_and_may_ask_again(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        lock, rival = Lock(store, "/leader", b"me"), Lock(other, "/leader", b"you")
        assert not lock.held()
        assert lock.try_acquire(Calls())
        assert lock.try_acquire(Calls())
        assert lock.held()
        assert gets(other, "/leader").data == b"me"
        assert not rival.try_acquire(Calls())
        assert not rival.held()

    def test_it_is_free_when_it_is_released(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        lock, rival = Lock(store, "/leader", b"me"), Lock(other, "/leader", b"you")
        assert lock.try_acquire(Calls())
        woken = Calls()
        assert not rival.try_acquire(woken)
        rival.release()
        assert lock.held()
        lock.release()
        assert not lock.held()
        eventually("the rival is woken", lambda: woken.count == 1)
        assert rival.try_acquire(Calls())
        lock.release()
        assert rival.held()

    def test_it_goes_to_the_next_when_the_session_of_its_holder_ends(self, servers: Servers) -> None:
        store, other = servers.open(), servers.open()
        lock, rival = Lock(store, "/leader", b"me"), Lock(other, "/leader", b"you")
        assert lock.try_acquire(Calls())
        first = store.session_id
        woken = Calls()
        assert not rival.try_acquire(woken)
        servers.expire(store)
        eventually("the rival is woken", lambda: woken.count == 1)
        assert rival.try_acquire(Calls())
        eventually(
            "the old holder has a new session",
            lambda: store.session is Session.CONNECTED and store.session_id != first,
        )
        assert not lock.held()
        assert not lock.try_acquire(Calls())
        assert rival.held()

    def test_what_an_earlier_session_left_is_somebody_elses(self, servers: Servers) -> None:
        earlier, store = servers.open(), servers.open()
        assert Lock(earlier, "/leader", b"me").try_acquire(Calls())
        lock = Lock(store, "/leader", b"me")
        woken = Calls()
        assert not lock.try_acquire(woken)
        assert not lock.held()
        earlier.close()
        eventually("it is woken", lambda: woken.count == 1)
        assert lock.try_acquire(Calls())
