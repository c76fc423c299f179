"""``ps.ctx``: time and random numbers for user code that are the same when a batch is repeated.

A batch that is run again, after a crash or by another replica, must give the same. So the time is the
batch's own, which is part of its plan, and random numbers follow from what is computed and not from where.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from threading import get_ident

from penstock.process_logs.output_capture import flush_partial_line


class TaskScope:
    """What a Spark task works on just now. Its shell sets ``vertex`` before it calls the code of one."""

    __slots__ = ("_job", "_kind", "_names", "_number", "_randoms", "batch", "instance", "now", "vertex")

    def __init__(
        self, job: str, names: Sequence[str], batch: int, now: float, kind: str, number: int = 0
    ) -> None:
        self._job = job
        self._names = names
        self._kind = kind
        self._number = number
        self._randoms: dict[int, Random] = {}
        self.batch = batch
        self.now = now
        self.vertex = 0
        self.instance = number
        """Whose records these are: of a part, of a bucket, or of an instance of a vertex."""

    def move_to(self, number: int) -> None:
        """Go on with another part or bucket."""
        self._number = number
        self._randoms = {}
        self.vertex = 0
        self.instance = number

    @property
    def vertex_name(self) -> str:
        """The name of the vertex whose code is called."""
        return self._names[self.vertex]

    @property
    def random(self) -> Random:
        """Random numbers of one vertex in one part or bucket of one batch."""
        found = self._randoms.get(self.vertex)
        if found is None:
            seed = (self._job, self.batch, self._names[self.vertex], self._kind, self._number)
            found = self._randoms[self.vertex] = Random(repr(seed))
        return found


class Context:
    """The batch that user code works for. Outside of a batch, in a unit test, it is time and chance as usual.

    Ask it where the answer is used: what was asked before the job runs is not part of any batch. Each thread
    is in a batch of its own; one that user code has started is in the only batch of the process.
    """

    def __init__(self) -> None:
        self._scopes: dict[int, TaskScope] = {}
        self._free = Random()

    @property
    def now(self) -> float:
        """The moment of the batch in seconds since 1970, the same for all of its records."""
        scope = self._scope()
        return time.time() if scope is None else scope.now

    @property
    def random(self) -> Random:
        """Random numbers that are the same whenever, and wherever, the batch is run again."""
        scope = self._scope()
        return self._free if scope is None else scope.random

    @property
    def batch(self) -> int:
        """The number of the batch; -1 outside of one."""
        scope = self._scope()
        return -1 if scope is None else scope.batch

    @property
    def instance(self) -> int:
        """Which instance of its vertex the code runs as, from 0 on; -1 outside of a batch.

        A task with ``parallelism=n`` has the instances 0 to n - 1. One without runs in as many as there are
        parts of the batch.
        """
        scope = self._scope()
        return -1 if scope is None else scope.instance

    def running_vertex(self) -> str | None:
        """Return the name of the vertex whose code runs in this thread; None outside of a batch."""
        scope = self._scope()
        return None if scope is None else scope.vertex_name

    def _scope(self) -> TaskScope | None:
        own = self._scopes.get(get_ident())
        if own is not None:
            return own
        others = list(self._scopes.values())  # Copied: they may enter and leave meanwhile.
        return others[0] if len(others) == 1 else None

    @contextmanager
    def within(self, scope: TaskScope) -> Iterator[None]:
        """Answer for a scope."""
        thread = get_ident()
        before, self._scopes[thread] = self._scopes.get(thread), scope
        try:
            yield
        finally:
            if before is None:
                self._scopes.pop(thread, None)
            else:
                self._scopes[thread] = before
            flush_partial_line()

    def __reduce__(self) -> str:
        return "ctx"  # There is one in each process, and code that holds it finds that of its own.

    def __repr__(self) -> str:
        return "ps.ctx"


ctx = Context()
