"""A cluster of documents alone: random events change it, and a leader decides until it comes to rest.

There are no processes. What workers and supervisors would write is written here between two decisions, so
that whatever a leader still does on its own is its own fault.
"""

from __future__ import annotations

from random import Random

from penstock.cluster.assignment_documents import Assignment, BackupLocation, BackupStatus
from penstock.cluster.cluster_state import ClusterState, Rules, missed, needed_nodes
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.leader_actions import Action, Assign, Clear, Raise, SetStatus, Unassign, UpdateSpec
from penstock.cluster.node_documents import NodeInfo
from penstock.cluster.reconcile import reconcile
from penstock.cluster.worker_documents import Failures, WorkerInfo
from penstock.job_settings import Resources
from penstock.replicas.decisions.replica_set import is_replicated
from penstock.replicas.replica_id import ReplicaId
from penstock.schedule.job_placer import JobPlacer
from support.settings import make_spec, replace

GIB = 1 << 30
MOST_STEPS = 8
"""Steps after which a leader must have nothing more to do. A job that is freed makes room for another."""
UNBRAKED = Rules(free_repeats=1 << 30)


class NoRestError(AssertionError):
    """The leader goes on acting although nothing changes."""


class SteadyCluster:
    """Documents, and the events that change them."""

    def __init__(self, seed: int, rules: Rules = UNBRAKED) -> None:
        self.random = Random(seed)
        self.rules = rules
        self.now = 1000.0
        self.specs: dict[str, JobSpec] = {}
        self.told: list[str] = []
        names = [f"n{number + 1}" for number in range(self.random.randint(1, 4))]
        self.all_nodes = {name: self._node(name) for name in names}
        self.actual = ClusterState(nodes=dict(self.all_nodes))

    def live(self, events: int) -> None:
        """Have some events happen, and the leader come to rest after each."""
        for _ in range(events):
            self._happen()
            self.settle()

    def settle(self) -> None:
        """Decide until there is nothing to do. Raises NoRestError if that takes too long."""
        for _ in range(MOST_STEPS):
            if not self.step():
                return
        raise NoRestError("\n".join(self.told[-40:]))

    def step(self) -> list[Action]:
        """Decide once, and write what was decided."""
        self.now += 0.02
        actions = reconcile(self.specs, self.actual, self.now, epoch=1, placer=JobPlacer(), rules=self.rules)
        room = self._overcommitted()
        for action in actions:
            self._write(action)
        worse = {node: used for node, used in self._overcommitted().items() if used > room.get(node, 0)}
        if worse:
            raise NoRestError(f"more is assigned than fits: {worse}\n" + "\n".join(self.told[-20:]))
        return actions

    def _overcommitted(self) -> dict[str, float]:
        """Return by how many cores and GiB each node has more than it can take."""
        used: dict[str, list[float]] = {name: [0.0, 0.0] for name in self.actual.nodes}
        for assignment in self.actual.assignments.values():
            size = assignment.settings.resources
            places = [(assignment.node, size.cores, size.memory)]
            places += [(slot.node, slot.cores, slot.memory) for slot in assignment.executors]
            for node, cores, memory in places:
                if node in used:
                    used[node][0] += cores
                    used[node][1] += memory
        nodes = self.actual.nodes
        over = {
            name: max(cores - nodes[name].cores, 0) + max(memory - nodes[name].memory, 0) / GIB
            for name, (cores, memory) in used.items()
        }
        return {name: much for name, much in over.items() if much > 0}

    def _write(self, action: Action) -> None:
        actual = self.actual
        match action:
            case Assign(assignment, reason):
                self.told.append(
                    f"  {assignment.job} r{assignment.revision} on {assignment.node} "
                    f"{[slot.node for slot in assignment.executors]} {assignment.restore}: {reason}"
                )
                self.actual = replace(
                    actual, assignments={**actual.assignments, assignment.replica: assignment}
                )
            case Unassign(replica, reason):
                self.told.append(f"  {replica} is unassigned: {reason}")
                left = {one: found for one, found in actual.assignments.items() if one != replica}
                self.actual = replace(actual, assignments=left)
            case SetStatus(job, status):
                self.told.append(f"  {job} is {status.phase}: {status.reason}")
                self.actual = replace(actual, statuses={**actual.statuses, job: status})
            case UpdateSpec(spec, reason):
                self.told.append(f"  {spec.name} is wanted otherwise: {reason}")
                self.specs[spec.name] = spec
            case Raise(alarm):
                self.told.append(f"  alarm {alarm.id}: {alarm.reason}")
                self.actual = replace(actual, alarms={**actual.alarms, alarm.id: alarm})
            case Clear(id):
                left_alarms = {name: one for name, one in actual.alarms.items() if name != id}
                self.actual = replace(actual, alarms=left_alarms)
            case _:
                pass
        self._miss()

    def _miss(self) -> None:
        needed = needed_nodes(self.actual.assignments)
        absent = missed(self.actual.absent_since, self.actual.nodes, needed, self.now)
        self.actual = replace(self.actual, absent_since=absent)

    def _happen(self) -> None:
        events = (
            self._submit,
            self._submit,
            self._scale,
            self._scale,
            self._move,
            self._move,
            self._restrict,
            self._replicate,
            self._restart,
            self._drain,
            self._lose_node,
            self._lose_node,
            self._return_nodes,
            self._resize_node,
            self._workers_run,
            self._workers_run,
            self._workers_die,
            self._keep,
            self._keep,
            self._fail,
            self._pass_time,
        )
        event = self.random.choice(events)
        self.told.append(f"{event.__name__[1:]}: {list(self.actual.nodes)}")
        event()
        self._miss()

    def _node(self, name: str) -> NodeInfo:
        labels = {"disk": "ssd"} if self.random.random() < 0.5 else {}
        rack = self.random.choice(("", "", "a", "b"))
        cores, memory = self.random.choice((1, 2, 2, 4)), self.random.choice((2, 2, 4)) * GIB
        return NodeInfo(name, "", cores, memory, rack, labels, url=f"http://{name}")

    def _resources(self, executors: bool = True) -> Resources:
        random = self.random
        return Resources(
            random.choice((1, 1, 2)),
            random.choice((1, 1, 2)) * GIB,
            random.choice((0, 0, 1, 2)) if executors else 0,
            random.choice((1, 1, 2)),
            GIB,
        )

    def _some_nodes(self) -> tuple[str, ...]:
        names = sorted(self.all_nodes)
        if self.random.random() < 0.7:
            return ()
        return tuple(sorted(self.random.sample(names, self.random.randint(1, len(names)))))

    def _submit(self) -> None:
        random = self.random
        name = random.choice(("a", "b", "c", "d"))
        if name in self.specs:
            return
        location = random.choice(("shared", "shared", "node"))
        some = ((0, False), (0, False), (1, False), (0, True))
        k, warm = random.choice(some) if location == "shared" else (0, False)
        self.specs[name] = make_spec(
            name,
            "b",
            "job.py",
            resources=self._resources(location == "shared"),
            nodes=self._some_nodes(),
            labels={"disk": "ssd"} if random.random() < 0.2 else {},
            data_location=location,
            k=k,
            warm_standby=warm,
            agreed=k > 0,
            structure={"qos": {"priority": random.choice((2, 5, 8))}},
            submitted=self.now,
        )
        self.told.append(f"  {self.specs[name]}")

    def _job(self) -> JobSpec | None:
        return self.specs[self.random.choice(sorted(self.specs))] if self.specs else None

    def _respecify(self, spec: JobSpec) -> None:
        self.told.append(f"  {spec}")
        self.specs[spec.name] = spec

    def _scale(self) -> None:
        spec = self._job()
        if spec is not None:
            self._respecify(replace(spec, resources=self._resources(spec.settings.data_location == "shared")))

    def _move(self) -> None:
        spec = self._job()
        if spec is not None:
            by = self.random.choice(("user", "rebalance"))
            driver = self.random.choice(sorted(self.all_nodes))
            self._respecify(replace(spec, driver=driver, driver_by=by))

    def _restrict(self) -> None:
        spec = self._job()
        if spec is not None:
            self._respecify(replace(spec, nodes=self._some_nodes()))

    def _replicate(self) -> None:
        spec = self._job()
        if spec is not None and spec.settings.data_location == "shared":
            k, warm = self.random.choice(((0, False), (1, False), (2, False), (0, True)))
            self._respecify(replace(spec, k=k, warm_standby=warm, agreed=spec.agreed or is_replicated(spec)))

    def _restart(self) -> None:
        spec = self._job()
        if spec is not None:
            self._respecify(replace(spec, restarts=spec.restarts + 1))

    def _drain(self) -> None:
        spec = self._job()
        if spec is not None and self.random.random() < 0.5:
            self._respecify(replace(spec, wanted="ended", drain=True))

    def _lose_node(self) -> None:
        gone = self.random.choice(sorted(self.all_nodes))
        nodes = {name: node for name, node in self.actual.nodes.items() if name != gone}
        workers = {
            job: tuple(worker for worker in found if worker.node != gone)
            for job, found in self.actual.workers.items()
        }
        if self.random.random() < 0.2:  # Its supervisor alone is gone.
            workers = dict(self.actual.workers)
        self.actual = replace(self.actual, nodes=nodes, workers=workers)
        self._miss()
        self.now += self.random.choice((0.0, 10.0))

    def _return_nodes(self) -> None:
        self.actual = replace(self.actual, nodes=dict(self.all_nodes))

    def _resize_node(self) -> None:
        name = self.random.choice(sorted(self.all_nodes))
        self.all_nodes[name] = self._node(name)
        if name in self.actual.nodes:
            self.actual = replace(self.actual, nodes={**self.actual.nodes, name: self.all_nodes[name]})

    def _workers_run(self) -> None:
        """Have the workers of all assignments do as they are told."""
        workers: dict[ReplicaId, tuple[WorkerInfo, ...]] = {}
        for replica, assignment in self._sorted_assignments():
            if assignment.node in self.actual.nodes and self.random.random() < 0.8:
                runs = assignment.membership is None or assignment.membership.runs
                phase = self.random.choice(("starting", "ready", "running", "running"))
                phase = phase if runs else "ready"
                workers[replica] = (
                    WorkerInfo(str(replica), assignment.revision, 1, assignment.node, 1, phase, self.now),
                )
            else:
                workers[replica] = self.actual.workers.get(replica, ())
        self.actual = replace(self.actual, workers=workers)

    def _workers_die(self) -> None:
        left = {job: found for job, found in self.actual.workers.items() if self.random.random() < 0.5}
        self.actual = replace(self.actual, workers=left)

    def _keep(self) -> None:
        """Have a report of where data is come in, perhaps late and of an older revision."""
        for replica, assignment in self._sorted_assignments():
            name = str(replica)
            if assignment.settings.data_location != "node" or self.random.random() < 0.4:
                continue
            origin = self.random.choice((assignment.node, self.random.choice(sorted(self.all_nodes))))
            late = self.random.choice((0, 0, 1, 2))
            store = self.random.choice(["", *sorted(self.all_nodes)])
            kept = BackupStatus(name, origin, max(assignment.revision - late, 1), 1, store, f"http://{store}")
            kept = kept if store != origin else replace(kept, store="", store_url="")
            known = self.actual.kept.get(name)
            if known is not None and known.revision > kept.revision:
                continue
            self.told.append(f"  {kept}")
            self.actual = replace(self.actual, kept={**self.actual.kept, name: kept})
            if self.random.random() < 0.5:
                redeploy = self.random.choice(sorted(self.all_nodes))
                location = BackupLocation(name, store or origin, "", redeploy)
                self.actual = replace(self.actual, locations={**self.actual.locations, name: location})

    def _sorted_assignments(self) -> list[tuple[ReplicaId, Assignment]]:
        """Return what is assigned in the order that seeds were found with, that of texts."""
        return sorted(self.actual.assignments.items(), key=lambda item: str(item[0]))

    def _fail(self) -> None:
        for replica, assignment in self._sorted_assignments():
            if self.random.random() < 0.5:
                count = self.random.choice((1, 3, 3, 4))
                found = Failures(
                    str(replica), assignment.revision, count, "it died", assignment.node, self.now
                )
                self.actual = replace(self.actual, failures={**self.actual.failures, replica: found})

    def _pass_time(self) -> None:
        self.now += self.random.choice((1.0, 5.0, 100.0))


def assigned_to(cluster: SteadyCluster, job: str) -> list[Assignment]:
    """Return what is assigned of a job and its replicas."""
    assignments = cluster.actual.assignments
    return [assignments[replica] for replica in sorted(assignments) if replica.job == job]
