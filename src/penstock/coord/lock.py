"""A lock that is held as long as a session lasts."""

from __future__ import annotations

from penstock.coord.store import DisconnectedError, ExistsError, MissingError, Session, Store, Watcher


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
