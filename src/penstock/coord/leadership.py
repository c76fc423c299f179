"""Who leads, and how the store is kept from taking orders of one who did.

A master that gets the lock raises the epoch and remembers which version the node then has. Everything it
writes as the leader is a transaction that checks that version. Another leader changes it, so that whoever was
paused for longer than its session can write nothing more, whatever it believes of itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from penstock.cluster.codec import DocumentError, decode, encode
from penstock.cluster.documents import Epoch
from penstock.coord.lock import Lock
from penstock.coord.paths import EPOCH, LEADER
from penstock.coord.store import (
    Check,
    ConflictError,
    ExistsError,
    Operation,
    Store,
    Watcher,
)


class Leadership:
    """One master's way to lead.

    FOLLOWING → LEADING with :meth:`campaign`, when nobody has the lock; LEADING → FOLLOWING when a write was
    refused (:class:`ConflictError` on the epoch), when the lock is gone, or with :meth:`resign`.
    """

    def __init__(self, store: Store, name: str, url: str) -> None:
        self._store = store
        self._lock = Lock(store, LEADER, name.encode())
        self._name = name
        self._url = url
        self._term: tuple[Epoch, int] | None = None
        self._waiting = False
        """Whether the lock is another's and watched: until the watch fires there is nothing to ask."""

    @property
    def epoch(self) -> Epoch | None:
        """The epoch in which this master leads; None while it does not, as far as it knows."""
        return self._term[0] if self._term else None

    def campaign(self, now: float, watch: Watcher) -> Epoch | None:
        """Lead if nobody else does; return the epoch, or None: ``watch`` is called when that may change."""
        if self._term is not None:
            if self._lock.held():
                return self._term[0]
            self._term = None
        if self._waiting:
            return None
        self._waiting = True

        def may_be_free() -> None:
            self._waiting = False
            watch()

        try:
            if not self._lock.try_acquire(may_be_free):
                return None
        except Exception:
            # No watch is certain to be set, so the next call has to ask again.
            self._waiting = False
            raise
        self._waiting = False
        known = self._store.get(EPOCH)
        if known is None:
            with suppress(ExistsError):  # Another has led meanwhile, for the first time as well.
                self._store.create(EPOCH, encode(Epoch(0, "", "", now)))
            known = self._store.get(EPOCH)
            assert known is not None
        try:
            before = decode(Epoch, known.data)
        except DocumentError:
            # A master of a later version can read it: it must not wait for this one.
            self._lock.release()
            raise
        epoch = Epoch(before.number + 1, self._name, self._url, now, lists_jobs=True)
        version = self._store.set(EPOCH, encode(epoch), version=known.version)
        self._term = (epoch, version)
        return epoch

    def write(self, operations: Sequence[Operation]) -> None:
        """Write as the leader. Raises ConflictError when this master leads no more, or a node has changed."""
        fence = self.fence()
        try:
            self._store.transact([fence, *operations])
        except ConflictError:
            known = self._store.get(EPOCH)
            if known is None or known.version != fence.version:
                self._term = None
            raise

    def fence(self) -> Check:
        """Return what must hold when this master writes as the leader. Raises ConflictError otherwise."""
        term = self._term
        if term is None:
            raise ConflictError("this master does not lead")
        return Check(EPOCH, term[1])

    def resign(self) -> None:
        """Let another master lead."""
        self._term = None
        self._lock.release()
