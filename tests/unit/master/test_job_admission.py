"""What a master refuses to do for a job, and why."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cluster.assignment_documents import BackupStatus
from penstock.cluster.client_requests import InvalidRequestError, RefusedError
from penstock.cluster.node_documents import NodeInfo
from penstock.master.job_admission import (
    check_compatible,
    check_data,
    check_params,
    check_room,
    check_strategy,
)
from support.settings import make_spec, make_submission

NODES = {name: NodeInfo(name, "", 4, 8 << 30) for name in ("n1", "n2")}
KEPT = BackupStatus("job", "n1", 3, 1)


def test_a_variable_that_no_environment_can_have_is_invalid() -> None:
    check_params({"limit": "3"}, {"TOKEN": None})
    with pytest.raises(InvalidRequestError):
        check_params({}, {"A=B": "1"})


def test_an_unknown_strategy_is_invalid() -> None:
    check_strategy("balanced")
    with pytest.raises(InvalidRequestError, match="fancy"):
        check_strategy("fancy")


def test_code_is_compared_with_what_the_job_has_run() -> None:
    structure = {"name": "job", "vertices": [], "edges": []}
    spec = make_spec("job", "b", "job.py", structure=structure)
    check_compatible(make_spec("job", "b", "job.py"), make_submission("job.py", {"name": "job"}))
    check_compatible(spec, make_submission("job.py", structure))
    with pytest.raises(InvalidRequestError, match=r"job\.to_dict"):
        check_compatible(spec, make_submission("job.py", {**structure, "vertices": 7}))


def test_replicas_need_nodes_unless_there_were_too_few_before() -> None:
    one, two, three = (make_spec("job", "b", "job.py", k=k) for k in (1, 2, 3))
    check_room(one, None, NODES)
    with pytest.raises(RefusedError, match="k=2 needs 3 nodes"):
        check_room(two, one, NODES)
    check_room(two, three, NODES)


@pytest.mark.parametrize(
    ("changes", "kept", "refused"),
    [
        ({"nodes": ("n2",)}, KEPT, True),
        ({"nodes": ("n1", "n2")}, KEPT, False),
        ({}, KEPT, False),
        ({"nodes": ("n2",)}, None, False),
        ({"nodes": ("n2",), "data_location": "shared"}, KEPT, False),
        ({"nodes": ("n2",), "fresh": True, "forget": 3}, KEPT, False),
        ({"nodes": ("n2",), "fresh": True, "forget": 2}, KEPT, True),
        ({"nodes": ("n2",)}, BackupStatus("job", "gone", 3, 1), False),
    ],
)
def test_a_job_keeps_the_node_that_has_its_data(
    changes: dict[str, Any], kept: BackupStatus | None, refused: bool
) -> None:
    spec = make_spec("job", "b", "job.py", **{"data_location": "node", **changes})
    if not refused:
        check_data(spec, kept, NODES)
        return
    with pytest.raises(RefusedError, match="keeps its data on n1: include that node"):
        check_data(spec, kept, NODES)
