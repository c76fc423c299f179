"""Who leads, and that the store takes nothing from one who does not any more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.coord.coordination_store import ConflictError, Create, StoredNode, StoreError, Watcher
from penstock.coord.leadership import Leadership
from penstock.coord.store_paths import EPOCH, LEADER
from penstock.errors import PenstockError
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore


class Candidate:
    """A master's side of an election."""

    def __init__(self, ensemble: MemoryEnsemble, name: str) -> None:
        self.store = MemoryStore(ensemble)
        self.leadership = Leadership(self.store, name, f"http://{name}")
        self.woken = 0

    def campaign(self) -> int | None:
        epoch = self.leadership.campaign(1.0, self._wake)
        return epoch.number if epoch else None

    def _wake(self) -> None:
        self.woken += 1


def test_one_leads_and_the_next_one_has_a_higher_epoch() -> None:
    ensemble = MemoryEnsemble()
    first, second = Candidate(ensemble, "m1"), Candidate(ensemble, "m2")
    assert (first.campaign(), second.campaign()) == (1, None)
    assert first.campaign() == 1, "it leads on"
    first.leadership.resign()
    assert second.woken == 1
    assert (second.campaign(), first.campaign()) == (2, None)


def test_waiting_for_the_lock_leaves_one_watch() -> None:
    ensemble = MemoryEnsemble()
    first, second = Candidate(ensemble, "m1"), Candidate(ensemble, "m2")
    first.campaign()
    for _ in range(5):
        assert second.campaign() is None
    assert sum(ensemble.watches().values()) == 1


def test_a_leader_whose_session_ended_can_write_nothing_more() -> None:
    ensemble = MemoryEnsemble()
    first, second = Candidate(ensemble, "m1"), Candidate(ensemble, "m2")
    first.campaign()
    first.leadership.write([Create("/a", b"")])
    ensemble.expire(first.store.session_id)
    assert second.campaign() == 2
    with pytest.raises(ConflictError):
        first.leadership.write([Create("/b", b"")])
    assert second.store.get("/b") is None
    assert first.leadership.epoch is None
    second.leadership.write([Create("/b", b"")])


def test_a_conflict_about_something_else_does_not_end_a_term() -> None:
    ensemble = MemoryEnsemble()
    first = Candidate(ensemble, "m1")
    first.campaign()
    first.leadership.write([Create("/a", b"")])
    with pytest.raises(ConflictError):
        first.leadership.write([Create("/a", b"")])
    assert first.campaign() == 1


def test_who_does_not_lead_cannot_write() -> None:
    with pytest.raises(ConflictError):
        Candidate(MemoryEnsemble(), "m1").leadership.write([])


class PausedStore(MemoryStore):
    """A store whose process is paused once, after it has found no epoch."""

    def __init__(self, ensemble: MemoryEnsemble, meanwhile: Callable[[], None]) -> None:
        super().__init__(ensemble)
        self._meanwhile: Callable[[], None] | None = meanwhile

    def get(self, path: str, watch: Watcher | None = None) -> StoredNode | None:
        found = super().get(path, watch)
        if path == EPOCH and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        return found


def test_no_epoch_is_given_out_twice_however_the_first_two_meet() -> None:
    ensemble = MemoryEnsemble()
    other = Candidate(ensemble, "m2")

    def meanwhile() -> None:
        ensemble.expire(store.session_id)
        other.campaign()

    store = PausedStore(ensemble, meanwhile)
    late = Leadership(store, "m1", "")
    epoch = late.campaign(1.0, lambda: None)
    assert other.leadership.epoch is not None
    assert epoch is None or epoch.number > other.leadership.epoch.number


class RefusingStore(MemoryStore):
    """A store that refuses once to create something, though it is connected."""

    refuses = True

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        if self.refuses:
            self.refuses = False
            raise StoreError("not now")
        super().create(path, data, ephemeral=ephemeral)


def test_who_met_an_error_of_the_store_tries_again() -> None:
    leadership = Leadership(RefusingStore(MemoryEnsemble()), "m1", "")
    with pytest.raises(StoreError, match="not now"):
        leadership.campaign(1.0, lambda: None)
    assert leadership.campaign(2.0, lambda: None) is not None


def test_who_cannot_read_the_epoch_leaves_the_lock_to_another() -> None:
    ensemble = MemoryEnsemble()
    first, second = Candidate(ensemble, "m1"), MemoryStore(ensemble)
    second.create(EPOCH, b'{"schema": 2}')
    with pytest.raises(PenstockError, match="schema 2"):
        first.campaign()
    assert second.get(LEADER) is None
