"""A worker without Spark: its decisions and its line to the store are the real ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.cluster.assignment_documents import Assignment
from penstock.cluster.worker_documents import Result, WorkerInfo
from penstock.cluster.worker_policy import (
    WorkerDecision,
    WorkerSituation,
    WorkerStep,
    decide,
    ends_when_drained,
    runs,
)
from penstock.coord.coordination_store import Store
from penstock.daemon.store_link import StoreLink
from penstock.errors import PenstockError
from simulation.actors import Actor
from simulation.replica import Place
from simulation.storage import Claim, InUseError, Storage, TakenError
from simulation.worker_data import JobHome
from simulation.world import World

START_SECONDS = (2.0, 6.0)
RESULT_SECONDS = 60.0
GOODBYE_SECONDS = 3.0
BACKLOG = 3
"""So many batches until the sources of a job that is to be drained have no more."""

POISON = "poison"
"""A bundle whose name begins like this is refused by every worker."""
FAULTY = "faulty"
"""A bundle whose name begins like this makes every worker die."""


class SteppedLink(StoreLink):
    """A worker's line to the store, without its thread."""

    def turn(self, store: Store) -> None:
        """Do what the thread does between two waits. Raises PenstockError."""
        try:
            self._synchronise(store)
        except PenstockError:
            self._mark_stale(None)
            raise

    @property
    def up_to_date(self) -> bool:
        """Whether the store has all it was told."""
        return self._published == self._current

    @property
    def concluding(self) -> bool:
        """Whether a result is still to be written."""
        return self._result is not None

    def conclude(self, result: Result) -> None:
        """Have the result written with the next turns."""
        self._result = result


