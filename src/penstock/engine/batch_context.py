"""The context of user code (``ps.ctx``): repeatable time and random numbers.

A batch that is run again, after a crash or by another replica, must give the same result. Therefore the time
is part of the batch's plan, and random numbers are seeded by job, batch, vertex and part, not by machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from threading import get_ident

from penstock.process_logs.output_capture import flush_partial_line


class TaskScope:
    """The current batch, part and vertex of a Spark task. ``vertex`` is set before each call of its code."""

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
        """The number of the part, the bucket, or the instance of a vertex whose records are processed."""

    def move_to(self, number: int) -> None:
        """Switch to another part or bucket."""
        self._number = number
        self._randoms = {}
        self.vertex = 0
        self.instance = number

    @property
    def vertex_name(self) -> str:
        """The name of the vertex whose code runs."""
        return self._names[self.vertex]

    @property
    def random(self) -> Random:
        """The random number generator of the vertex in this part or bucket of the batch."""
        found = self._randoms.get(self.vertex)
        if found is None:
            seed = (self._job, self.batch, self._names[self.vertex], self._kind, self._number)
            found = self._randoms[self.vertex] = Random(repr(seed))
        return found


class Context:
    """The batch for which user code runs. Outside of a batch, time and random numbers are ordinary ones.

    Read it where the value is used: values read before the job runs belong to no batch. Each thread has its
    own batch; a thread started by user code belongs to the batch of the process if there is only one.
    """

    def __init__(self) -> None:
        self._scopes: dict[int, TaskScope] = {}
        self._free = Random()

    @property
    def now(self) -> float:
        """The time of the batch in seconds since 1970, the same for all of its records."""
        scope = self._scope()
        return time.time() if scope is None else scope.now

    @property
    def random(self) -> Random:
        """Random numbers that are the same whenever and wherever the batch runs again."""
        scope = self._scope()
        return self._free if scope is None else scope.random

    @property
    def batch(self) -> int:
        """The number of the batch; -1 outside of a batch."""
        scope = self._scope()
        return -1 if scope is None else scope.batch

    @property
    def instance(self) -> int:
        """The number of the instance that runs, from 0; -1 outside of a batch.

        A task with ``parallelism=n`` has the instances 0 to n - 1. A task without it has one instance for
        each part of the batch.
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
        others = list(self._scopes.values())  # Copied, because other threads may change it.
        return others[0] if len(others) == 1 else None

    @contextmanager
    def within(self, scope: TaskScope) -> Iterator[None]:
        """Use a scope for this thread within a ``with`` block."""
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
        return "ctx"  # Unpickled as the object of the receiving process.

    def __repr__(self) -> str:
        return "ps.ctx"


ctx = Context()
