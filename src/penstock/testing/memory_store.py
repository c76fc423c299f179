"""The coordination store in memory for tests, simulations and benchmarks.

An ensemble with a settable clock, sessions that expire, and watches; and a client that can simulate faults
(disconnect, lost answer, crash). It passes the same contract suite as the ZooKeeper store.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from penstock.coord.coordination_store import (
    Change,
    Create,
    Delete,
    DisconnectedError,
    Kind,
    Operation,
    Put,
    Read,
    Session,
    StoredNode,
    Watcher,
    check_operations,
    check_path,
    check_size,
)
from penstock.testing.memory_tree import Tree


@dataclass
class _Session:
    client: MemoryStore
    seconds: float
    touched: float


class MemoryEnsemble:
    """The servers of the store, for tests and simulations.

    Nothing happens by itself: time passes only by calls of ``advance``. A session expires when its store has
    not touched it, by an operation or a heartbeat, for the session's timeout, or by ``expire``.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.tree = Tree()
        self.now = now
        self.running = True
        self._lock = threading.RLock()
        self._clients: list[MemoryStore] = []
        self._sessions: dict[int, _Session] = {}
        self._last_session = 0
        self._watches: dict[Change, list[tuple[int, Watcher]]] = {}
        self._events: deque[Callable[[], None]] = deque()
        self._delivering = threading.Lock()

    @property
    def sessions(self) -> list[int]:
        """The ids of all open sessions."""
        with self._lock:
            return sorted(self._sessions)

    def watches(self) -> Counter[tuple[int, str, str]]:
        """Count the watches that are set, by session, path and kind ("data" or "children")."""
        with self._lock:
            return Counter(
                (session, path, kind.value)
                for (kind, path), watches in self._watches.items()
                for session, _ in watches
            )

    def stop(self) -> None:
        """Stop all servers: every store is suspended, and no session expires in the meantime."""
        with self._changing():
            self.running = False
            for client in list(self._clients):
                client._suspend()

    def start(self) -> None:
        """Start the servers with all their data; the timeout of each session begins again."""
        with self._changing():
            self.running = True
            for session in self._sessions.values():
                session.touched = self.now
            for client in list(self._clients):
                client._resume()

    def expire(self, session_id: int) -> None:
        """Expire a session; its store is notified at once if it is connected."""
        with self._changing():
            session = self._sessions.get(session_id)
            if session is not None:
                self._end(session_id)
                session.client._session_expired()

    def advance(self, now: float) -> None:
        """Set the clock, and end sessions that were not touched for their timeout.

        Their stores, which are dead, paused or disconnected, learn of it when they next touch the session.
        """
        with self._changing():
            self.now = max(self.now, now)
            if self.running:
                for session_id, session in sorted(self._sessions.items()):
                    if self.now - session.touched >= session.seconds:
                        self._end(session_id)

    # The following methods are for the stores, which call them inside of ``_changing``.

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock, and deliver the events after releasing it."""
        try:
            with self._lock:
                yield
        finally:
            self._deliver()

    def _deliver(self) -> None:
        # One thread delivers at a time, so that events arrive in order. A thread that finds another one
        # delivering may return: that one checks for further events after it has released the lock.
        while self._events and self._delivering.acquire(blocking=False):
            try:
                while self._events:
                    self._events.popleft()()
            finally:
                self._delivering.release()

    def _post(self, event: Callable[[], None]) -> None:
        self._events.append(event)

    def _join(self, client: MemoryStore) -> None:
        self._clients.append(client)

    def _leave(self, client: MemoryStore) -> None:
        self._clients.remove(client)

    def _open(self, client: MemoryStore, seconds: float) -> int:
        self._last_session += 1
        self._sessions[self._last_session] = _Session(client, seconds, self.now)
        return self._last_session

    def _touch(self, session_id: int) -> bool:
        """Restart the timeout of a session; return whether it is still open."""
        session = self._sessions.get(session_id)
        if session is None:
            return False
        session.touched = self.now
        return True

    def _end(self, session_id: int) -> None:
        """End a session, and remove its ephemeral nodes."""
        del self._sessions[session_id]
        for path in self.tree.owned(session_id):
            self._announce(self.tree.apply(Delete(path), owner=session_id))

    def _watch(self, change: Change, session_id: int, watcher: Watcher) -> None:
        self._watches.setdefault(change, []).append((session_id, watcher))

    def _forget_watches(self, session_id: int) -> list[Watcher]:
        """Remove the watches of a session, and return their watchers."""
        forgotten: list[Watcher] = []
        for change, watches in list(self._watches.items()):
            forgotten += [watcher for session, watcher in watches if session == session_id]
            rest = [watch for watch in watches if watch[0] != session_id]
            if rest:
                self._watches[change] = rest
            else:
                del self._watches[change]
        return forgotten

    def _announce(self, changes: Sequence[Change]) -> None:
        """Notify the watchers of changes, each watch once."""
        for change in changes:
            watches = self._watches.pop(change, [])
            # A store that does not know yet that its session ended gets all notifications when it does.
            waiting = [watch for watch in watches if watch[0] not in self._sessions]
            if waiting:
                self._watches[change] = waiting
            for session_id, watcher in watches:
                if session_id in self._sessions:
                    self._sessions[session_id].client._notify(watcher)


__all__ = ["MemoryEnsemble", "MemoryStore"]


def _call(watcher: Watcher) -> None:
    watcher()


class MemoryStore:
    """A session with a :class:`MemoryEnsemble`, which behaves like a ZooKeeper session.

    ``deliver`` receives every notification of a watcher or listener, and may call it later. Simulated faults
    are ``disconnect``, ``reconnect`` and ``lose_next_answer`` for the network and ``crash`` for the process.
    To simulate a paused process, make no calls, not even ``heartbeat``; it learns that its session is lost
    when it next touches the store.

    >>> ensemble = MemoryEnsemble()
    >>> mine, yours = MemoryStore(ensemble), MemoryStore(ensemble)
    >>> mine.create("/nodes/a", b"here", ephemeral=True)
    >>> ensemble.expire(mine.session_id)
    >>> yours.children("/nodes")
    []
    """

    def __init__(
        self,
        ensemble: MemoryEnsemble,
        *,
        session_seconds: float = 6.0,
        deliver: Callable[[Watcher], None] = _call,
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
        """The state of the session, as far as the client knows."""
        return self._session

    @property
    def session_id(self) -> int:
        """The id of the session; 0 while there is none."""
        return self._session_id

    def listen(self, listener: Callable[[Session], None]) -> None:
        """Add a listener, which is called when the state of the session changes."""
        self._listeners.append(listener)

    def get(self, path: str, watch: Watcher | None = None) -> StoredNode | None:
        """Return a node; None if it does not exist."""
        check_path(path)
        with self._asking():
            self._watch(Kind.DATA, path, watch)
            return self._ensemble.tree.get(path)

    def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """Return the names of a node's children, sorted; an empty list if it does not exist."""
        check_path(path)
        with self._asking():
            self._watch(Kind.CHILDREN, path, watch)
            return self._ensemble.tree.children(path)

    def get_many(self, reads: Sequence[Read]) -> Iterator[StoredNode | None]:
        """Yield several nodes, None for those that do not exist."""
        for path, watch in reads:
            yield self.get(path, watch)

    def children_many(self, reads: Sequence[Read]) -> Iterator[list[str]]:
        """Yield the names of the children of several nodes."""
        for path, watch in reads:
            yield self.children(path, watch)

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        """Create a node, and missing parents as persistent empty nodes."""
        check_path(path)
        check_size(path, data)
        with self._changing():
            for above in self._ensemble.tree.missing_above(path):
                self._change(Create(above, b""))
            self._change(Create(path, data, ephemeral))

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
        """Execute all operations or none."""
        check_operations(operations)
        with self._changing():
            self._ensemble._announce(self._ensemble.tree.transact(operations, owner=self._session_id))

    def close(self) -> None:
        """End the session, which removes its ephemeral nodes: at once if the servers can be reached."""
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
        """Touch the session, and learn if it has ended."""
        with self._ensemble._changing():
            if self._session is Session.CONNECTED and not self._ensemble._touch(self._session_id):
                self._lose()

    def disconnect(self) -> None:
        """Break the connection: operations raise DisconnectedError until ``reconnect``."""
        with self._ensemble._changing():
            self._cut = True
            self._suspend()

    def reconnect(self) -> None:
        """Restore the connection, with a new session if the old one has expired."""
        with self._ensemble._changing():
            self._cut = False
            self._resume()

    def lose_next_answer(self) -> None:
        """Break the connection after the next change: the change is made, but its caller gets an error.

        The connection is restored at once.
        """
        self._lose_answer = True

    def crash(self) -> None:
        """Simulate the death of the process: no listener is called; the session lasts until it expires."""
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
        """Handle the end of the session, and open a new one."""
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

    def _session_expired(self) -> None:
        if self._session is Session.CONNECTED:
            self._lose()
