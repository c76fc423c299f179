"""The commands of clients: checked with the mirror of the store, and written as the leader."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from penstock.cluster.alarms import JOB_FAILED, NODE_LOST, alarm_id
from penstock.cluster.assignment_documents import BackupStatus
from penstock.cluster.client_requests import (
    InvalidRequestError,
    NotFoundError,
    NotLeaderError,
    RefusedError,
    Submission,
)
from penstock.cluster.document_codec import encode
from penstock.cluster.job_documents import (
    ACTIVE,
    ENDED,
    FAILED,
    OVER,
    PENDING,
    Alarm,
    Code,
    JobSpec,
    Tombstone,
)
from penstock.cluster.job_retention import is_idle, last_known_revision
from penstock.cluster.node_documents import NodeInfo
from penstock.cluster.unreadable_documents import ADVICE
from penstock.coord import store_paths
from penstock.coord.coordination_store import Check, ConflictError, Delete, Operation, StoreError
from penstock.coord.mirrored_documents import forget_operations, revision_operations, upsert
from penstock.job_settings import JobSettings, Replicas
from penstock.master.cluster_queries import ClusterQueries, LogReader, checked_name
from penstock.master.job_admission import (
    check_compatible,
    check_data,
    check_params,
    check_room,
    check_strategy,
)
from penstock.master.master import Master
from penstock.replicas.service.replica_status import last_revision
from penstock.replicas.service.requested_replication import (
    change_settings,
    replicas_after_update,
    requested_settings,
    with_settings,
)
from penstock.schedule.rebalance_plan import rebalance

P = ParamSpec("P")
T = TypeVar("T")

_TRIES = 5
"""How many times a command is tried when other writes come in between."""

_KEPT = {"shared": "in the shared storage", "node": "with its node"}


class Bundles(Protocol):
    """Stores bundles of code."""

    def put(self, sha256: str, signature: str, data: bytes) -> dict[str, Any]:
        """Check and store a bundle. Raises InvalidRequestError."""
        ...

    def has(self, sha256: str) -> bool:
        """Return whether a bundle exists."""
        ...

    def check_entry(self, sha256: str, entry: str) -> None:
        """Raise InvalidRequestError unless an entry is a Python file of a bundle."""
        ...

    def forget_others(self, used: Collection[str]) -> None:
        """Remove bundles that no job uses, unless they are new."""
        ...


class _ChangedMeanwhileError(RefusedError):
    """The state that a command was decided on changed before its write."""

    def __init__(self) -> None:
        super().__init__(
            "the job or the cluster was changed at the same time: check its status and try again"
        )


def _retry_on_conflict(
    command: Callable[Concatenate[ClusterService, P], T],
) -> Callable[Concatenate[ClusterService, P], T]:
    """Retry a command when another write came between its decision and its own write."""

    @wraps(command)
    def decide(service: ClusterService, /, *args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_TRIES - 1):
            with suppress(_ChangedMeanwhileError):
                return command(service, *args, **kwargs)
        return command(service, *args, **kwargs)

    return decide


class ClusterService(ClusterQueries):
    """Implements :class:`penstock.master.master_service.MasterService` over a master."""

    def __init__(
        self, master: Master, bundles: Bundles, logs: LogReader, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(master, logs)
        self._bundles = bundles
        self._clock = clock

    def put_bundle(self, sha256: str, signature: str, data: bytes) -> dict[str, Any]:
        self._require_leader()
        return self._bundles.put(sha256, signature, data)

    @_retry_on_conflict
    def submit(self, submission: Submission, bundle: str) -> dict[str, Any]:
        self._require_leader()
        name = checked_name(str(submission.structure.get("name", "")))
        settings = self._check(submission, bundle)
        known = self._documents.jobs().get(name)
        self._check_readable(name)
        if known is not None and self._status(name).phase in ACTIVE:
            raise RefusedError(
                f"job {name!r} is {self._status(name).phase}: update it, or kill it and submit it again"
            )
        if known is not None and not submission.fresh:
            check_compatible(known, submission)
            location = known.settings.data_location
            if location != settings.data_location:
                raise RefusedError(
                    f"the data of job {name!r} is kept {_KEPT[location]}: submit it with --data-location "
                    f"{location}, or from scratch (--fresh)"
                )
        given_out = last_revision(self._documents, name)
        fresh = submission.fresh
        if known is None:
            given_out = max(given_out, self._largest_forgotten_revision())
            stone = self._documents.one(Tombstone, f"{store_paths.TOMBSTONES}/{name}")
            # The data of the forgotten job is being removed, or will be.
            fresh = fresh or (stone is not None and stone.data)
        spec = JobSpec(
            name=name,
            bundle=bundle,
            entry=submission.entry,
            generation=(known.generation if known else 0) + 1,
            fresh=fresh or (known is not None and known.fresh),
            forget=given_out if fresh or known is None else known.forget,
            params=submission.params,
            env=submission.env,
            structure=submission.structure,
            # The agreed batches still exist, and continue to count.
            agreed=known is not None and known.agreed and not submission.fresh,
            after=given_out,
            submitted=self._clock(),
        )
        spec = with_settings(spec, settings)
        self._check_room(spec)
        self._check_data(spec)
        return self._change(spec, "it was submitted", restarts=True, new=True)

    @_retry_on_conflict
    def update(self, name: str, submission: Submission, bundle: str) -> dict[str, Any]:
        self._require_leader()
        spec = self._active(name)
        if submission.structure.get("name") != name:
            found = submission.structure.get("name")
            raise RefusedError(f"the new code defines job {found!r}, not {name!r}: submit it as a new job")
        self._check(submission, bundle)
        check_compatible(spec, submission)
        replicas = replicas_after_update(spec, submission)
        params, env = {**spec.params, **submission.params}, {**spec.env, **submission.env}
        check_params(params, env)
        same_code = bundle == spec.bundle and submission.entry == spec.entry
        if same_code and params == spec.params and env == spec.env:
            if replicas == spec.settings.replicas:
                return self.job(name)
            return self.replicate(name, asdict(replicas))
        updated = replace(
            spec,
            bundle=bundle,
            entry=submission.entry,
            structure=submission.structure,
            params=params,
            env=env,
        )
        updated = with_settings(updated, replace(spec.settings, replicas=replicas))
        self._check_room(updated, spec)
        reason = "its parameters were changed" if same_code else "its code was updated"
        return self._change(self._next_generation(updated, spec), reason)

    @_retry_on_conflict
    def set_params(
        self, name: str, params: Mapping[str, str], env: Mapping[str, str | None]
    ) -> dict[str, Any]:
        self._require_leader()
        spec = self._active(name)
        changed_spec = replace(spec, params={**spec.params, **params}, env={**spec.env, **env})
        check_params(changed_spec.params, changed_spec.env)
        if changed_spec == spec:
            raise InvalidRequestError(f"job {name!r} already has these parameters")
        return self._change(self._next_generation(changed_spec, spec), "its parameters were changed")

    def _next_generation(self, spec: JobSpec, before: JobSpec) -> JobSpec:
        """Return a job with new code or parameters, and with the code to roll back to."""
        return replace(
            spec,
            generation=before.generation + 1,
            # Failures of other code do not count.
            after=last_revision(self._documents, spec.name),
            before=_fallback(spec, before),
        )

    @_retry_on_conflict
    def replicate(self, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        self._require_leader()
        spec = self._active(name)
        settings = change_settings(spec.settings, {"replicas": changes})
        replicated = with_settings(spec, settings)
        if replicated == spec:
            known = ", ".join(field.name for field in fields(Replicas))
            raise InvalidRequestError(f"nothing to change was given: give some of {known}")
        self._check_room(replicated, spec)
        wanted = settings.replicas
        told = "warm standby" if wanted.warm_standby else f"k={wanted.k}"
        return self._change(replicated, f"its replication was changed: {told}")

    @_retry_on_conflict
    def migrate(self, name: str, node: str) -> dict[str, Any]:
        self._require_leader()
        spec = self._active(name)
        self.node(node)
        if spec.settings.data_location == "node":
            raise RefusedError(
                f"job {name!r} keeps its data with its node: it moves only when that node is lost"
            )
        allowed = spec.settings.placement.nodes
        if allowed and node not in allowed:
            raise RefusedError(
                f"job {name!r} may run on {', '.join(allowed)} only: allow other nodes with penstock "
                "scale first"
            )
        there = [replica.index for replica in self._replicas_on(node) if replica.job == name]
        if any(there):
            raise RefusedError(
                f"replica {max(there)} of job {name!r} is on {node}: replicas share no node, choose another"
            )
        return self._change(replace(spec, driver=node, driver_by="user"), f"it was moved to {node}")

    @_retry_on_conflict
    def scale(self, name: str, changes: Mapping[str, int], nodes: tuple[str, ...] | None) -> dict[str, Any]:
        self._require_leader()
        spec = self._active(name)
        for node in nodes or ():
            self.node(node)
        driver = spec.driver if nodes is None or spec.driver in nodes else ""
        placement = {} if nodes is None else {"nodes": list(nodes)}
        settings = change_settings(spec.settings, {"resources": changes, "placement": placement})
        scaled = replace(with_settings(spec, settings), driver=driver)
        if scaled == spec:
            raise InvalidRequestError("nothing to scale was given")
        assigned = self._documents.assignments().get(spec.first_replica)
        allowed = settings.placement.nodes
        stays = settings.data_location == "node"
        if stays and allowed and assigned and assigned.node not in allowed:
            raise RefusedError(f"job {name!r} keeps its data on {assigned.node}: include that node")
        self._check_room(scaled, spec)
        self._check_data(scaled)
        return self._change(scaled, "it was scaled")

    @_retry_on_conflict
    def kill(self, name: str, drain: bool) -> dict[str, Any]:
        self._require_leader()
        spec = self._spec(name)
        self._check_readable(name)
        if not (spec.drain and not drain):  # A draining job may still be ended at once.
            self._active(name)
        elif self._status(name).phase not in ACTIVE:
            raise RefusedError(f"job {name!r} is {self._status(name).phase}: it has ended")
        return self._change(replace(spec, wanted="ended", drain=drain), "it was killed")

    @_retry_on_conflict
    def resubmit(self, name: str, fresh: bool) -> dict[str, Any]:
        self._require_leader()
        spec = self._spec(name)
        self._check_readable(name)
        phase = self._status(name).phase
        if phase in (ENDED, FAILED):
            given_out = last_revision(self._documents, name)
            again = replace(spec, wanted="running", drain=False, after=given_out)
            # Otherwise an earlier request to start from scratch, perhaps not carried out yet, stays.
            if fresh:
                agreed = spec.settings.replicas.is_replicated
                again = replace(again, fresh=True, forget=given_out, agreed=agreed)
            return self._change(again, "it was submitted again", restarts=True)
        if spec.wanted == "ended":
            raise RefusedError(f"job {name!r} is {phase}: submit it again when it has ended")
        if fresh:
            raise RefusedError(f"job {name!r} is {phase}: kill it before it starts from scratch")
        return self._change(replace(spec, restarts=spec.restarts + 1), "a new worker was requested")

    @_retry_on_conflict
    def forget(self, name: str, data: bool) -> dict[str, Any]:
        self._require_leader()
        spec = self._spec(name)
        self._check_readable(name)
        phase = self._status(name).phase
        if phase not in OVER:
            raise RefusedError(f"job {name!r} is {phase}: kill it first, and forget it when it has ended")
        actual = self._documents.actual()
        if not is_idle(name, actual):
            raise RefusedError(f"job {name!r} is {phase}, and a worker of it has not left yet: try again")
        if spec.settings.data_location == "node" and not data:
            raise RefusedError(
                f"job {name!r} keeps its data with its node, where no other job can use it: forget it with "
                "its data (--data)"
            )
        self._largest_forgotten_revision()
        kept = revision_operations(self._documents, last_known_revision(name, actual))
        self._write([*kept, *forget_operations(self._documents, name, data=data, now=self._clock())])
        self._forget_bundles()
        left = "with its data" if data else f"its data is kept in the storage, in cluster-jobs/{name}"
        return {"name": name, "generation": spec.generation, "reason": f"it was forgotten; {left}"}

    def rebalance(self, dry_run: bool) -> dict[str, Any]:
        self._require_leader()
        specs = self._documents.jobs()
        actual = self._documents.actual()
        specs = {name: specs[name] for name in specs if name not in actual.unreadable}
        moves = rebalance(specs, actual)
        if not dry_run:
            for move in moves:
                moved = replace(specs[move.job], driver=move.target, driver_by="rebalance")
                self._change(moved, f"rebalanced: {move.reason}")
        return {"moves": [asdict(move) for move in moves], "applied": not dry_run}

    @_retry_on_conflict
    def clear(self, alarm: str) -> None:
        self._require_leader()
        found = self._documents.one(Alarm, f"{store_paths.ALARMS}/{checked_name(alarm)}")
        if found is None and alarm in self._documents.unreadable(store_paths.ALARMS):
            self._write([Delete(f"{store_paths.ALARMS}/{alarm}")])  # An operator has seen that it exists.
            return
        if found is None:
            raise NotFoundError(f"there is no alarm {alarm!r}")
        job = found.subject
        if found.kind == JOB_FAILED and job in self._documents.jobs() and self._status(job).phase == FAILED:
            self.resubmit(job, fresh=False)
            return
        operations: list[Operation] = [Delete(f"{store_paths.ALARMS}/{alarm}")]
        status = f"{store_paths.STATUS}/{job}"
        if found.kind == JOB_FAILED and (version := self._documents.version(status)) is not None:
            operations.append(Check(status, version))  # Nodes are read one by one: it may have failed since.
        expected = f"{store_paths.KNOWN}/{found.subject}"
        if found.kind == NODE_LOST and self._documents.version(expected) is not None:
            operations.append(Delete(expected))  # Otherwise the alarm would be raised again at once.
        self._write(operations)

    def _require_leader(self) -> None:
        if not self.is_leader():
            raise NotLeaderError(self.leader_url())

    def _largest_forgotten_revision(self) -> int:
        """Return the largest revision of all jobs that were forgotten; refused if that is not known."""
        largest = self._documents.revisions()
        if largest is None:
            reason = self._documents.fault(store_paths.REVISIONS)
            raise RefusedError(
                "jobs can be neither forgotten nor submitted, because the largest revision of forgotten "
                f"jobs is not known: {reason}; {ADVICE}"
            )
        return largest

    def _active(self, name: str) -> JobSpec:
        spec = self._spec(name)
        self._check_readable(name)
        phase = self._status(name).phase
        if phase not in ACTIVE or spec.wanted == "ended":
            raise RefusedError(f"job {name!r} is {phase}: submit it again first")
        return spec

    def _check(self, submission: Submission, bundle: str) -> JobSettings:
        """Check a submission, and return the settings of the job."""
        if not self._bundles.has(bundle):
            raise InvalidRequestError(f"there is no bundle {bundle!r}: upload it first")
        self._bundles.check_entry(bundle, submission.entry)
        settings = requested_settings(submission)
        check_params(submission.params, submission.env)
        if settings.placement.strategy:
            check_strategy(settings.placement.strategy)
        return settings

    def _check_room(self, spec: JobSpec, before: JobSpec | None = None) -> None:
        check_room(spec, before, self._documents.all(NodeInfo, store_paths.NODES))

    def _check_data(self, spec: JobSpec) -> None:
        kept = self._documents.one(BackupStatus, f"{store_paths.KEPT}/{spec.name}")
        check_data(spec, kept, self._documents.all(NodeInfo, store_paths.NODES))

    def _change(
        self, spec: JobSpec, reason: str, *, restarts: bool = False, new: bool = False
    ) -> dict[str, Any]:
        """Write the spec of a job; ``restarts`` sets the status of a job that is over to PENDING.

        Fields that a later version has written are kept, unless the job is ``new``.
        """
        path = f"{store_paths.JOBS}/{spec.name}"
        operations = [
            upsert(self._documents, path, encode(spec, over=b"" if new else self._documents.raw(path)))
        ]
        known = self._documents.version(f"{store_paths.STATUS}/{spec.name}")
        if not restarts and known is not None:
            # The command was allowed because of this status, which may have changed.
            operations.append(Check(f"{store_paths.STATUS}/{spec.name}", known))
        if restarts:
            status = replace(
                self._status(spec.name),
                phase=PENDING,
                reason=reason,
                since=self._clock(),
                revision=max(spec.after, last_revision(self._documents, spec.name)),
                safety="",
                unsafe_since=0.0,
                chances=0,
            )
            operations.append(upsert(self._documents, f"{store_paths.STATUS}/{spec.name}", encode(status)))
            failed = f"{store_paths.ALARMS}/{alarm_id(JOB_FAILED, spec.name)}"
            if self._documents.version(failed) is not None:
                operations.append(Delete(failed))
        self._write(operations)
        self._forget_bundles(spec)
        return {"name": spec.name, "generation": spec.generation, "reason": reason}

    def _forget_bundles(self, *changed: JobSpec) -> None:
        """Remove bundles that no job uses, unless unreadable jobs may use them."""
        with suppress(StoreError):  # The next change tries again.
            if not self._documents.unreadable(store_paths.JOBS):
                self._bundles.forget_others(self._used(changed))

    def _used(self, changed: Sequence[JobSpec]) -> set[str]:
        """Return the bundles that jobs use, or may be rolled back to."""
        specs = [*self._documents.jobs().values(), *changed]
        return {spec.bundle for spec in specs} | {spec.before.bundle for spec in specs if spec.before}

    def _write(self, operations: list[Operation]) -> None:
        try:
            self._master.write(operations)
        except ConflictError as error:
            self._require_leader()
            raise _ChangedMeanwhileError from error


def _fallback(spec: JobSpec, before: JobSpec) -> Code | None:
    """Return what an update is rolled back to: the last code and parameters that ran well, if different."""
    code = before.before or Code(
        before.bundle, before.entry, before.structure, before.generation, before.params, before.env
    )
    same = (code.bundle, code.entry, dict(code.params), dict(code.env)) == (
        spec.bundle,
        spec.entry,
        dict(spec.params),
        dict(spec.env),
    )
    return None if same else code
