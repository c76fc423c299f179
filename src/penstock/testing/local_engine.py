"""Runs the batches of a job in this process, without Spark. For tests only.

Batches are planned, computed, committed and published by the same code as under Spark. Only Spark itself is
replaced: the tasks of a batch run one after another, and this module distributes the rows that Spark would
shuffle. Only test code can select this engine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from penstock.engine.batch_report import TaskSummary
from penstock.engine.blueprint import Blueprint
from penstock.engine.driver.batch_planner import BatchPlanner
from penstock.engine.driver.batch_result import merge_result
from penstock.engine.driver.query_runtime import Query
from penstock.engine.execution.batch_stages import BatchPart, Row, run_keyed_stage, run_source_stage
from penstock.engine.execution.blueprint_transfer import pack_blueprint, unpack_blueprint
from penstock.engine.execution.record_flow import Program
from penstock.engine.storage.keyed_state import drop_cached_state
from penstock.errors import SettingError
from penstock.graph.job import Job

_IDLE = 0.01
"""Seconds until the planner is asked again when there was no new input, as under Spark."""
_END_SECONDS = 60.0


class LocalRuntime:
    """Runs queries in threads of this process."""

    def __init__(self, parallelism: int = 2) -> None:
        self._parallelism = parallelism

    @property
    def parallelism(self) -> int:
        """The number of keyed tasks of a job that does not declare it."""
        return self._parallelism

    def query(self, blueprint: Blueprint, before: Query | None = None) -> LocalQuery:
        """Return a query that is ready to start. Raises SettingError for a vertex that only Spark can run."""
        refuse_native(blueprint)
        return LocalQuery(blueprint, before)

    def obstacles(self, before: Job, after: Job) -> list[str]:  # noqa: ARG002
        """Return nothing: there is no session whose settings could differ."""
        return []


def refuse_native(blueprint: Blueprint) -> None:
    """Raise SettingError when a job has vertices that Spark itself runs."""
    names = [blueprint.vertices[index].name for index in blueprint.plan.native.order]
    if names:
        listed = ", ".join(repr(name) for name in names)
        raise SettingError(
            f"job {blueprint.job!r} cannot run with engine='local': Spark itself runs {listed}"
            " (ps.Sql and ps.DataFrameTask). Test it with engine='spark', which is the default"
        )


def run_parts(
    program: Program, parts: Sequence[BatchPart], arrange: Callable[[list[Row]], None] = lambda _: None
) -> TaskSummary:
    """Run a batch once, and return the combined summary of its tasks.

    ``arrange`` may reorder the rows between the two stages, as Spark's shuffle does. Raises the error of a
    failed task, or IncompleteBatchError.
    """
    rows = [row for part in parts for row in run_source_stage(program, part)]
    arrange(rows)
    if program.blueprint.plan.needs_exchange:
        rows = _run_after_shuffle(program, rows)
    return merge_result(program.blueprint, parts[0].batch, rows, planned=len(parts))


def _run_after_shuffle(program: Program, rows: Sequence[Row]) -> list[Row]:
    """Group rows by slot, and run the keyed tasks."""
    tasks: dict[int, list[Row]] = {}
    for row in rows:
        tasks.setdefault(row[0], []).append(row)
    return [row for _, given in sorted(tasks.items()) for row in run_keyed_stage(program, given)]


class LocalQuery(Query):
    """Runs the batches of a job one after another in a thread."""

    def __init__(self, blueprint: Blueprint, before: Query | None = None) -> None:
        super().__init__(blueprint, before)
        # Packed and unpacked as for Spark's processes, so that tasks get copies of the user's objects.
        self._planner_blueprint = unpack_blueprint(pack_blueprint(blueprint.for_planner()))
        self._program = Program(unpack_blueprint(pack_blueprint(blueprint.for_workers())))
        self._thread: threading.Thread | None = None
        self._halt = threading.Event()

    def _launch(self) -> None:
        self._thread = threading.Thread(
            target=self._run, name=f"batches of {self.blueprint.job}", daemon=True
        )
        self._thread.start()

    def _run(self) -> None:
        try:
            planner = BatchPlanner(self._planner_blueprint)
            offset = planner.begin()
            while not self._halt.is_set():
                end = planner.latest(offset)
                if end == offset:
                    self._halt.wait(_IDLE)
                    continue
                parts = planner.parts(offset, end)
                self.batches.run_batch(lambda parts=parts: self._attempt(parts))  # type: ignore[misc]
                offset = end
        except Exception as error:
            self._failure = error
        finally:
            drop_cached_state(self.blueprint.folders.state)

    def _attempt(self, parts: Sequence[BatchPart]) -> TaskSummary:
        return run_parts(self._program, parts)

    def _is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _end(self) -> None:
        self._halt.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_END_SECONDS)
