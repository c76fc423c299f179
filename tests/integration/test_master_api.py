"""A real master, on the store in memory, held to the cases that any master is held to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import api_cases
import pytest
from api_cases import Target, ask
from api_drawing import CHECKS, check_drawn
from api_server import serving
from hypothesis import settings
from logged_events import logged_events
from schemathesis import GenerationMode

import penstock as ps
from penstock.bundles.bundle_packer import pack
from penstock.bundles.bundle_signature import sha256_of, sign
from penstock.bundles.bundle_store import BundleStore
from penstock.cluster.document_codec import encode
from penstock.cluster.job_documents import Alarm
from penstock.cluster.node_documents import MasterInfo, NodeInfo
from penstock.coord import store_paths
from penstock.keyring import signing_key
from penstock.master.bundle_intake import BundleIntake
from penstock.master.cluster_service import ClusterService
from penstock.master.master import Master, MasterSettings
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore
from penstock.web.cluster_logs import ClusterLogs
from penstock.web.master_api import make_master_api
from penstock.web.request_guard import Limits
from penstock.web.supervisor_client import SupervisorClient
from support.settings import make_submission
from support.waiting import eventually

TOKEN = "9a" * 32
KEY = signing_key(TOKEN)
LIMITS = Limits(bundle=1 << 20, document=1 << 18)
DEADLINE = 120.0


def _structure(name: str) -> dict[str, Any]:
    job = ps.Job(name)
    (
        job.source("in", ps.LogSource("in"))
        >> job.task("count", ps.Count())
        >> job.sink("out", ps.LogSink("out"))
    )
    return job.to_dict()


class Cluster:
    """A master that leads a cluster of one node that does nothing, with one job."""

    def __init__(self, folder: Path) -> None:
        ensemble = MemoryEnsemble()
        self.store = MemoryStore(ensemble)
        info = MasterInfo("m1", "http://127.0.0.1:1", 1, 1.0, "0")
        self.master = Master(MemoryStore(ensemble), info, settings=MasterSettings(tick=0.05))
        self._agents = SupervisorClient("0" * 64)
        bundles = BundleStore(self.store, KEY, self._agents)
        kept = BundleIntake(bundles, self.master.guard, time.time)
        self.service = ClusterService(self.master, kept, ClusterLogs(self._agents, list))
        file = folder / "job.py"
        file.write_text("# the code of a job\n")
        self.code = pack(file)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.master.run, args=(self._stop,))

    @contextmanager
    def led(self) -> Iterator[Cluster]:
        self._thread.start()
        try:
            eventually("a leader", self.service.is_leader)
            node = NodeInfo("n1", "127.0.0.2", 4, 8 << 30)
            self.store.create(f"{store_paths.NODES}/n1", encode(node), ephemeral=True)
            alarm = Alarm("node-lost.n2", "node-lost", "n2", "it is gone", 1.0)
            self.store.create(f"{store_paths.ALARMS}/{alarm.id}", encode(alarm))
            digest = sha256_of(self.code)
            self.service.put_bundle(digest, sign(self.code, KEY), self.code)
            self.service.submit(make_submission("job.py", _structure("busy")), digest)
            eventually(
                "the job is assigned", lambda: self.store.get(f"{store_paths.ASSIGNMENTS}/busy") is not None
            )
            eventually(
                "the job has its node", lambda: any(job["node"] == "n1" for job in self.service.jobs())
            )
            yield self
        finally:
            self._stop.set()
            self.master.wake()
            self._thread.join(DEADLINE)
            self._agents.close()

    def wishes(self) -> Any:
        """What only users change."""
        roots = (store_paths.JOBS, store_paths.BUNDLES, store_paths.ALARMS)
        return {
            f"{root}/{name}": self.store.get(f"{root}/{name}")
            for root in roots
            for name in self.store.children(root)
        }


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path).led() as cluster:
        yield cluster


@pytest.fixture
def target(cluster: Cluster) -> Iterator[Target]:
    with logged_events() as entries:

        def refusals() -> list[Mapping[str, Any]]:
            return [entry for entry in entries if entry["event"] == "request refused"]

        with serving(
            lambda _: make_master_api(cluster.service, TOKEN, hosts=["127.0.0.1"], limits=LIMITS)
        ) as url:
            yield Target(url, TOKEN, cluster.wishes, refusals)


def test_what_is_refused_changes_nothing(target: Target, tmp_path: Path) -> None:
    api_cases.check_no_token(target)
    api_cases.check_wrong_token(target)
    api_cases.check_wrong_host(target)
    api_cases.check_wrong_origin(target)
    api_cases.check_delete_from_browser(target, "busy")
    api_cases.check_traversal(target)
    api_cases.check_oversized(target, LIMITS.document, LIMITS.bundle)
    api_cases.check_declared_only(target)
    other = tmp_path / "other.py"
    other.write_text("# some other code\n")
    api_cases.check_tampered_bundle(target, pack(other), sign(pack(other), KEY))
    assert json.loads(ask(target, "GET", "/api/v1/jobs/busy").body)["spec"]["wanted"] == "running"


def test_drawn_requests_cause_no_failure(cluster: Cluster) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    there = {"job": "busy", "node": "n1", "alarm": "node-lost.n2"}

    def check(case: Any) -> None:
        for name in set(case.path_parameters or ()) & set(there):
            case.path_parameters[name] = there[name]
        if isinstance(case.body, dict) and "bundle" in case.body:
            case.body["bundle"] = sha256_of(cluster.code)
        case.call_and_validate(headers=headers, checks=CHECKS)

    app = make_master_api(cluster.service, TOKEN, hosts=["testserver"])
    check_drawn(app, headers, check, examples=settings().max_examples // 4, modes=[GenerationMode.POSITIVE])


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in a document something can be exchanged."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield (*place, name)
        yield from _places(item, (*place, name))


def _exchanged(value: Any, place: tuple[Any, ...], other: Any) -> Any:
    changed = json.loads(json.dumps(value))
    *way, last = place
    inner = changed
    for name in way:
        inner = inner[name]
    if other is ...:
        del inner[last]
    else:
        inner[last] = other
    return changed


def test_no_structure_causes_a_failure(target: Target, cluster: Cluster) -> None:
    """What a job is made of is compared with what it was made of, whatever somebody has sent as that."""
    real = _structure("busy")
    digest = sha256_of(cluster.code)
    sent = 0
    others: tuple[Any, ...] = (..., None, True, -1, "", "x", [], {}, [None], [[]], [{}], {"name": None})
    for place in _places(real):
        for other in others:
            structure = _exchanged(real, place, other)
            body = json.dumps({"bundle": digest, "entry": "job.py", "structure": structure}).encode()
            reply = ask(
                target, "POST", "/api/v1/jobs/busy/update", body=body, Content_Type="application/json"
            )
            assert reply.status < 500, (place, other, reply.body)
            sent += 1
    assert sent > 100
    assert ask(target, "GET", "/api/v1/jobs/busy").status == 200
