"""The lifecycle of a worker: starts its engine, waits for its predecessors, takes the job over, runs it."""

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

_LOOK = 0.25
"""How often, in seconds, a worker looks up from its work."""
_BEAT = 1.0
_EXECUTOR_SECONDS = 60.0
"""How long a worker that is to have executors waits for the first before it calls itself ready."""
_RESULT_SECONDS = 60.0
_GOODBYE_SECONDS = 3.0

_log = get_logger(__name__)


class _LeavingError(Exception):
    """It was decided to leave while something else was under way."""

    def __init__(self, decision: WorkerDecision) -> None:
        super().__init__(decision.reason)
        self.decision = decision


class Worker:
    """One worker, from its start to its end."""

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
        self._done = Progress()
        """What was done before the query was started anew."""
        self._stop = threading.Event()
        self._since = 0.0
        self._beaten = 0.0
        self.place: Path | None = None
        """The job's folder, once it is ours."""

    def ask_to_stop(self, number: int, frame: FrameType | None) -> Any:  # noqa: ARG002
        """Take a signal for a wish to end after the batch."""
        self._stop.set()

    def begin(self) -> None:
        """Be known to the supervisor and to the cluster.

        From now until it is ready a thread shows that the process lives: code is loaded and Spark started.
        """
        self._pulse.start()
        self._link.start()
        self._beat()

    def run(self, job: Job) -> WorkerDecision:
        """Run a job to its end, and return how it ended; raises what made it fail."""
        if self._data is not None:
            self._data.begin()
        if self._replica is not None and self._replica.another_replica_runs(time.time()):
            self._priority.lower()
        self._start_engine(job)
        if (given_up := self._wait_for_data(job)) is not None:
            return self._leave(given_up)
        self._check_continuation(job)
        self._pulse.stop()
        self._since = time.monotonic()
        self._enter("ready")
        try:
            decision = self._until(WorkerStep.WAIT)
            if decision.step is WorkerStep.TAKE_OVER:
                self._take_over(job, decision.reason)
                decision = self._carry_on(job)
        except _LeavingError as leaving:
            decision = leaving.decision
        return self._leave(decision)

    def close(self) -> None:
        """Leave the store, and word of what was done: a worker that has committed a batch has run well."""
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
        """Wait until data that is with its node is here; return why to stop if that is decided before."""
        if self._data is None:
            return None
        while not self._data.is_restored():
            self._beat()
            decision = decide(self._situation(), self._link.view, time.monotonic())
            if decision.step is WorkerStep.STOP:
                self._data.give_up()
                return decision
            self._stop.wait(_LOOK / 5)
        self._data.create_input_logs(job)
        return None

    def _start_engine(self, job: Job) -> None:
        engine = self._engine
        engine.open(job)
        _log.info("engine up", app=engine.app_id)
        self._tell(replace(self._info, driver_url=engine.driver_url, app_id=engine.app_id))
        if not engine.wait_for_executors(_EXECUTOR_SECONDS, self._starting):
            _log.warning("no executor yet", waited=_EXECUTOR_SECONDS)
            return
        alone = not any(other.revision < self._info.revision for other in self._link.view.others)
        alone = alone and (self._replica is None or not self._replica.another_replica_runs(time.time()))
        if alone and (self._data is None or self._data.is_restored()):
            return  # Nobody runs the job meanwhile: the sooner its first batch, the better.
        if not engine.warm_up(job):
            _log.warning("rehearsal not done in time")

    def _check_continuation(self, job: Job) -> None:
        """Refuse a job that cannot go on from where it is before its predecessor stops for it."""
        from penstock.engine.driver.job_start import check_folder

        holder = current_claim(self._base)
        fresh = self._instance.assignment.fresh
        if holder is not None and not (fresh and holder.revision < self._info.revision):
            check_folder(job, self._base / holder.name)

    def _starting(self) -> bool:
        """Say that the worker is alive while it waits; False when there is no more reason to."""
        self._beat()
        return not self._stop.is_set() and self._link.view.assignment is not None

    def _until(self, going: WorkerStep) -> WorkerDecision:
        """Go on as long as that is the decision."""
        while True:
            if self._handle is not None:
                self._handle.check()
            self._beat()
            decision = decide(self._situation(), self._link.view, time.monotonic())
            if decision.step is not going:
                return decision
            if self._replica is not None and going is WorkerStep.STAND_BY:
                self._replica.refresh_copy(self._look_up)
            elif self._replica is not None and going is WorkerStep.CONTINUE:
                self._replica.check_pace(time.monotonic())
            if self._handle is not None:
                self._handle.wait_for_batch(_LOOK)
            else:
                self._stop.wait(_LOOK / 5)

    def _look_up(self) -> None:
        """Say that the worker is alive while something takes time; leave it when that is decided."""
        self._beat()
        decision = decide(self._situation(), self._link.view, time.monotonic())
        if decision.step is WorkerStep.STOP:
            raise _LeavingError(decision)

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
            self._data.start_uploads(self._starting)
        elif self._replica is None:
            refuse_if_agreed(Path(instance.storage), assignment)
        if self._replica is not None:
            self._replica.attach(replica_blueprint(job, self.place))
            decision = self._until(WorkerStep.STAND_BY)
            if decision.step is WorkerStep.STOP:
                raise _LeavingError(decision)
        self._priority.restore()
        self._start(job)
        self._enter("running")

    def _start(self, job: Job) -> None:
        """Start the query; one of several replicas comes in before."""
        assert self.place is not None, "taken over before"
        if self._replica is not None:
            self._replica.join_replicas(self._look_up)
        replica_spec = self._replica.replica_spec if self._replica is not None else None
        with self._pulse.shown():
            self._handle = self._engine.start(job, self.place, replica_spec)

    def _carry_on(self, job: Job) -> WorkerDecision:
        """Run the job, from a snapshot of another replica if this one cannot go on from what it has."""
        while True:
            try:
                return self._until(WorkerStep.CONTINUE)
            except (ReplicaDivergedError, ReplicaOutdatedError) as error:
                if self._replica is None or self._handle is None:
                    raise
                _log.warning("replica is rebuilt", reason=str(error))
                self._replica.record_rebuild(error, time.monotonic())
                self._done = self._progress()
                handle, self._handle = self._handle, None
                with suppress(PenstockError):  # What ended it is known.
                    handle.stop()
                self._start(job)

    def _leave(self, decision: WorkerDecision) -> WorkerDecision:
        self._enter("stopping")
        _log.info("stopping", outcome=decision.outcome, reason=decision.reason)
        if self._handle is not None:
            self._stop_query(self._handle, drain_loops=decision.drain_loops)
        if self._replica is not None:
            self._replica.leave()
        if self._data is not None and decision.outcome != "superseded":
            self._data.finish()
        elif self._data is not None:
            self._data.close()  # A successor has the same data, and waits for this worker.
        self._enter("stopped")
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
            # The job goes on without it; whoever has its folder next begins again.
            self._replica.record_rebuild(error, time.monotonic())

    def refuse(self, reason: str) -> None:
        """Tell the cluster that the job cannot run like this at all."""
        instance = self._instance
        self._link.end(
            Result(instance.job, instance.revision, "refused", reason, time.time()), _RESULT_SECONDS
        )

    def superseded(self, error: PenstockError) -> bool:
        """Whether an error only says that somebody else has the job now."""
        return isinstance(error, SupersededError) or (self.place is not None and not has_ledger(self.place))

    def _enter(self, phase: str) -> None:
        # At once with where a replica is: who runs and is in step counts.
        joined = self._replica.look() if self._replica is not None else None
        info = replace(self._info, phase=phase, since=time.time(), joined=joined)
        self._tell(replace(info, progress=self._progress()))
        self._beat(at_once=True)

    def _tell(self, info: WorkerInfo) -> None:
        self._info = info
        self._link.tell(info)

    def _beat(self, *, at_once: bool = False) -> None:
        """Leave word for the supervisor about once a second, as long as the engine answers."""
        now = time.monotonic()
        if not at_once and now - self._beaten < _BEAT:
            return
        if not self._engine.answers():
            return
        self._beaten = now
        joined = self._replica.look() if self._replica is not None else None
        self._tell(replace(self._info, progress=self._progress(), joined=joined))
        write_heartbeat(self._folder, self._info)

    def _progress(self) -> Progress:
        if self._handle is None:
            return self._info.progress
        report = self._handle.report
        known = self._info.progress
        if self._handle.running:
            lag = _quietly(lambda: self._handle.lag if self._handle is not None else None)
        else:
            lag = report.lag
        new = _progress_of(self._done, report, lag, known.at)
        return new if new == known else replace(new, at=time.time())


def _worker_data(instance: WorkerConfig, link: StoreLink, ring: Keyring) -> JobHome:
    # Snapshots and transfers are a sixth of what a worker imports, and most jobs have their data elsewhere.
    from penstock.backups.worker.job_home import JobHome

    return JobHome(instance, link, ring.node_token)


def _quietly(ask: Callable[[], int | None]) -> int | None:
    try:
        return ask()
    except (PenstockError, OSError):
        return None  # A source that does not answer is the query's trouble, which says so.


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
    """Have the signals that ask a worker to stop do so."""
    signal.signal(signal.SIGTERM, worker.ask_to_stop)
    signal.signal(signal.SIGINT, worker.ask_to_stop)