class Worker(Actor):
    """The process of one job. Machines start it; ``exited`` is told how it ended."""

    def __init__(
        self,
        world: World,
        storage: Storage[Worker],
        assignment: Assignment,
        node: str,
        attempt: int,
        exited: Callable[[str, str], None],
    ) -> None:
        self.assignment = assignment
        self.node = node
        self.claim: Claim = (assignment.revision, attempt)
        self.info = WorkerInfo(assignment.job, assignment.revision, attempt, node, 0, "starting", world.now)
        if assignment.executors:
            application = f"{assignment.job}-{assignment.revision}-{attempt}"
            storage.applications[application] = self
            self.info = replace(self.info, app_id=application, driver_url=f"spark://{node}")
        kept = assignment.settings.data_location == "node"
        self.folder = storage.of(assignment.job, node if kept else "")
        self._storage = storage
        self.asked_to_stop = False
        self.hung = False
        self.beaten = 0.0
        self.next_batch = 0
        self.begun = False
        """Whether it has begun to work on data that is with its node."""
        self._exited = exited
        self._link = SteppedLink(self.connect, assignment, self.info)
        self._data = JobHome(world, storage, self._link, assignment, node, self.claim) if kept else None
        self._place = Place(storage, assignment, self.claim) if assignment.membership else None
        self._line: Store | None = None
        self._ready_at = world.now + world.random.uniform(*START_SECONDS)
        self._since = 0.0
        self._left = BACKLOG
        self._stands_by = False
        self._leaving: WorkerDecision | None = None
        self._leave_by = 0.0
        self._result_by = 0.0
        super().__init__(world, f"{assignment.job}-{assignment.revision}-{attempt}@{node}", 1.0)

    @property
    def phase(self) -> str:
        """What it says of itself."""
        return self.info.phase

    def step(self) -> None:
        """Look at the store, then do what is next."""
        if self.hung:
            return
        self._talk()
        self.beaten = self.world.now
        if self._leaving is not None:
            self._go()
        elif self.phase == "starting":
            self._start()
        elif self.phase == "ready":
            self._wait()
        else:
            self._work()

    def _talk(self) -> None:
        try:
            if self._line is None:
                self._line = self.connect()
                self._line.listen(self._link._session_changed)
            self._link.turn(self._line)
        except PenstockError as error:
            self.world.tell(self.name, f"has no store: {error}")

    def _start(self) -> None:
        if self.world.now < self._ready_at:
            return
        if self.assignment.bundle.startswith(FAULTY):
            self.exit("failed", "its code is faulty")
        elif self.assignment.bundle.startswith(POISON):
            self._conclude("refused", "its code is poison")
            self._leave(WorkerDecision(WorkerStep.STOP, "its code is poison", "refused"))
        elif self._has_data():
            self._since = self.world.now
            self._enter("ready")

    def _has_data(self) -> bool:
        """Whether data that is with its node is here; leave if nobody wants it here any more."""
        if self._data is None or self._data.is_restored():
            return True
        decision = decide(self._situation(), self._link.view, self.world.now)
        if decision.step is WorkerStep.STOP:
            self._leave(decision)
        return False

    def _wait(self) -> None:
        decision = decide(self._situation(), self._link.view, self.world.now)
        if decision.step is WorkerStep.STOP:
            self._leave(decision)
        elif decision.step is WorkerStep.TAKE_OVER:
            self._take_over(decision.reason)
        elif decision.step is WorkerStep.JOIN:
            self._come_in()

    def _take_over(self, reason: str) -> None:
        self.interlude()
        try:
            self.next_batch = self.folder.take_over(self.claim, forget=self._forget())
        except TakenError as error:
            self.exit("superseded", str(error))
        except InUseError as error:
            self.exit("failed", str(error))
        else:
            self.world.tell(self.name, f"takes over: {reason}, batch {self.next_batch} is next")
            if self._data is not None:
                self._data.introduce(emptied=self.folder.takeovers[-1][1])
            else:
                self._note_begun()
            self._stands_by = not runs(self._link.view)
            if not self._stands_by:
                self._come_in()

    def _note_begun(self) -> None:
        self.begun = True
        self._storage.begun.add((self.assignment.job, self.assignment.revision))

    def _come_in(self) -> None:
        """Go where the other replicas are, if there are any, and run."""
        if self.folder.holder != self.claim:
            self.exit("superseded", "a later worker has the folder")
            return
        self._stands_by = False
        if self._place is not None:
            self.next_batch = self._place.join_replicas(self.folder)
            self.info = replace(self.info, joined=self._place.joined)
        self._enter("running")

    def _forget(self) -> int:
        assignment = self.assignment
        return assignment.forget if assignment.fresh and assignment.forget is not None else -1

    def _work(self) -> None:
        decision = decide(self._situation(), self._link.view, self.world.now)
        self.interlude()
        if self._data is not None and not self._introduced(self._data):
            return
        try:
            self._commit()
        except TakenError as error:
            self.exit("superseded", str(error))
            return
        if self._data is not None:
            self._data.copy(self.folder)
            self._data.forget_others()
        if ends_when_drained(self._link.view):
            self._left -= 1
        if decision.step is WorkerStep.STOP:
            self._leave(decision)

    def _commit(self) -> None:
        """Commit a batch; a replica that is behind commits some."""
        for _ in range(self._place.batches(self.folder) if self._place is not None else 1):
            self.folder.commit(self.claim, self.next_batch)
            self.next_batch += 1
        if self._place is not None and self._place.committed(self.folder):
            self.info = replace(self.info, joined=self._place.joined)
            self._link.tell(self.info)

    def _introduced(self, data: JobHome) -> bool:
        """Whether it may begin; it leaves if the data is elsewhere, or nobody wants it here any more."""
        if self.begun or data.wait_origin_written():
            if not self.begun:
                self._storage.check_promise(self.folder)
            self._note_begun()
        elif data.outdated:
            data.discard_restore()
            self.exit("failed", "its data is newer on another node")
        elif self.asked_to_stop or self._link.view.assignment is None:
            self.exit("superseded", "it is not wanted here any more")
        return self.begun

    def _situation(self) -> WorkerSituation:
        return WorkerSituation(
            *self.claim,
            self.assignment.generation,
            running=self.phase == "running",
            since=self._since,
            asked_to_stop=self.asked_to_stop,
            drained=self._left <= 0,
            stands_by=self._stands_by,
        )

    def _leave(self, decision: WorkerDecision) -> None:
        self._enter("stopped")
        if decision.final:
            self._conclude(decision.outcome, decision.reason)
        self._leaving = decision
        self._leave_by = self.world.now + GOODBYE_SECONDS

    def _conclude(self, outcome: str, reason: str) -> None:
        job, revision = self.assignment.job, self.assignment.revision
        self._link.conclude(Result(job, revision, outcome, reason, self.world.now))
        self._result_by = self.world.now + RESULT_SECONDS

    def _go(self) -> None:
        """Leave when the store knows all it has to know, or has been away for too long."""
        assert self._leaving is not None
        if self._link.concluding and self.world.now < self._result_by:
            self._leave_by = self.world.now + GOODBYE_SECONDS
        elif self._link.up_to_date or self.world.now >= self._leave_by:
            self.exit(self._leaving.outcome, self._leaving.reason)

    def exit(self, outcome: str, reason: str) -> None:
        """End by itself."""
        self.world.tell(self.name, f"exits, {outcome}: {reason}")
        self._exited(outcome, reason)
        self.leave()

    def _enter(self, phase: str) -> None:
        self.info = replace(self.info, phase=phase, since=self.world.now)
        self._link.tell(self.info)
        self.schedule(0.01)

    def woken(self) -> bool:
        """Whether the store is to be told something at once."""
        return self._link._published is not None and self._link._has_work()
