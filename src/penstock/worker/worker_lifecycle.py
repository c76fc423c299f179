"""The lifecycle of a worker: start its engine, wait for its predecessors, take over the job, run it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from penstock.cluster.worker_documents import Progress, Result, WorkerInfo
from penstock.cluster.worker_policy import (
    WorkerDecision,
    WorkerSituation,
    WorkerStep,
    decide,
    ends_when_drained,
)
from penstock.coord.coordination_store import Store
from penstock.daemon.store_link import StoreLink
from penstock.daemon.worker_folder import Pulse, WorkerConfig, write_heartbeat
from penstock.engine.storage.job_folder import Claim, current_claim, has_ledger, take_over
from penstock.errors import PenstockError, ReplicaDivergedError, ReplicaOutdatedError, SupersededError
from penstock.graph.job import Job
from penstock.keyring import Keyring
from penstock.process_logs.process_log import get_logger
from penstock.processes.process_priority import ProcessPriority
from penstock.replicas.worker.replica_worker import ReplicaWorker, refuse_if_agreed, replica_blueprint
from penstock.worker.worker_engine import EngineOf, SparkEngine

if TYPE_CHECKING:
    from penstock.backups.worker.job_home import JobHome
    from penstock.engine.batch_report import Report
    from penstock.engine.driver.job_handle import Handle

_POLL_SECONDS = 0.25
"""Seconds between two decisions of a worker."""
_BEAT = 1.0
_EXECUTOR_SECONDS = 60.0
"""How long a worker waits for its first executor before it reports that it is ready."""
_RESULT_SECONDS = 60.0
_GOODBYE_SECONDS = 3.0

_log = get_logger(__name__)


class _StoppedError(Exception):
    """The decision to stop was made during another operation."""

    def __init__(self, decision: WorkerDecision) -> None:
        super().__init__(decision.reason)
        self.decision = decision


class Worker:
    """A worker, from its start to its end."""

    def __init__(
        self,
        folder: Path,
        instance: WorkerConfig,
        ring: Keyring,
        connect: Callable[[], Store],
        engine_of: EngineOf = SparkEngine,
    ) -> None:
        self._folder = folder
        self._instance = instance
        self._engine = engine_of(instance, ring, folder / "scratch")
        self._info = WorkerInfo(
            instance.job,
            instance.revision,
            instance.attempt,
            instance.node,
            os.getpid(),
            "starting",
            time.time(),
        )
        self._link = StoreLink(connect, instance.assignment, self._info)
        self._handle: Handle | None = None
        kept = instance.assignment.settings.data_location == "node"
        self._data = _worker_data(instance, self._link, ring) if kept else None
        replica_spec = instance.assignment.membership is not None
        self._replica = ReplicaWorker(instance, folder / "scratch") if replica_spec else None
        self._priority = ProcessPriority()
        self._pulse = Pulse(folder)
        self._earlier = Progress()
        """The progress before the query was last restarted."""
        self._stop = threading.Event()
        self._since = 0.0
        self._last_heartbeat = 0.0
        self.place: Path | None = None
        """The job's folder, once this worker has taken it over."""

    def ask_to_stop(self, number: int, frame: FrameType | None) -> Any:  # noqa: ARG002
        """Handle a signal by stopping after the current batch."""
        self._stop.set()

    def begin(self) -> None:
        """Register with the supervisor and the cluster.

        Until the worker is ready, a thread writes its pulse: loading code and starting Spark take long.
        """
        self._pulse.start()
        self._link.start()
        self._send_heartbeat()

    def run(self, job: Job) -> WorkerDecision:
        """Run a job to its end, and return how it ended. Raises the error that made it fail."""
        if self._data is not None:
            self._data.begin()
        if self._replica is not None and self._replica.another_replica_runs(time.time()):
            self._priority.lower()
        self._start_engine(job)
        if (given_up := self._wait_for_data(job)) is not None:
            return self._shut_down(given_up)
        self._check_continuation(job)
        self._pulse.stop()
        self._since = time.monotonic()
        self._enter_phase("ready")
        try:
            decision = self._run_until_changed(WorkerStep.WAIT)
            if decision.step is WorkerStep.TAKE_OVER:
                self._take_over(job, decision.reason)
                decision = self._run_query(job)
        except _StoppedError as stopped:
            decision = stopped.decision
        return self._shut_down(decision)

    def close(self) -> None:
        """Close the connections, and write a last heartbeat, whose progress shows if the worker ran well."""
        self._pulse.stop()
        with suppress(PenstockError, OSError):
            write_heartbeat(self._folder, replace(self._info, progress=self._progress()))
        if self._data is not None:
            self._data.close()
        self._link.close()

    @property
    def _base(self) -> Path:
        return Path(self._instance.storage) / "cluster-jobs" / self._instance.job

    def _wait_for_data(self, job: Job) -> WorkerDecision | None:
        """Wait until data that nodes keep is restored here; return the decision to stop if it comes first."""
        if self._data is None:
            return None
        while not self._data.is_restored():
            self._send_heartbeat()
            decision = decide(self._situation(), self._link.view, time.monotonic())
            if decision.step is WorkerStep.STOP:
                self._data.give_up()
                return decision
            self._stop.wait(_POLL_SECONDS / 5)
        self._data.create_input_logs(job)
        return None

    def _start_engine(self, job: Job) -> None:
        engine = self._engine
        engine.open(job)
        _log.info("engine up", app=engine.app_id)
        self._tell(replace(self._info, driver_url=engine.driver_url, app_id=engine.app_id))
        if not engine.wait_for_executors(_EXECUTOR_SECONDS, self._may_wait):
            _log.warning("no executor yet", waited=_EXECUTOR_SECONDS)
            return
        alone = not any(other.revision < self._info.revision for other in self._link.view.others)
        alone = alone and (self._replica is None or not self._replica.another_replica_runs(time.time()))
        if alone and (self._data is None or self._data.is_restored()):
            return  # No other worker runs the job: a warm-up would only delay its first batch.
        if not engine.warm_up(job):
            _log.warning("warm-up not finished in time")

    def _check_continuation(self, job: Job) -> None:
        """Raise if the job cannot continue from the stored state, before its predecessor stops for it."""
        from penstock.engine.driver.job_start import check_folder

        holder = current_claim(self._base)
        fresh = self._instance.assignment.fresh
        if holder is not None and not (fresh and holder.revision < self._info.revision):
            check_folder(job, self._base / holder.name)

    def _may_wait(self) -> bool:
        """Send a heartbeat during a wait; return whether to go on waiting."""
        self._send_heartbeat()
        return not self._stop.is_set() and self._link.view.assignment is not None

    def _run_until_changed(self, going: WorkerStep) -> WorkerDecision:
        """Continue while the decision is ``going``; return the first other decision."""
        while True:
            if self._handle is not None:
                self._handle.check()
            self._send_heartbeat()
            decision = decide(self._situation(), self._link.view, time.monotonic())
            if decision.step is not going:
                return decision
            if self._replica is not None and going is WorkerStep.STAND_BY:
                self._replica.refresh_copy(self._check_for_stop)
            elif self._replica is not None and going is WorkerStep.CONTINUE:
                self._replica.check_pace(time.monotonic())
            if self._handle is not None:
                self._handle.wait_for_batch(_POLL_SECONDS)
            else:
                self._stop.wait(_POLL_SECONDS / 5)

    def _check_for_stop(self) -> None:
        """Send a heartbeat during a long operation. Raises _StoppedError when the worker is to stop."""
        self._send_heartbeat()
        decision = decide(self._situation(), self._link.view, time.monotonic())
        if decision.step is WorkerStep.STOP:
            raise _StoppedError(decision)

    def _situation(self) -> WorkerSituation:
        instance, view, replica = self._instance, self._link.view, self._replica
        stands_by = replica is not None and replica.stands_by
        me = WorkerSituation(
            instance.revision,
            instance.attempt,
            instance.assignment.generation,
            running=self.place is not None and not stands_by,
            since=self._since,
            asked_to_stop=self._stop.is_set(),
            stands_by=stands_by,
        )
        whole = replica is None or replica.joined.whole
        drained = self._handle is not None and whole and ends_when_drained(view) and self._handle.drained()
        return replace(me, drained=drained)

    def _take_over(self, job: Job, reason: str) -> None:
        instance = self._instance
        claim = Claim(instance.revision, instance.attempt)
        assignment = instance.assignment
        self.place = take_over(self._base, claim, fresh=assignment.fresh, forget=assignment.forget)
        _log.info("taken over", folder=str(self.place), reason=reason)
        if self._data is not None:
            self._data.start_uploads(self._may_wait)
        elif self._replica is None:
            refuse_if_agreed(Path(instance.storage), assignment)
        if self._replica is not None:
            self._replica.attach(replica_blueprint(job, self.place))
            decision = self._run_until_changed(WorkerStep.STAND_BY)
            if decision.step is WorkerStep.STOP:
                raise _StoppedError(decision)
        self._priority.restore()
        self._start(job)
        self._enter_phase("running")

    def _start(self, job: Job) -> None:
        """Start the query; a replica joins the other replicas first."""
        assert self.place is not None, "the folder must be taken over first"
        if self._replica is not None:
            self._replica.join_replicas(self._check_for_stop)
        replica_spec = self._replica.replica_spec if self._replica is not None else None
        with self._pulse.shown():
            self._handle = self._engine.start(job, self.place, replica_spec)

    def _run_query(self, job: Job) -> WorkerDecision:
        """Run the job; rebuild the replica from another one if it cannot continue from its own state."""
        while True:
            try:
                return self._run_until_changed(WorkerStep.CONTINUE)
            except (ReplicaDivergedError, ReplicaOutdatedError) as error:
                if self._replica is None or self._handle is None:
                    raise
                _log.warning("replica is rebuilt", reason=str(error))
                self._replica.record_rebuild(error, time.monotonic())
                self._earlier = self._progress()
                handle, self._handle = self._handle, None
                with suppress(PenstockError):  # The cause was logged above.
                    handle.stop()
                self._start(job)

    def _shut_down(self, decision: WorkerDecision) -> WorkerDecision:
        self._enter_phase("stopping")
        _log.info("stopping", outcome=decision.outcome, reason=decision.reason)
        if self._handle is not None:
            self._stop_query(self._handle, drain_loops=decision.drain_loops)
        if self._replica is not None:
            self._replica.leave()
        if self._data is not None and decision.outcome != "superseded":
            self._data.finish()
        elif self._data is not None:
            self._data.close()  # The successor uses the same data, and waits for this worker.
        self._enter_phase("stopped")
        if decision.final:
            result = Result(
                self._instance.job,
                self._instance.revision,
                decision.outcome,
                decision.reason,
                time.time(),
                self._progress(),
            )
            if not self._link.end(result, _RESULT_SECONDS):
                _log.warning("result not written", seconds=_RESULT_SECONDS)
        self._link.wait_worker_info(_GOODBYE_SECONDS)
        return decision

    def _stop_query(self, handle: Handle, *, drain_loops: bool) -> None:
        try:
            handle.stop(drain_loops=drain_loops)
        except (ReplicaDivergedError, ReplicaOutdatedError) as error:
            if self._replica is None:
                raise
            # The other replicas continue; the next worker with this folder rebuilds it.
            self._replica.record_rebuild(error, time.monotonic())

    def refuse(self, reason: str) -> None:
        """Report to the cluster that the job cannot run with this code or these settings."""
        instance = self._instance
        self._link.end(
            Result(instance.job, instance.revision, "refused", reason, time.time()), _RESULT_SECONDS
        )

    def superseded(self, error: PenstockError) -> bool:
        """Return whether an error only means that another worker has taken over the job."""
        return isinstance(error, SupersededError) or (self.place is not None and not has_ledger(self.place))

    def _enter_phase(self, phase: str) -> None:
        # The phase is written with the position of the replica, because a replica in step needs both.
        joined = self._replica.look() if self._replica is not None else None
        info = replace(self._info, phase=phase, since=time.time(), joined=joined)
        self._tell(replace(info, progress=self._progress()))
        self._send_heartbeat(at_once=True)

    def _tell(self, info: WorkerInfo) -> None:
        self._info = info
        self._link.tell(info)

    def _send_heartbeat(self, *, at_once: bool = False) -> None:
        """Write a heartbeat for the supervisor about once a second, if the engine is alive."""
        now = time.monotonic()
        if not at_once and now - self._last_heartbeat < _BEAT:
            return
        if not self._engine.answers():
            return
        self._last_heartbeat = now
        joined = self._replica.look() if self._replica is not None else None
        self._tell(replace(self._info, progress=self._progress(), joined=joined))
        write_heartbeat(self._folder, self._info)

    def _progress(self) -> Progress:
        if self._handle is None:
            return self._info.progress
        report = self._handle.report
        known = self._info.progress
        if self._handle.running:
            lag = _or_none(lambda: self._handle.lag if self._handle is not None else None)
        else:
            lag = report.lag
        new = _progress_of(self._earlier, report, lag, known.at)
        return new if new == known else replace(new, at=time.time())


def _worker_data(instance: WorkerConfig, link: StoreLink, ring: Keyring) -> JobHome:
    # Imported on demand: it is a sixth of a worker's imports, and most jobs keep their data elsewhere.
    from penstock.backups.worker.job_home import JobHome

    return JobHome(instance, link, ring.node_token)


def _or_none(ask: Callable[[], int | None]) -> int | None:
    try:
        return ask()
    except (PenstockError, OSError):
        return None  # The query itself reports the error of a source that does not answer.


def _progress_of(done: Progress, report: Report, lag: int | None, at: float) -> Progress:
    return Progress(
        done.batches + report.batches,
        done.records_in + report.records_in,
        done.records_out + report.records_out,
        done.discarded + report.discarded,
        done.late + report.late,
        done.errors + report.errors,
        lag,
        report.batch_seconds,
        at,
    )


def install_signal_handlers(worker: Worker) -> None:
    """Make SIGTERM and SIGINT stop the worker after its current batch."""
    signal.signal(signal.SIGTERM, worker.ask_to_stop)
    signal.signal(signal.SIGINT, worker.ask_to_stop)
