"""Documents as JSON: what a later version has added survives a change by this one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.cluster.assignment_documents import Assignment, ExecutorSlot, ReplicaAssignment, RestoreSource
from penstock.cluster.document_codec import DocumentError, decode, encode, of_plain
from penstock.cluster.job_documents import JobSpec
from penstock.daemon.worker_folder import WorkerConfig
from penstock.job_settings import JobSettings, Placement, Replicas, Resources, SparkSettings
from support.settings import make_assignment, replace

ASSIGNMENT = make_assignment(
    "job",
    1,
    1,
    1,
    "a" * 64,
    "job.py",
    "n1",
    1,
    1,
    executors=(ExecutorSlot(1, "n1", 1, 8), ExecutorSlot(2, "n2", 1, 8)),
    membership=ReplicaAssignment(0),
    restore=RestoreSource("n2", "http://n2", 3, 1.0),
)


def _later(change: Any) -> bytes:
    content = json.loads(encode(ASSIGNMENT))
    change(content)
    return json.dumps(content).encode()


def test_fields_of_later_versions_are_kept_wherever_they_are() -> None:
    def add(content: dict[str, Any]) -> None:
        content["zone"] = "a"
        content["membership"]["vote"] = True
        content["restore"]["tier"] = "cold"
        content["executors"][0]["gpus"] = 1
        content["executors"][1]["gpus"] = 2

    later = _later(add)
    known = decode(Assignment, later)
    assert known == ASSIGNMENT
    second = known.executors[1]
    moved = replace(known, executors=(replace(second, node="n3"), ExecutorSlot(3, "n1", 1, 8)))
    written = json.loads(encode(moved, over=later))
    assert written["zone"] == "a"
    assert written["membership"]["vote"] is True
    assert written["restore"]["tier"] == "cold"
    slots = {slot["ordinal"]: slot for slot in written["executors"]}
    assert sorted(slots) == [2, 3]
    assert (slots[2]["node"], slots[2]["gpus"]) == ("n3", 2), "an executor is known again by its ordinal"
    assert "gpus" not in slots[3]


def test_what_is_gone_takes_its_unknown_fields_along() -> None:
    later = _later(lambda content: content["membership"].update(vote=True))
    written = json.loads(encode(replace(ASSIGNMENT, membership=None, executors=()), over=later))
    assert written["membership"] is None
    assert written["executors"] == []


SPEC_1 = (
    b'{"after":3,"agreed":true,"before":null,"bundle":"b","conf":{"spark.x":"1"},"drain":false,"driver":"",'
    b'"driver_by":"","entry":"job.py","env":{},"forget":0,"fresh":false,"generation":2,"k":2,"keep":"shared",'
    b'"labels":{"disk":"ssd"},"name":"job","nodes":["n1","n2","n3"],"params":{"a":"1"},'
    b'"recovery":"snapshot","replication":"standby","resources":{"cores":4,"executor_cores":1,'
    b'"executor_memory":1073741824,"executors":0,"memory":1048576},"restarts":1,"schema":1,'
    b'"spark_master":"spark://there:7077","standby":"","strategy":"packed","structure":{"name":"job"},'
    b'"submitted":1.0,"until":"drained","wanted":"running","zone":"a"}'
)
ASSIGNMENT_1 = (
    b'{"after":0,"asked":"d","bundle":"b","changed":1.0,"conf":{},"cores":2,"entry":"job.py","env":{},'
    b'"epoch":1,"executors":[{"cores":1,"memory":8,"node":"n2","ordinal":1}],"executors_asked":3,'
    b'"forget":null,"fresh":false,"generation":1,"job":"job~1","keep":"node","memory":8,"membership":'
    b'{"lineage":4,"number":1,"recovery":"next-window","replication":"standby","runs":false},"node":"n1",'
    b'"params":{},"reason":"","refused":"","repeats":0,"restarts":0,"restore":null,"revision":5,"schema":1,'
    b'"since":0.0,"spark_master":null,"strategy":"balanced","until":null}'
)


def test_a_job_of_schema_1_is_read_with_all_its_settings() -> None:
    spec = decode(JobSpec, SPEC_1)
    assert spec.settings == JobSettings(
        Resources(cores=4, memory=1 << 20),
        Placement(("n1", "n2", "n3"), {"disk": "ssd"}, "packed"),
        SparkSettings("spark://there:7077", {"spark.x": "1"}),
        "drained",
        "shared",
        Replicas(2, "primary", "copy", False),
    )
    assert (spec.agreed, spec.after, spec.params, spec.restarts) == (True, 3, {"a": "1"}, 1)
    written = json.loads(encode(spec, over=SPEC_1))
    assert (written["schema"], written["zone"], written["settings"]["replicas"]["k"]) == (2, "a", 2)
    assert {"k", "keep", "standby", "resources", "until", "nodes", "conf"} & set(written) == set()
    assert decode(JobSpec, encode(spec)) == spec


def test_a_warm_standby_of_schema_1_is_one() -> None:
    content = json.loads(SPEC_1) | {"k": 0, "replication": "active", "standby": "warm", "keep": "shared"}
    spec = decode(JobSpec, json.dumps(content).encode())
    assert spec.settings.replicas == Replicas(warm_standby=True)


def test_an_assignment_of_schema_1_is_read_with_all_its_settings() -> None:
    found = decode(Assignment, ASSIGNMENT_1)
    assert found.settings.resources == Resources(cores=2, memory=8, executors=3)
    assert found.settings.replicas == Replicas(publisher="primary", recovery="next-window")
    assert (found.settings.data_location, found.settings.until) == ("node", None)
    assert found.membership == ReplicaAssignment(1, 4, runs=False)
    assert (found.strategy, found.revision, found.asked) == ("balanced", 5, "d")
    before = json.loads(ASSIGNMENT_1) | {"executors_asked": -1}
    assert decode(Assignment, json.dumps(before).encode()).settings.resources.executors == 1


def test_an_assignment_of_schema_1_within_another_document_is_read_too() -> None:
    config = {
        **dict.fromkeys(("job", "node", "host", "connect", "root", "key_folder", "storage", "bundle"), "x"),
        "revision": 5,
        "attempt": 1,
        "assignment": json.loads(ASSIGNMENT_1),
    }
    assert of_plain(WorkerConfig, config).assignment == decode(Assignment, ASSIGNMENT_1)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema": 3}, "has schema 3, not 2"),
        ({"schema": 2}, "has schema 2, and no settings"),
        ({"schema": True}, "has schema True, not 2"),
        ({"k": "2"}, "expected int, found str"),
        ({"replication": "vote"}, "expected one of 'first', 'primary', found 'vote'"),
        ({"standby": "cold"}, "expected bool, found str"),
        ({"resources": 7}, "expected an object, found int"),
    ],
)
def test_settings_that_cannot_be_read_are_not_taken_for_defaults(change: dict[str, Any], told: str) -> None:
    content = json.loads(SPEC_1) | change
    with pytest.raises(DocumentError) as refused:
        decode(JobSpec, json.dumps(content).encode())
    assert told in str(refused.value)
