"""Leader election and fencing: a lock that lasts as long as a session, and an epoch that each leader raises.

Every write of a leader checks the version of the epoch, so that a leader that was paused beyond its session
cannot write. It must not know what is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from penstock.cluster.document_codec import DocumentError, decode, encode
from penstock.cluster.node_documents import Epoch
from penstock.coord.coordination_store import (
    Check,
    ConflictError,
    DisconnectedError,
    ExistsError,
    MissingError,
    Operation,
    Session,
    Store,
    Watcher,
)
from penstock.coord.store_paths import EPOCH, LEADER


class Lock:
    """An ephemeral node that one session can have.

    - free → held: ``try_acquire`` created the node, and returns True.
    - held by another → free: its session ended, or it called ``release``. The watch that ``try_acquire`` was
      given fires.
    - held → unknown: the connection broke. ``held`` is False, and the node is still there: nobody else gets
      it before the session expires.
    - unknown → held: the connection came back in time.
    - unknown → lost: the session expired; the node is gone, another may have the lock. ``try_acquire`` again.

    What an earlier session of this process left counts as somebody else's: it goes away when that session
    expires. Whoever holds a lock can lose it between asking and acting (a paused process does): what must not
    happen twice is checked by the store itself, in a transaction.
    """

    def __init__(self, store: Store, path: str, holder: bytes) -> None:
        self._store = store
        self._path = path
        self._holder = holder

    def try_acquire(self, watch: Watcher) -> bool:
        """Take the lock if it is free or this session's; else ``watch`` fires when it may be free.

        Raises DisconnectedError; the node may then be there or not, and the next call finds out.
        """
        while True:
            try:
                self._store.create(self._path, self._holder, ephemeral=True)
            except ExistsError:
                node = self._store.get(self._path, watch)
                if node is None:
                    continue
                return node.owner != 0 and node.owner == self._store.session_id
            return True

    def held(self) -> bool:
        """Whether this session has the lock; False while nobody can say."""
        session_id = self._store.session_id
        if self._store.session is not Session.CONNECTED or session_id == 0:
            return False
        try:
            node = self._store.get(self._path)
        except DisconnectedError:
            return False
        return node is not None and node.owner == session_id == self._store.session_id

    def release(self) -> None:
        """Give the lock back if this session has it. Raises DisconnectedError."""
        node = self._store.get(self._path)
        if node is not None and node.owner != 0 and node.owner == self._store.session_id:
            try:
                self._store.delete(self._path, version=node.version)
            except MissingError:
                return


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
