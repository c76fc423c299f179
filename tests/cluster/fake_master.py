"""A master without a cluster: jobs are entries of a dictionary. For tests of what is built upon a master."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from penstock.bundles.bundle_signature import BundleError, check_signature, sha256_of
from penstock.cluster.client_requests import (
    InvalidRequestError,
    NotFoundError,
    NotLeaderError,
    RefusedError,
    Submission,
)
from penstock.cluster.job_documents import Alarm, BundleInfo, JobSpec, JobStatus
from penstock.cluster.node_documents import MasterInfo, NodeInfo, NodeReport
from penstock.cluster.worker_documents import Difference, Progress, WorkerFigures, WorkerInfo
from penstock.keyring import signing_key
from penstock.replicas.service.requested_replication import change_settings
from support.settings import make_assignment, replace

NOW = 1_700_000_000.0


class FakeMaster:
    """Does at once what it is asked; ``changes`` counts what was changed."""

    def __init__(self, token: str) -> None:
        self.key = signing_key(token)
        self.leads = True
        self.leader = ""
        """Where another leads."""
        self.lies = False
        """Whether it thinks that it leads, and finds out only when it writes."""
        self.raises: Exception | None = None
        self.changes = 0
        self.bundles: dict[str, BundleInfo] = {}
        self.specs: dict[str, JobSpec] = {}
        self.phases: dict[str, JobStatus] = {}
        self.places: dict[str, str] = {}
        self.forgotten: dict[str, bool] = {}
        """By job, whether its data was to be removed."""
        self.alarm_list = [
            Alarm("job-failed.old", "job-failed", "old", "it failed 5 times", NOW, {"count": 5})
        ]
        self.lines: list[dict[str, Any]] = []
        self.node_list = [
            NodeInfo(name, host, 4, 8 << 30, "r1", {"disk": "ssd"}, f"http://{host}:9", 7, NOW, "0")
            for name, host in (("n1", "127.0.0.2"), ("n2", "127.0.0.3"))
        ]
        self._lock = threading.Lock()

    def is_leader(self) -> bool:
        return self.leads

    def leader_url(self) -> str:
        return self.leader

    def ready(self) -> tuple[bool, str]:
        known = self.leads or bool(self.leader)
        return known, "" if known else "no leader is known"

    def cluster(self) -> dict[str, Any]:
        self._meet()
        masters = [asdict(MasterInfo("m1", "http://127.0.0.1:1", 1, NOW, "0"))]
        return {
            "epoch": 3,
            "leader": "m1",
            "since": NOW,
            "masters": masters,
            "nodes": len(self.node_list),
            "jobs": len(self.specs),
            "version": "0",
        }

    def nodes(self) -> list[dict[str, Any]]:
        self._meet()
        return [self._node(node) for node in self.node_list]

    def node(self, name: str) -> dict[str, Any]:
        self._meet()
        for node in self.node_list:
            if node.name == name:
                return self._node(node)
        raise NotFoundError(f"there is no node {name!r}")

    def _node(self, node: NodeInfo) -> dict[str, Any]:
        jobs = sorted(job for job, place in self.places.items() if place == node.name)
        figures = tuple(
            WorkerFigures(job, "driver", 1, 1, 99, "LIVE|running", 0.5, 300 << 20, NOW) for job in jobs
        )
        report = NodeReport(NOW, 0.25, 2 << 30, 8 << 30, 1000.0, 2000.0, figures)
        return {**asdict(node), "report": asdict(report), "jobs": jobs}

    def jobs(self) -> list[dict[str, Any]]:
        self._meet()
        return [self._summary(name) for name in sorted(self.specs)]

    def _summary(self, name: str) -> dict[str, Any]:
        status, spec = self.phases[name], self.specs[name]
        return {
            "name": name,
            "phase": status.phase,
            "reason": status.reason,
            "since": status.since,
            "generation": spec.generation,
            "node": self.places.get(name, ""),
            "executors": spec.settings.resources.executors,
            "progress": asdict(Progress(5, 100, 90, lag=3, at=NOW)) if name in self.places else None,
            "failures": 0,
            "k": spec.settings.replicas.k,
            "safety": status.safety,
        }

    def job(self, name: str) -> dict[str, Any]:
        self._meet()
        spec = self._spec(name)
        place = self.places.get(name)
        assignment = worker = None
        if place is not None:
            revision = self.phases[name].revision
            assignment = make_assignment(
                name,
                3,
                revision,
                spec.generation,
                spec.bundle,
                spec.entry,
                place,
                1,
                2 << 30,
                conf=spec.settings.spark.conf,
            )
            worker = WorkerInfo(
                name, revision, 1, place, 99, "running", NOW, progress=Progress(5, 100, 90, lag=3)
            )
        return {
            **self._summary(name),
            "spec": asdict(spec),
            "status": asdict(self.phases[name]),
            "assignment": asdict(assignment) if assignment else None,
            "workers": [asdict(worker)] if worker else [],
            "result": None,
            "failures": None,
            "replicas": [self._replica(name, number) for number in range(spec.settings.replicas.k + 1)]
            if spec.agreed
            else [],
        }

    def _replica(self, name: str, number: int) -> dict[str, Any]:
        """A replica that has just come in: the first on the job's node, the others on none of the list."""
        differed = Difference(41, "count", name, "its counts are others", NOW) if number else None
        return {
            "number": number,
            "node": f"n{number + 1}",
            "phase": "running",
            "revision": self.phases[name].revision,
            "generation": self.specs[name].generation,
            "batch": 40 + number,
            "behind": 2 - number,
            "in_step": True,
            "caught_up": 1.0,
            "whole": True,
            "differed": asdict(differed) if differed else None,
            "failures": 0,
            "reason": "as wished",
        }

    def alarms(self) -> list[dict[str, Any]]:
        self._meet()
        return [asdict(alarm) for alarm in self.alarm_list]

    def put_bundle(self, sha256: str, signature: str, data: bytes) -> dict[str, Any]:
        self._lead()
        if sha256_of(data) != sha256:
            raise InvalidRequestError("the bundle does not have this digest: it was damaged on its way")
        try:
            check_signature(data, signature, self.key)
        except BundleError as error:
            raise InvalidRequestError(str(error)) from error
        self.changes += 1
        self.bundles[sha256] = BundleInfo(sha256, len(data), signature, 1, (), NOW)
        return asdict(self.bundles[sha256])

    def submit(self, submission: Submission, bundle: str) -> dict[str, Any]:
        self._lead()
        name = str(submission.structure["name"])
        if name in self.specs and self.phases[name].phase not in ("ENDED", "FAILED"):
            raise RefusedError(f"job {name!r} runs already: use penstock update")
        self._change(name, self._new(name, submission, bundle, 1))
        return self._changed(name)

    def update(self, name: str, submission: Submission, bundle: str) -> dict[str, Any]:
        self._lead()
        before = self._spec(name)
        new = self._new(name, submission, bundle, before.generation + 1)
        self._change(
            name, replace(new, params={**before.params, **new.params}, env={**before.env, **new.env})
        )
        return self._changed(name)

    def _new(self, name: str, submission: Submission, bundle: str, generation: int) -> JobSpec:
        if bundle not in self.bundles:
            raise InvalidRequestError(f"there is no bundle {bundle}: put it first")
        return self._with_settings(
            JobSpec(
                name,
                bundle,
                submission.entry,
                generation,
                fresh=submission.fresh,
                params=submission.params,
                env=submission.env,
                structure=submission.structure,
                submitted=NOW,
            ),
            submission.settings,
        )

    def _with_settings(self, spec: JobSpec, given: Mapping[str, Any]) -> JobSpec:
        settings = change_settings(spec.settings, given)
        return replace(spec, settings=settings, agreed=spec.agreed or settings.replicas.is_replicated)

    def set_params(
        self, name: str, params: Mapping[str, str], env: Mapping[str, str | None]
    ) -> dict[str, Any]:
        self._lead()
        spec = self._spec(name)
        new = replace(spec, params={**spec.params, **params}, env={**spec.env, **env})
        self._change(name, replace(new, generation=spec.generation + 1))
        return self._changed(name)

    def replicate(self, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        self._lead()
        spec = self._with_settings(self._spec(name), {"replicas": changes})
        k = spec.settings.replicas.k
        if k >= len(self.node_list):
            raise RefusedError(f"k={k} needs {k + 1} nodes, and there are {len(self.node_list)}")
        self._change(name, spec)
        return self._changed(name)

    def migrate(self, name: str, node: str) -> dict[str, Any]:
        self._lead()
        self._spec(name)
        self.node(node)
        self.changes += 1
        self.places[name] = node
        return self._changed(name)

    def scale(self, name: str, changes: Mapping[str, int], nodes: tuple[str, ...] | None) -> dict[str, Any]:
        self._lead()
        spec = self._spec(name)
        spec = replace(spec, resources=replace(spec.settings.resources, **dict(changes)))
        self._change(name, spec if nodes is None else replace(spec, nodes=nodes))
        return self._changed(name)

    def kill(self, name: str, drain: bool) -> dict[str, Any]:
        self._lead()
        spec = self._spec(name)
        if self.phases[name].phase == "ENDED":
            raise RefusedError(f"job {name!r} has ended already")
        self._change(name, replace(spec, wanted="ended", drain=drain), "ENDED")
        self.places.pop(name, None)
        return self._changed(name)

    def resubmit(self, name: str, fresh: bool) -> dict[str, Any]:
        self._lead()
        self._change(name, replace(self._spec(name), wanted="running", fresh=fresh))
        return self._changed(name)

    def forget(self, name: str, data: bool) -> dict[str, Any]:
        self._lead()
        self._spec(name)
        if self.phases[name].phase != "ENDED":
            raise RefusedError(f"job {name!r} is {self.phases[name].phase}: kill it first")
        self.forgotten[name] = data
        return self._changed(name)

    def placement(self, name: str) -> dict[str, Any]:
        self.job(name)
        driver = f"{name}/driver"
        terms = dict.fromkeys(("imbalance", "cross_node", "cross_rack", "moves", "fit"), 0.0)
        return {
            "job": name,
            "strategy": "balanced",
            "asked_for": "balanced",
            "refused": "",
            "matrix": {driver: "n1"},
            "cost": {**terms, "total": 0.0},
            "weights": terms,
            "rejected": {driver: {"n2": "it lacks the label disk=ssd"}},
            "unplaced": {},
            "nodes": [],
            "location": None,
            "kept": None,
        }

    def rebalance(self, dry_run: bool) -> dict[str, Any]:
        self._lead()
        if not dry_run:
            self.changes += 1
        moves = [
            {"job": name, "origin": "n1", "target": "n2", "reason": "n1 is full"}
            for name in sorted(self.places)
        ]
        return {"moves": moves, "applied": not dry_run}

    def clear(self, alarm: str) -> None:
        self._lead()
        if alarm not in {known.id for known in self.alarm_list}:
            raise NotFoundError(f"there is no alarm {alarm!r}")
        self.changes += 1
        self.alarm_list = [known for known in self.alarm_list if known.id != alarm]

    def logs(self, name: str, cursor: str, limit: int) -> dict[str, Any]:
        self._meet()
        self._spec(name)
        if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
            raise InvalidRequestError("this is no cursor of a page before")
        start = int(cursor or 0)
        lines = self.lines[start : start + limit]
        return {"lines": lines, "cursor": str(start + len(lines))}

    def metrics(self) -> str:
        return f"# TYPE penstock_jobs gauge\npenstock_jobs {len(self.specs)}\n"

    def say(self, job: str, second: int, event: str) -> None:
        """Add a line to the log of a job."""
        stamp = f"2026-01-01T00:00:{second:02d}.000000Z"
        common = {"timestamp": stamp, "level": "info", "event": event, "process": "worker", "node": "n1"}
        self.lines.append({**common, "job": job, "batch": second})

    def _spec(self, name: str) -> JobSpec:
        if name not in self.specs:
            raise NotFoundError(f"there is no job {name!r}")
        return self.specs[name]

    def _change(self, name: str, spec: JobSpec, phase: str = "RUNNING") -> None:
        with self._lock:
            self.changes += 1
            self.specs[name] = spec
            revision = self.phases[name].revision if name in self.phases else 0
            safety = "k-safe" if spec.agreed and phase == "RUNNING" else ""
            self.phases[name] = JobStatus(phase, "as wished", NOW + revision, revision + 1, safety)
            self.places[name] = self.places.get(name) or (spec.settings.placement.nodes or ("n1",))[0]

    def _changed(self, name: str) -> dict[str, Any]:
        return {"name": name, "generation": self.specs[name].generation, "reason": "as wished"}

    def _meet(self) -> None:
        if self.raises is not None:
            raise self.raises

    def _lead(self) -> None:
        self._meet()
        if not self.leads or self.lies:
            raise NotLeaderError(self.leader)
