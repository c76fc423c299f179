"""What must hold of every write that the store accepts, looked at in the moment it does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from penstock.cluster.assignment_documents import Assignment, BackupStatus
from penstock.cluster.document_codec import decode
from penstock.cluster.job_documents import JobSpec, JobStatus
from penstock.cluster.node_documents import Epoch
from penstock.coord import store_paths
from penstock.coord.coordination_store import Change, Check, Delete, Operation
from penstock.replicas.decisions.replica_set import is_replicated, replica_count
from penstock.replicas.replica_id import ReplicaId
from penstock.testing.memory_tree import Tree
from simulation.world import InvariantError, World
from support.settings import replace

GRACE = 4.0
"""How long a node may be missed before its work goes elsewhere."""
NOTICED = 20.0
"""A node that was back for less may never have been seen by a leader that was paused."""
LEADERS_OWN = (
    store_paths.JOBS,
    store_paths.ASSIGNMENTS,
    store_paths.STATUS,
    store_paths.ALARMS,
    store_paths.LOCATIONS,
)


class WatchedTree(Tree):
    """The servers' tree, with somebody who looks at each change that was accepted."""

    def __init__(self, observer: Callable[[Sequence[Operation], int], None]) -> None:
        super().__init__()
        self._observer = observer

    def apply(self, operation: Operation, *, owner: int) -> list[Change]:
        changes = super().apply(operation, owner=owner)
        self._observer((operation,), owner)
        return changes

    def transact(self, operations: Sequence[Operation], *, owner: int) -> list[Change]:
        changes = super().transact(operations, owner=owner)
        self._observer(operations, owner)
        return changes


