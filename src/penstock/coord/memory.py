"""The store in memory: for unit tests, and for simulations in one thread with a clock that is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from penstock.coord.ensemble import MemoryEnsemble
from penstock.coord.names import check_operations, check_path, check_size, parent_of
from penstock.coord.store import (
    Create,
    Delete,
    DisconnectedError,
    Operation,
    Put,
    Read,
    Session,
    StoredNode,
    Watcher,
)
from penstock.coord.tree import Kind

__all__ = ["MemoryEnsemble", "MemoryStore"]


def _at_once(watcher: Watcher) -> None:
    watcher()


class MemoryStore:
    """A session with a :class:`MemoryEnsemble`; it behaves as that of ZooKeeper does.

    ``deliver`` gets every call of a watcher or a listener, and may make it later. The faults of a simulation:
    ``disconnect``, ``reconnect`` and ``lose_next_answer`` for the network, ``crash`` for the process. One
    that is paused just does nothing, not even ``heartbeat``, and hears that its session is lost when it
    touches the store again.

    >>> ensemble = MemoryEnsemble()
    >>> mine, yours = MemoryStore(ensemble), MemoryStore(ensemble)
    >>> mine.create("/nodes/a", b"here", ephemeral=True)
    '/nodes/a'
    >>> ensemble.expire(mine.session_id)
    >>> yours.children("/nodes")
    []
    """

    def __init__(
        self,
        ensemble: MemoryEnsemble,
        *,
        session_seconds: float = 6.0,
        deliver: Callable[[Watcher], None] = _at_once,
    ) -> None:
        self._ensemble = ensemble
        self._seconds = session_seconds
        self._deliver = deliver
        self._listeners: list[Callable[[Session], None]] = []
        self._cut = False
        self._lose_answer = False
        with ensemble._changing():
            if not ensemble.running:
                raise DisconnectedError("the servers are down")
            self._session_id = ensemble._open(self, session_seconds)
            self._session = Session.CONNECTED
            ensemble._join(self)

    @property
    def session(self) -> Session:
        """How the session stands, as far as this side has heard."""
        return self._session

    @property
    def session_id(self) -> int:
        """The id of the session; 0 while there is none."""
        return self._session_id

    def listen(self, listener: Callable[[Session], None]) -> None:
        """Have a function called when the session stands otherwise."""
        self._listeners.append(listener)

    def get(self, path: str, watch: Watcher | None = None) -> StoredNode | None:
        """Return a node, None when there is none."""
        check_path(path)
        with self._asking():
            self._watch(Kind.DATA, path, watch)
            return self._ensemble.tree.get(path)

    def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """Return the names below a node, sorted; none when it is not there."""
        check_path(path)
        with self._asking():
            self._watch(Kind.CHILDREN, path, watch)
            return self._ensemble.tree.children(path)

    def get_many(self, reads: Sequence[Read]) -> Iterator[StoredNode | None]:
        """Yield several nodes, None for those that are not there."""
        for path, watch in reads:
            yield self.get(path, watch)

    def children_many(self, reads: Sequence[Read]) -> Iterator[list[str]]:
        """Yield the names below several nodes."""
        for path, watch in reads:
            yield self.children(path, watch)

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        """Create a node, and lasting empty ones above it as needed; return its path."""
        check_path(path)
        check_size(path, data)
        with self._changing():
            tree = self._ensemble.tree
            for above in tree.missing_above(path):
                self._change(Create(above, b""))
            if sequence:
                path += f"{tree.next_number(parent_of(path)):010d}"
            self._change(Create(path, data, ephemeral))
            return path

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        """Set a node's data and return its new version."""
        check_path(path)
        check_size(path, data)
        with self._changing():
            self._change(Put(path, data, version))
            node = self._ensemble.tree.get(path)
            assert node is not None
            return node.version

    def delete(self, path: str, *, version: int | None = None) -> None:
        """Delete a node."""
        check_path(path)
        with self._changing():
            self._change(Delete(path, version))

    def transact(self, operations: Sequence[Operation]) -> None:
        """Do all of it or nothing."""
        check_operations(operations)
        with self._changing():
            self._ensemble._announce(self._ensemble.tree.transact(operations, owner=self._session_id))

    def close(self) -> None:
        """End the session. Its ephemeral nodes are gone, at once if the servers can be reached."""
        with self._ensemble._changing():
            if self._session is Session.CLOSED:
                return
            connected = self._session is Session.CONNECTED
            self._quit()
            if connected and self._ensemble._touch(self._session_id):
                self._ensemble._end(self._session_id)
            self._session_id = 0
            self._tell()

    def heartbeat(self) -> None:
        """Show the servers that this side lives; hear from them if the session has ended."""
        with self._ensemble._changing():
            if self._session is Session.CONNECTED and not self._ensemble._touch(self._session_id):
                self._lose()

    def disconnect(self) -> None:
        """Cut the connection: operations raise DisconnectedError until ``reconnect``."""
        with self._ensemble._changing():
            self._cut = True
            self._suspend()

    def reconnect(self) -> None:
        """Mend the connection; with a new session if the old one expired meanwhile."""
        with self._ensemble._changing():
            self._cut = False
            self._resume()

    def lose_next_answer(self) -> None:
        """Break the connection right after the next change: it is made, and its caller is not told so.

        The connection comes back at once.
        """
        self._lose_answer = True

    def crash(self) -> None:
        """Do as if the process had died: nobody is told, and its session lasts until its time is over."""
        with self._ensemble._changing():
            if self._session is not Session.CLOSED:
                self._quit()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        with self._ensemble._changing():
            if self._session is not Session.CONNECTED:
                raise DisconnectedError(f"no connection to the servers: {self._session.value}")
            if not self._ensemble._touch(self._session_id):
                self._lose()
                raise DisconnectedError("the session had expired")
            yield

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._asking():
            yield
            if self._lose_answer:
                self._lose_answer = False
                self._suspend()
                self._resume()
                raise DisconnectedError("the connection broke before the servers answered")

    def _watch(self, kind: Kind, path: str, watcher: Watcher | None) -> None:
        if watcher is not None:
            self._ensemble._watch((kind, path), self._session_id, watcher)

    def _change(self, operation: Operation) -> None:
        self._ensemble._announce(self._ensemble.tree.apply(operation, owner=self._session_id))

    def _quit(self) -> None:
        self._session = Session.CLOSED
        self._ensemble._forget_watches(self._session_id)
        self._ensemble._leave(self)

    def _suspend(self) -> None:
        if self._session is Session.CONNECTED:
            self._session = Session.SUSPENDED
            self._tell()
            self._fire_all()

    def _resume(self) -> None:
        if self._session is not Session.SUSPENDED or self._cut or not self._ensemble.running:
            return
        if self._ensemble._touch(self._session_id):
            self._session = Session.CONNECTED
            self._tell()
        else:
            self._lose()

    def _lose(self) -> None:
        """Hear that the session ended, and go on with a new one."""
        self._session = Session.LOST
        self._tell()
        self._fire_all()
        self._session_id = self._ensemble._open(self, self._seconds)
        self._session = Session.CONNECTED
        self._tell()

    def _fire_all(self) -> None:
        for watcher in self._ensemble._forget_watches(self._session_id):
            self._notify(watcher)

    def _tell(self) -> None:
        for listener in self._listeners:
            self._notify(partial(listener, self._session))

    def _notify(self, watcher: Watcher) -> None:
        self._ensemble._post(partial(self._deliver, watcher))

    def _servers_went(self) -> None:
        self._suspend()

    def _servers_came(self) -> None:
        self._resume()

    def _session_expired(self) -> None:
        if self._session is Session.CONNECTED:
            self._lose()
