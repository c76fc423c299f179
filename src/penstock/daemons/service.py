"""What users can ask of a master. Reads come from its copy of the tree; changes are written as the leader."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from typing import Any, Protocol

from penstock import __version__
from penstock.cluster.alarms import JOB_FAILED, alarm_id
from penstock.cluster.codec import encode
from penstock.cluster.documents import (
    Alarm,
    Code,
    JobSpec,
    JobStatus,
    NodeInfo,
    NodeReport,
    Resources,
    Result,
)
from penstock.cluster.reconcile import ACTIVE, ENDED, FAILED, PENDING
from penstock.cluster.view import newest
from penstock.coord import paths
from penstock.coord.store import Check, ConflictError, Create, Delete, Operation, Put, StoreError
from penstock.daemons.interface import (
    InvalidError,
    NotLeaderError,
    RefusedError,
    Submission,
    UnknownError,
)
from penstock.daemons.master import Master
from penstock.daemons.metrics import render
from penstock.graph.compatibility import obstacles
from penstock.graph.names import name_fault
from penstock.schedule.explaining import explain_placement
from penstock.schedule.rebalancing import rebalance
from penstock.schedule.strategies import UnknownStrategyError, known

_KEPT = {"shared": "where all nodes share it", "node": "with its node"}


class Bundles(Protocol):
    """Where code is kept."""

    def put(self, sha256: str, signature: str, data: bytes) -> dict[str, Any]:
        """Check and keep a bundle. Raises InvalidError."""
        ...

    def has(self, sha256: str) -> bool:
        """Whether there is such a bundle."""
        ...

    def forget_others(self, used: Collection[str]) -> None:
        """Forget bundles that no job names, unless they are new."""
        ...


class LogReader(Protocol):
    """Reads what the processes of all nodes have logged."""

    def read(self, job: str, nodes: Mapping[str, NodeInfo], cursor: str, limit: int) -> dict[str, Any]:
        """Return lines in order of time and where to go on. Raises InvalidError for a wrong cursor."""
        ...


class ClusterService:
    """Implements :class:`penstock.daemons.interface.MasterService` over a master."""

    def __init__(
        self, master: Master, bundles: Bundles, logs: LogReader, clock: Callable[[], float] = time.time
    ) -> None:
        self._master = master
        self._documents = master.documents
        self._bundles = bundles
        self._logs = logs
        self._clock = clock

    def is_leader(self) -> bool:
        return self._master.epoch is not None

    def leader_url(self) -> str:
        if self._master.epoch is not None:
            return self._master.info.url
        epoch = self._documents.epoch()
        masters = self._documents.masters()
        return epoch.url if epoch is not None and epoch.leader in masters else ""

    def ready(self) -> tuple[bool, str]:
        if not self._master.connected:
            return False, "the coordination store cannot be reached"
        if not self.leader_url():
            return False, "no master leads at the moment"
        return True, "leads" if self.is_leader() else f"follows {self.leader_url()}"

    def cluster(self) -> dict[str, Any]:
        epoch = self._documents.epoch()
        return {
            "epoch": epoch.number if epoch else 0,
            "leader": epoch.leader if epoch else "",
            "since": epoch.since if epoch else 0.0,
            "masters": [asdict(master) for _, master in sorted(self._documents.masters().items())],
            "nodes": len(self._documents.all(NodeInfo, paths.NODES)),
            "jobs": len(self._documents.jobs()),
            "version": __version__,
        }

    def nodes(self) -> list[dict[str, Any]]:
        found = self._documents.all(NodeInfo, paths.NODES)
        return [self._node(found[name]) for name in sorted(found)]

    def node(self, name: str) -> dict[str, Any]:
        found = self._documents.one(NodeInfo, f"{paths.NODES}/{_named(name)}")
        if found is None:
            raise UnknownError(f"there is no node {name!r}")
        return self._node(found)

    def _node(self, info: NodeInfo) -> dict[str, Any]:
        report = self._documents.one(NodeReport, f"{paths.REPORTS}/{info.name}")
        jobs = sorted(
            name
            for name, assignment in self._documents.assignments().items()
            if info.name in (assignment.node, *(slot.node for slot in assignment.executors))
        )
        return {**asdict(info), "report": asdict(report) if report else None, "jobs": jobs}

    def jobs(self) -> list[dict[str, Any]]:
        return [self._summary(spec) for _, spec in sorted(self._documents.jobs().items())]

    def _summary(self, spec: JobSpec) -> dict[str, Any]:
        status = self._status(spec.name)
        assignment = self._documents.assignments().get(spec.name)
        worker = newest(self._documents.workers().get(spec.name, ()))
        result = self._documents.one(Result, f"{paths.RESULTS}/{spec.name}")
        failures = self._documents.failures().get(spec.name)
        progress = (
            worker.progress if worker else result.progress if result and status.phase == ENDED else None
        )
        return {
            "name": spec.name,
            "phase": status.phase,
            "reason": status.reason,
            "since": status.since,
            "generation": spec.generation,
            "node": worker.node if worker else assignment.node if assignment else "",
            "executors": len(assignment.executors) if assignment else 0,
            "progress": asdict(progress) if progress else None,
            "failures": failures.count if failures and failures.revision > spec.after else 0,
        }

    def job(self, name: str) -> dict[str, Any]:
        spec = self._spec(name)
        assignment = self._documents.assignments().get(name)
        result = self._documents.one(Result, f"{paths.RESULTS}/{name}")
        failures = self._documents.failures().get(name)
        workers = self._documents.workers().get(name, ())
        return {
            **self._summary(spec),
            "spec": asdict(spec),
            "status": asdict(self._status(name)),
            "assignment": asdict(assignment) if assignment else None,
            "workers": [asdict(worker) for worker in workers],
            "result": asdict(result) if result else None,
            "failures": asdict(failures) if failures else None,
        }

    def alarms(self) -> list[dict[str, Any]]:
        found = self._documents.all(Alarm, paths.ALARMS).values()
        return [asdict(alarm) for alarm in sorted(found, key=lambda alarm: (-alarm.since, alarm.id))]

    def put_bundle(self, sha256: str, signature: str, data: bytes) -> dict[str, Any]:
        self._lead()
        return self._bundles.put(sha256, signature, data)

    def submit(self, submission: Submission, bundle: str) -> dict[str, Any]:
        self._lead()
        name = _named(str(submission.structure.get("name", "")))
        self._check(submission, bundle)
        known = self._documents.jobs().get(name)
        if known is not None and self._status(name).phase in ACTIVE:
            raise RefusedError(
                f"job {name!r} is {self._status(name).phase}: update it, or kill it and submit it again"
            )
        if known is not None and not submission.fresh:
            self._check_compatible(known, submission)
            if known.keep != submission.keep:
                told = f"what job {name!r} has done is kept {_KEPT[known.keep]}"
                raise RefusedError(f"{told}: submit it with --keep {known.keep}, or from scratch (--fresh)")
        spec = JobSpec(
            name=name,
            bundle=bundle,
            entry=submission.entry,
            generation=(known.generation if known else 0) + 1,
            until=submission.until,
            fresh=submission.fresh or (known is not None and known.fresh),
            forget=self._status(name).revision if submission.fresh or known is None else known.forget,
            resources=submission.resources,
            nodes=submission.nodes,
            labels=submission.labels,
            spark_master=submission.spark_master,
            conf=submission.conf,
            structure=submission.structure,
            keep=submission.keep,
            strategy=submission.strategy,
            after=self._status(name).revision,
            submitted=self._clock(),
        )
        return self._change(spec, "it was submitted", again=True)

    def update(self, name: str, submission: Submission, bundle: str) -> dict[str, Any]:
        self._lead()
        spec = self._active(name)
        if submission.structure.get("name") != name:
            found = submission.structure.get("name")
            raise RefusedError(
                f"the new code is a job {found!r}, not {name!r}: submit it as a job of its own"
            )
        self._check(submission, bundle)
        self._check_compatible(spec, submission)
        if bundle == spec.bundle and submission.entry == spec.entry:
            return self.job(name)
        changed = replace(
            spec,
            bundle=bundle,
            entry=submission.entry,
            structure=submission.structure,
            generation=spec.generation + 1,
            after=self._status(name).revision,  # The failures of other code are not those of this one.
            before=Code(spec.bundle, spec.entry, spec.structure, spec.generation),
        )
        return self._change(changed, "its code was updated")

    def migrate(self, name: str, node: str) -> dict[str, Any]:
        self._lead()
        spec = self._active(name)
        self.node(node)
        if spec.keep == "node":
            raise RefusedError(
                f"job {name!r} keeps its data with its node: it moves when that node is lost, and only then"
            )
        if spec.nodes and node not in spec.nodes:
            raise RefusedError(
                f"job {name!r} is for {', '.join(spec.nodes)} only: scale it to other nodes first"
            )
        return self._change(replace(spec, driver=node, driver_by="user"), f"it was moved to {node}")

    def scale(self, name: str, changes: Mapping[str, int], nodes: tuple[str, ...] | None) -> dict[str, Any]:
        self._lead()
        spec = self._active(name)
        known = {field.name for field in fields(Resources)}
        for field, value in changes.items():
            if field not in known:
                raise InvalidError(f"there is no {field} to scale: it is one of {', '.join(sorted(known))}")
            if (
                isinstance(value, bool)
                or not isinstance(value, int)
                or value < (0 if field == "executors" else 1)
            ):
                raise InvalidError(f"{field} cannot be {value!r}")
        for node in nodes or ():
            self.node(node)
        driver = spec.driver if nodes is None or spec.driver in nodes else ""
        changed = replace(
            spec,
            resources=replace(spec.resources, **changes),
            nodes=spec.nodes if nodes is None else nodes,
            driver=driver,
        )
        if spec.keep == "node" and changed.resources.executors:
            raise InvalidError(f"job {name!r} keeps its data with its node: it can have no executors")
        if changed == spec:
            raise InvalidError("nothing to scale was given")
        assigned = self._documents.assignments().get(name)
        if spec.keep == "node" and changed.nodes and assigned and assigned.node not in changed.nodes:
            raise RefusedError(f"job {name!r} keeps its data on {assigned.node}: leave it that node")
        return self._change(changed, "it was scaled")

    def kill(self, name: str, drain: bool) -> dict[str, Any]:
        self._lead()
        spec = self._spec(name)
        if not (spec.drain and not drain):  # What is drained may still be ended at once.
            self._active(name)
        elif self._status(name).phase not in ACTIVE:
            raise RefusedError(f"job {name!r} is {self._status(name).phase}: it has ended")
        return self._change(replace(spec, wanted="ended", drain=drain), "it was killed")

    def resubmit(self, name: str, fresh: bool) -> dict[str, Any]:
        self._lead()
        spec = self._spec(name)
        phase = self._status(name).phase
        if phase in (ENDED, FAILED):
            changed = replace(spec, wanted="running", drain=False, after=self._status(name).revision)
            # What was to be forgotten the last time, and perhaps was not yet, still is.
            changed = replace(changed, fresh=True, forget=changed.after) if fresh else changed
            return self._change(changed, "it was submitted again", again=True)
        if spec.wanted == "ended":
            raise RefusedError(f"job {name!r} is {phase}: submit it again when it has ended")
        if fresh:
            raise RefusedError(f"job {name!r} is {phase}: kill it before it starts from scratch")
        return self._change(replace(spec, restarts=spec.restarts + 1), "a new worker was asked for")

    def rebalance(self, dry_run: bool) -> dict[str, Any]:
        self._lead()
        specs = self._documents.jobs()
        moves = rebalance(specs, self._documents.actual())
        if not dry_run:
            for move in moves:
                moved = replace(specs[move.job], driver=move.target, driver_by="rebalance")
                self._change(moved, f"rebalanced: {move.reason}")
        return {"moves": [asdict(move) for move in moves], "applied": not dry_run}

    def placement(self, name: str) -> dict[str, Any]:
        spec = self._spec(name)
        default = self._master.strategies.default
        return explain_placement(self._documents.jobs(), self._documents.actual(), spec.name, default=default)

    def clear(self, alarm: str) -> None:
        self._lead()
        found = self._documents.one(Alarm, f"{paths.ALARMS}/{_named(alarm)}")
        if found is None:
            raise UnknownError(f"there is no alarm {alarm!r}")
        if found.kind == JOB_FAILED and found.subject in self._documents.jobs():
            self.resubmit(found.subject, fresh=False)
            return
        self._write([Delete(f"{paths.ALARMS}/{alarm}")])

    def logs(self, name: str, cursor: str, limit: int) -> dict[str, Any]:
        self._spec(name)
        return self._logs.read(name, self._documents.all(NodeInfo, paths.NODES), cursor, limit)

    def metrics(self) -> str:
        return render(self._documents, leads=self.is_leader(), connected=self._master.connected)

    def _lead(self) -> None:
        if not self.is_leader():
            raise NotLeaderError(self.leader_url())

    def _spec(self, name: str) -> JobSpec:
        spec = self._documents.jobs().get(_named(name))
        if spec is None:
            raise UnknownError(f"there is no job {name!r}")
        return spec

    def _status(self, name: str) -> JobStatus:
        known = self._documents.one(JobStatus, f"{paths.STATUS}/{name}")
        return known or JobStatus(PENDING, "it was submitted", 0.0)

    def _active(self, name: str) -> JobSpec:
        spec = self._spec(name)
        phase = self._status(name).phase
        if phase not in ACTIVE or spec.wanted == "ended":
            raise RefusedError(f"job {name!r} is {phase}: submit it again first")
        return spec

    def _check(self, submission: Submission, bundle: str) -> None:
        if not self._bundles.has(bundle):
            raise InvalidError(f"there is no bundle {bundle!r}: send it first")
        if submission.until not in (None, "drained"):
            raise InvalidError(f"until is 'drained' or nothing, not {submission.until!r}")
        for field in fields(Resources):
            value = getattr(submission.resources, field.name)
            if value < (0 if field.name == "executors" else 1):
                raise InvalidError(f"{field.name} cannot be {value!r}")
        if submission.spark_master and submission.resources.executors:
            raise InvalidError("executors are for jobs without a Spark master of their own")
        if submission.keep not in ("shared", "node"):
            raise InvalidError(f"data is kept 'shared' or with its 'node', not {submission.keep!r}")
        if submission.keep == "node" and (submission.resources.executors or submission.spark_master):
            raise InvalidError("a job that keeps its data with its node runs on that node alone")
        if submission.strategy:
            try:
                known(submission.strategy)
            except UnknownStrategyError as error:
                raise InvalidError(str(error)) from error

    def _check_compatible(self, spec: JobSpec, submission: Submission) -> None:
        """Refuse code that could not go on from where the job is. The worker, who knows, looks again."""
        if not spec.structure:
            return
        try:
            found = obstacles(spec.structure, submission.structure, has_state=True, under_way=False)
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidError("the structure of the job is not one that job.to_dict() makes") from error
        if found:
            raise RefusedError(f"job {spec.name!r} cannot go on like this: " + "; ".join(found))

    def _change(self, spec: JobSpec, reason: str, *, again: bool = False) -> dict[str, Any]:
        """Write what is wanted now; ``again`` for a job that does not run: it has not ended any more."""
        operations = [self._put(f"{paths.JOBS}/{spec.name}", encode(spec))]
        known = self._documents.version(f"{paths.STATUS}/{spec.name}")
        if not again and known is not None:
            # It is granted because of how the job stands, which may just have changed.
            operations.append(Check(f"{paths.STATUS}/{spec.name}", known))
        if again:
            status = replace(self._status(spec.name), phase=PENDING, reason=reason, since=self._clock())
            operations.append(self._put(f"{paths.STATUS}/{spec.name}", encode(status)))
            failed = f"{paths.ALARMS}/{alarm_id(JOB_FAILED, spec.name)}"
            if self._documents.version(failed) is not None:
                operations.append(Delete(failed))
        self._write(operations)
        with suppress(StoreError):  # There is another time.
            self._bundles.forget_others(self._used(spec))
        return {"name": spec.name, "generation": spec.generation, "reason": reason}

    def _used(self, changed: JobSpec) -> set[str]:
        """Return the bundles that some job runs, or would go back to."""
        specs = [*self._documents.jobs().values(), changed]
        return {spec.bundle for spec in specs} | {spec.before.bundle for spec in specs if spec.before}

    def _put(self, path: str, data: bytes) -> Operation:
        version = self._documents.version(path)
        return Create(path, data) if version is None else Put(path, data, version)

    def _write(self, operations: list[Operation]) -> None:
        try:
            self._master.write(operations)
        except ConflictError as error:
            self._lead()
            raise RefusedError("something else has changed at the same time: look, and try again") from error


def _named(name: str) -> str:
    """Return a name that can be one; whatever could be a path is not."""
    fault = name_fault(name)
    if fault:
        raise UnknownError(f"there can be no such name here: {fault}")
    return name
