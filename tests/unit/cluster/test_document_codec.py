"""Documents as JSON: what a later version has added survives a change by this one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from penstock.cluster.document_codec import decode, encode
from penstock.cluster.documents import Assignment, ExecutorSlot, ReplicaAssignment, RestoreSource

ASSIGNMENT = Assignment(
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
