"""Leader election and fencing: a lock bound to a session, and an epoch that each leader increments.

Every write of a leader checks the version of the epoch node, so that a leader that was paused beyond the end
of its session cannot write.
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
    """A lock: an ephemeral node that belongs to one session.

    - free → held: ``try_acquire`` created the node, and returns True.
    - held by another → free: its session ended, or it called ``release``. The watch passed to
      ``try_acquire`` fires.
    - held → unknown: the connection broke. ``held`` is False, but the node still exists: no other session
      can acquire the lock before this session expires.
    - unknown → held: the connection was restored in time.
    - unknown → lost: the session expired and the node was deleted; another session may have the lock. Call
      ``try_acquire`` again.

    A node of an earlier session of this process counts as another holder's: it is deleted when that session
    expires. A holder can lose the lock between a check and an action, for example when its process is
    paused. So an action that must not happen twice has to be checked by the store, in a transaction.
    """

    def __init__(self, store: Store, path: str, holder: bytes) -> None:
        self._store = store
        self._path = path
        self._holder = holder

    def try_acquire(self, watch: Watcher) -> bool:
        """Acquire the lock if it is free or already this session's; else ``watch`` fires when it may be free.

        Raises DisconnectedError; whether the node was created is then unknown until the next call.
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
        """Return whether this session has the lock; False while that is unknown."""
        session_id = self._store.session_id
        if self._store.session is not Session.CONNECTED or session_id == 0:
            return False
        try:
            node = self._store.get(self._path)
        except DisconnectedError:
            return False
        return node is not None and node.owner == session_id == self._store.session_id

    def release(self) -> None:
        """Release the lock if this session has it. Raises DisconnectedError."""
        node = self._store.get(self._path)
        if node is not None and node.owner != 0 and node.owner == self._store.session_id:
            try:
                self._store.delete(self._path, version=node.version)
            except MissingError:
                return


class Leadership:
    """The leadership of one master.

    FOLLOWING → LEADING by :meth:`campaign`, when the lock is free; LEADING → FOLLOWING when a write was
    rejected (:class:`ConflictError` on the epoch), when the lock was lost, or by :meth:`resign`.
    """

    def __init__(self, store: Store, name: str, url: str) -> None:
        self._store = store
        self._lock = Lock(store, LEADER, name.encode())
        self._name = name
        self._url = url
        self._term: tuple[Epoch, int] | None = None
        self._waiting = False
        """Whether another master has the lock and it is watched: no request until the watch fires."""

    @property
    def epoch(self) -> Epoch | None:
        """The epoch of this master's leadership; None when it does not lead, as far as it knows."""
        return self._term[0] if self._term else None

    def campaign(self, now: float, watch: Watcher) -> Epoch | None:
        """Lead if no other master does; return the epoch, or None. ``watch`` fires when that may change."""
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
            # The watch may not be set, so the next call must try again.
            self._waiting = False
            raise
        self._waiting = False
        known = self._store.get(EPOCH)
        if known is None:
            with suppress(ExistsError):  # Another first leader has created it meanwhile.
                self._store.create(EPOCH, encode(Epoch(0, "", "", now)))
            known = self._store.get(EPOCH)
            assert known is not None
        try:
            before = decode(Epoch, known.data)
        except DocumentError:
            # A master of a later version may be able to read it: let that one lead.
            self._lock.release()
            raise
        epoch = Epoch(before.number + 1, self._name, self._url, now, lists_jobs=True)
        version = self._store.set(EPOCH, encode(epoch), version=known.version)
        self._term = (epoch, version)
        return epoch

    def write(self, operations: Sequence[Operation]) -> None:
        """Write as leader. Raises ConflictError if this master no longer leads or a node has changed."""
        fence = self.fence()
        try:
            self._store.transact([fence, *operations])
        except ConflictError:
            known = self._store.get(EPOCH)
            if known is None or known.version != fence.version:
                self._term = None
            raise

    def fence(self) -> Check:
        """Return the check of a leader's write. Raises ConflictError if this master does not lead."""
        term = self._term
        if term is None:
            raise ConflictError("this master does not lead")
        return Check(EPOCH, term[1])

    def resign(self) -> None:
        """Release the leadership."""
        self._term = None
        self._lock.release()