class Witness:
    """Remembers what was written, and raises InvariantError for what must not be.

    - A leader's nodes are written by whoever believes to lead in the epoch that is the current one.
    - Epochs only grow. Revisions never go back; of one revision, node and code never change.
    - A job is never deleted. One that has ended or failed is assigned to nobody, and stays so, until a client
      wants it to run again.
    - Work goes elsewhere only from a node that has been missed for its time of grace.
    - Revisions are given out once for all replicas of a job. No two replicas are assigned to one node, and
      none is assigned that the job is not to have.
    """

    def __init__(self, world: World, believed: Callable[[int], int | None]) -> None:
        self.world = world
        self._believed = believed
        """The epoch in which the master of a session believes to lead."""
        self.tree = WatchedTree(self._saw)
        self.epoch = 0
        self.leader_writes = 0
        self.statuses_said = 0
        """How many of them only say how a job stands."""
        self.specs: dict[str, list[JobSpec]] = {}
        self.statuses: dict[str, JobStatus] = {}
        self.assigned: dict[str, Assignment] = {}
        self.begun: dict[str, list[tuple[int, bool]]] = {}
        """For each time a job was submitted: after which revision, and whether from scratch."""
        self.gone_since: dict[str, float] = {}
        """Since when each node has been missed, if it is."""
        self._there_since: dict[str, float] = {}
        self.promised: dict[str, int] = {}
        """By job, how many batches its copy is said to have."""
        self.over: dict[str, str] = {}
        """The phase of jobs that are over."""
        self.current: dict[ReplicaId, Assignment] = {}
        """What is assigned now."""
        self._given: dict[str, int] = {}
        """By job, the largest revision that was given to any of its replicas."""

    def _saw(self, operations: Sequence[Operation], owner: int) -> None:
        for operation in operations:
            root, _, name = operation.path.rpartition("/")
            if isinstance(operation, Check):
                continue
            if operation.path == store_paths.EPOCH and not isinstance(operation, Delete):
                self._epoch(decode(Epoch, operation.data))
            elif root == store_paths.NODES:
                self._node(name, gone=isinstance(operation, Delete))
            elif root == store_paths.KEPT and not isinstance(operation, Delete):
                kept = decode(BackupStatus, operation.data)
                if kept.store:
                    self.promised[name] = kept.batch + 1
            elif root in LEADERS_OWN:
                self._leads(operation, owner)
                self._leader_wrote(root, name, operation)
        self._began({operation.path for operation in operations})
        if any(operation.path.startswith(store_paths.ASSIGNMENTS) for operation in operations):
            self._apart()

    def _apart(self) -> None:
        """See that no two replicas of a job are assigned to one node."""
        taken: dict[tuple[str, str], ReplicaId] = {}
        for replica, assignment in self.current.items():
            for node in {assignment.node, *(slot.node for slot in assignment.executors)}:
                other = taken.setdefault((replica.job, node), replica)
                if other != replica:
                    raise InvariantError(f"{replica} and {other} are both on {node}: {self.current}")

    def _began(self, written: set[str]) -> None:
        for name, specs in self.specs.items():
            status = self.statuses.get(name)
            both = {f"{store_paths.JOBS}/{name}", f"{store_paths.STATUS}/{name}"}
            if both <= written and status is not None and status.phase == "PENDING":
                scratch = specs[-1].fresh and specs[-1].forget == status.revision
                self.begun.setdefault(name, []).append((status.revision, scratch))

    def _node(self, name: str, gone: bool) -> None:
        now = self.world.now
        if not gone:
            self._there_since[name] = now
        elif now - self._there_since[name] >= NOTICED:
            self.gone_since[name] = now

    def _epoch(self, epoch: Epoch) -> None:
        if epoch.number and epoch.number <= self.epoch:
            raise InvariantError(f"epoch {epoch.number} of {epoch.leader} follows epoch {self.epoch}")
        self.epoch = epoch.number
        self.world.tell(epoch.leader, f"begins epoch {epoch.number}")

    def _leads(self, operation: Operation, owner: int) -> None:
        self.leader_writes += 1
        self.statuses_said += operation.path.startswith(f"{store_paths.STATUS}/")
        believed = self._believed(owner)
        if believed != self.epoch:
            raise InvariantError(
                f"{operation.path} was written in epoch {self.epoch} by one who leads in epoch {believed}"
            )

    def _leader_wrote(self, root: str, name: str, operation: Operation) -> None:
        if isinstance(operation, Delete):
            if root == store_paths.JOBS:
                raise InvariantError(f"job {name} was deleted")
            if root == store_paths.ASSIGNMENTS:
                self.world.tell("leader", f"unassigns {name}")
                self.current.pop(ReplicaId.parse(name), None)
            return
        assert not isinstance(operation, Check)
        if root == store_paths.JOBS:
            self._spec(decode(JobSpec, operation.data))
        elif root == store_paths.STATUS:
            self._status(name, decode(JobStatus, operation.data))
        elif root == store_paths.ASSIGNMENTS:
            self._assignment(decode(Assignment, operation.data))

    def _spec(self, spec: JobSpec) -> None:
        self.world.tell("leader", f"wants {_told(spec)}")
        self.specs.setdefault(spec.name, []).append(spec)
        if spec.wanted == "running":
            self.over.pop(spec.name, None)

    def _status(self, name: str, status: JobStatus) -> None:
        if ReplicaId.parse(name).job != name:
            raise InvariantError(f"a replica has a status of its own: {name} is {status}")
        before = self.statuses.get(name)
        if before is None or before.phase != status.phase:
            self.world.tell("leader", f"says {name} is {status.phase}: {status.reason}")
        if before is not None and status.revision < before.revision:
            raise InvariantError(f"{name} goes back from revision {before.revision} to {status.revision}")
        was = self.over.get(name)
        if was is not None and was != status.phase:
            raise InvariantError(f"{name} was {was} and is {status.phase}, and nobody has asked for it")
        if status.phase in ("ENDED", "FAILED"):
            self.over[name] = status.phase
        self.statuses[name] = status

    def _assignment(self, assignment: Assignment) -> None:
        name = assignment.job
        before = self.assigned.get(name)
        what = f"assigns {name} revision {assignment.revision} to {assignment.node}"
        self.world.tell("leader", f"{what}: {assignment.reason}")
        job = assignment.replica.job
        if job in self.over:
            raise InvariantError(f"{name} is {self.over[job]}, and assigned to {assignment.node}")
        self._member(assignment, before)
        if before is not None and assignment.revision > before.revision:
            self._moved(before, assignment)
        if before is not None and assignment.revision < before.revision:
            raise InvariantError(f"{name}: revision {assignment.revision} follows {before.revision}")
        if before is not None and assignment.revision == before.revision:
            asked = before.settings.resources.executors
            resources = dataclasses.replace(assignment.settings.resources, executors=asked)
            same = replace(
                assignment,
                executors=before.executors,
                until=before.settings.until,
                resources=resources,
                epoch=before.epoch,
                asked=before.asked,
                repeats=before.repeats,
                changed=before.changed,
            )
            if assignment.membership is not None and assignment.membership.runs:
                same = replace(same, membership=before.membership)
            if same != before:
                raise InvariantError(f"{name}: a revision is changed: {before} → {assignment}")
        self.assigned[name] = self.current[assignment.replica] = assignment

    def _member(self, assignment: Assignment, before: Assignment | None) -> None:
        """See that a replica is wanted, and that no other ever had its revision."""
        name, job = assignment.job, assignment.replica.job
        spec = self.specs[job][-1]
        is_plain = assignment.membership is None
        if assignment.replica.index >= replica_count(spec) or is_plain == is_replicated(spec):
            raise InvariantError(
                f"{name} is assigned as {assignment.membership}, and wanted is {_told(spec)}"
            )
        if before is None or before.revision != assignment.revision:
            if assignment.revision <= self._given.get(job, 0):
                raise InvariantError(f"revision {assignment.revision} of {name} was given out before")
            self._given[job] = assignment.revision

    def _moved(self, before: Assignment, assignment: Assignment) -> None:
        since = self.gone_since.get(before.node, 0.0)
        if assignment.reason.endswith("is lost") and since and self.world.now - since < GRACE:
            raise InvariantError(f"node {before.node} is given up after {self.world.now - since:.1f} s")


def _told(spec: JobSpec) -> str:
    drain = ", drained" if spec.drain else ""
    replicas, cores = spec.settings.replicas, spec.settings.resources.cores
    return (
        f"{spec.name} {spec.wanted}{drain}: {replicas}, generation {spec.generation}, {spec.bundle}, on "
        f"{spec.driver or 'any'} of {spec.settings.placement.nodes}, {cores} cores, after {spec.after}, "
        f"restarts {spec.restarts}{', fresh' if spec.fresh else ''}"
    )
