"""The servers of a store in memory: the tree, the sessions, the watches, and a clock that is told."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from penstock.coord.store import Delete, Watcher
from penstock.coord.tree import Change, Tree


class Client(Protocol):
    """Whom a session belongs to, as the servers see it."""

    def _servers_went(self) -> None: ...

    def _servers_came(self) -> None: ...

    def _session_expired(self) -> None: ...

    def _notify(self, watcher: Watcher) -> None: ...


@dataclass
class _Session:
    client: Client
    seconds: float
    touched: float


class MemoryEnsemble:
    """What the servers of a cluster hold, for tests and for simulations.

    Nothing happens by itself: time passes when ``advance`` says so. A session expires when it was not
    touched, by an operation or a heartbeat of its store, for as long as it lasts, or by ``expire``.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.tree = Tree()
        self.now = now
        self.running = True
        self._lock = threading.RLock()
        self._clients: list[Client] = []
        self._sessions: dict[int, _Session] = {}
        self._last_session = 0
        self._watches: dict[Change, list[tuple[int, Watcher]]] = {}
        self._events: deque[Callable[[], None]] = deque()
        self._delivering = threading.Lock()

    @property
    def sessions(self) -> list[int]:
        """The ids of all sessions that have not ended."""
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
        """Take all servers down: every store is suspended, and no session expires meanwhile."""
        with self._changing():
            self.running = False
            for client in list(self._clients):
                client._servers_went()

    def start(self) -> None:
        """Bring the servers up with all they had; each session has its whole time again."""
        with self._changing():
            self.running = True
            for session in self._sessions.values():
                session.touched = self.now
            for client in list(self._clients):
                client._servers_came()

    def expire(self, session_id: int) -> None:
        """End a session as if its time were over; its store hears of it at once if it is connected."""
        with self._changing():
            session = self._sessions.get(session_id)
            if session is not None:
                self._end(session_id)
                session.client._session_expired()

    def advance(self, now: float) -> None:
        """Set the clock; sessions that were not touched for their time end.

        Their stores do not hear of it before they touch their session: they are dead, paused or cut off.
        """
        with self._changing():
            self.now = max(self.now, now)
            if self.running:
                for session_id, session in sorted(self._sessions.items()):
                    if self.now - session.touched >= session.seconds:
                        self._end(session_id)

    # What follows is for the stores; they call it inside ``_changing``.

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock, and deliver what happened when it is free again."""
        try:
            with self._lock:
                yield
        finally:
            self._deliver()

    def _deliver(self) -> None:
        # One thread delivers at a time, so that events come in their order. Whoever finds it busy may go: the
        # loop looks again after it has let the next one in.
        while self._events and self._delivering.acquire(blocking=False):
            try:
                while self._events:
                    self._events.popleft()()
            finally:
                self._delivering.release()

    def _post(self, event: Callable[[], None]) -> None:
        self._events.append(event)

    def _join(self, client: Client) -> None:
        self._clients.append(client)

    def _leave(self, client: Client) -> None:
        self._clients.remove(client)

    def _open(self, client: Client, seconds: float) -> int:
        self._last_session += 1
        self._sessions[self._last_session] = _Session(client, seconds, self.now)
        return self._last_session

    def _touch(self, session_id: int) -> bool:
        """Return whether a session is still there; it has its whole time again."""
        session = self._sessions.get(session_id)
        if session is None:
            return False
        session.touched = self.now
        return True

    def _end(self, session_id: int) -> None:
        """End a session; what it owned is gone."""
        del self._sessions[session_id]
        for path in self.tree.owned(session_id):
            self._announce(self.tree.apply(Delete(path), owner=session_id))

    def _watch(self, change: Change, session_id: int, watcher: Watcher) -> None:
        self._watches.setdefault(change, []).append((session_id, watcher))

    def _forget_watches(self, session_id: int) -> list[Watcher]:
        """Return the watchers of a session, which are no longer set."""
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
        """Tell those who watch what has changed, each watcher once."""
        for change in changes:
            watches = self._watches.pop(change, [])
            # A store that has not heard that its session ended is told of everything when it does.
            waiting = [watch for watch in watches if watch[0] not in self._sessions]
            if waiting:
                self._watches[change] = waiting
            for session_id, watcher in watches:
                if session_id in self._sessions:
                    self._sessions[session_id].client._notify(watcher)
