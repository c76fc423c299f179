"""Processes of the simulated cluster: they step, are paused in the middle of it, crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from penstock.coord.coordination_store import DisconnectedError, Operation, Read, Session, StoredNode, Watcher
from penstock.testing.memory_store import MemoryStore
from simulation.world import World

T = TypeVar("T")

SESSION = 6.0
HEARTBEAT = 2.0

_PAUSE = 0.004
"""How likely an operation on the store is where its process is paused,"""
_PAUSE_BEFORE_WRITE = 0.03
"""a transaction of a leader, which matters most,"""
_LOST_ANSWER = 0.002
"""is carried out and not answered,"""
_CRASH = 0.0008
"""or is the last that its process does."""


class CrashedError(BaseException):
    """Unwinds what a process was doing when it died. Nothing may catch it but its actor."""


class Actor:
    """A process. Its steps never overlap; while one is paused, only what other threads of it do goes on."""

    def __init__(self, world: World, name: str, tick: float) -> None:
        self.world = world
        self.name = name
        self.tick = tick
        self.alive = True
        self.frozen = False
        """Whether the whole process stands still: no heartbeat, no watch, no answer."""
        self.stepping = False
        self._store: MemoryStore | None = None
        self._next = 0
        self._waiting: list[Callable[[], None]] = []
        self.schedule(world.random.uniform(0, 0.5))
        world.after(HEARTBEAT, self._heartbeat)

    def step(self) -> None:
        """Do what is to be done now."""
        raise NotImplementedError

    def woken(self) -> bool:
        """Whether there is more to do right after a step."""
        return False

    def connect(self) -> SimulatedStore:
        """Open a session with the store. Raises DisconnectedError."""
        self._store = MemoryStore(self.world.ensemble, session_seconds=SESSION, deliver=self._deliver)
        return SimulatedStore(self, self._store)

    @property
    def session_id(self) -> int:
        """The session of this process."""
        return self._store.session_id if self._store is not None else 0

    def schedule(self, seconds: float) -> None:
        """Have the next step done then, whatever was planned before."""
        self._next += 1
        number = self._next
        self.world.after(seconds, lambda: self._fire(number))

    def interlude(self, likely: float = _PAUSE) -> None:
        """A moment at which other processes may do something, and this one may not go on for long."""
        world = self.world
        if world.chance(likely):
            seconds = world.random.choice((0.05, 0.5, 2.0, SESSION + 1, 2 * SESSION)) * world.random.uniform(
                0.5, 1.5
            )
            whole = world.chance(0.7)
            world.tell(self.name, f"{'' if whole else 'a thread '}is paused for {seconds:.1f} s in its step")
            frozen, self.frozen = self.frozen, self.frozen or whole
            world.pass_time(seconds)
            self.frozen = frozen
            if whole and self.alive and self._store is not None and world.random.random() < 0.5:
                self._store.heartbeat()  # Another thread of it was faster, and has a new session by now.
            if not frozen:
                self._thaw()
        if not self.alive:
            raise CrashedError

    def answered(self) -> None:
        """A moment right after the store has done something for this process."""
        if self.world.chance(_LOST_ANSWER):
            self.world.tell(self.name, "does not get an answer")
            self.disconnect(self.world.random.uniform(0.1, 1.5 * SESSION))
            raise DisconnectedError("the connection broke before the answer came")
        if self.world.chance(_CRASH):
            self.crash("in its step")
        if not self.alive:
            raise CrashedError

    def freeze(self, seconds: float) -> None:
        """Stop the process (SIGSTOP) between two steps, for a while."""
        if self.frozen or not self.alive:
            return
        self.world.tell(self.name, f"is paused for {seconds:.1f} s")
        self.frozen = True

        def go_on() -> None:
            self.frozen = False
            self._thaw()

        self.world.after(seconds, go_on)

    def disconnect(self, seconds: float) -> None:
        """Cut the process off the store for a while."""
        store = self._store
        if store is None or not self.alive:
            return
        self.world.tell(self.name, f"is cut off for {seconds:.1f} s")
        store.disconnect()
        self.world.after(seconds, lambda: store.reconnect() if store is self._store else None)

    def expire(self) -> None:
        """Have the servers end the session."""
        if self._store is not None and self.alive:
            self.world.tell(self.name, "loses its session")
            self.world.ensemble.expire(self._store.session_id)

    def crash(self, how: str = "") -> None:
        """End the process without a word (SIGKILL)."""
        if self.alive:
            self.world.tell(self.name, f"crashes {how}")
            self.alive = False
            if self._store is not None:
                self._store.crash()

    def leave(self) -> None:
        """End the process; its session ends with it."""
        self.alive = False
        if self._store is not None:
            self._store.close()

    def _fire(self, number: int) -> None:
        if number != self._next or not self.alive:
            return
        if self.frozen or self.stepping:
            self._waiting.append(lambda: None)
            return
        self.stepping = True
        try:
            self.step()
        except CrashedError:
            return
        except DisconnectedError as error:
            self.world.tell(self.name, f"has no store: {error}")
        finally:
            self.stepping = False
        if self.alive:
            self.schedule(0.02 if self.woken() else self.tick)
            self._thaw()

    def _heartbeat(self) -> None:
        if self.alive:
            if not self.frozen and self._store is not None:
                self._store.heartbeat()
            self.world.after(HEARTBEAT, self._heartbeat)

    def _deliver(self, watcher: Watcher) -> None:
        random = self.world.random
        late = self.world.chance(0.05)
        delay = random.uniform(0.1, 4.0) if late else random.uniform(0.001, 0.02)
        self.world.after(delay, lambda: self._hear(watcher))

    def _hear(self, watcher: Watcher) -> None:
        if not self.alive:
            return
        if self.frozen:
            self._waiting.append(watcher)
            return
        watcher()
        if self.stepping:
            self._waiting.append(lambda: None)
        else:
            self.schedule(0.01)

    def _thaw(self) -> None:
        """Do what had to wait."""
        if self.frozen or not self.alive or not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for watcher in waiting:
            watcher()
        if self.stepping:
            self._waiting.append(lambda: None)
        else:
            self.schedule(0.01)


class SimulatedStore:
    """A process' store: each operation is a moment at which anything may come between."""

    def __init__(self, actor: Actor, store: MemoryStore) -> None:
        self._actor = actor
        self._store = store

    @property
    def session(self) -> Session:
        return self._store.session

    @property
    def session_id(self) -> int:
        return self._store.session_id

    def listen(self, listener: Callable[[Session], None]) -> None:
        self._store.listen(listener)

    def get(self, path: str, watch: Watcher | None = None) -> StoredNode | None:
        return self._do(lambda: self._store.get(path, watch))

    def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        return self._do(lambda: self._store.children(path, watch))

    def get_many(self, reads: Sequence[Read]) -> Iterator[StoredNode | None]:
        for path, watch in reads:
            yield self.get(path, watch)

    def children_many(self, reads: Sequence[Read]) -> Iterator[list[str]]:
        for path, watch in reads:
            yield self.children(path, watch)

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        self._do(lambda: self._store.create(path, data, ephemeral=ephemeral))

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        return self._do(lambda: self._store.set(path, data, version=version))

    def delete(self, path: str, *, version: int | None = None) -> None:
        self._do(lambda: self._store.delete(path, version=version))

    def transact(self, operations: Sequence[Operation]) -> None:
        self._actor.interlude(_PAUSE_BEFORE_WRITE)
        self._do(lambda: self._store.transact(operations))

    def close(self) -> None:
        self._store.close()

    def _do(self, operation: Callable[[], T]) -> T:
        self._actor.interlude()
        result = operation()
        self._actor.answered()
        return result
