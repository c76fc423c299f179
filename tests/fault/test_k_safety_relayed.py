"""A job with replicas, one of whose links is cut without a right to the network."""

from __future__ import annotations

from pathlib import Path

import pytest
from k_safety_lab import linked_cluster
from k_safety_schedules import Tried

from support.engines import EITHER
from support.waiting import eventually


@pytest.mark.full
@pytest.mark.parametrize("engine", EITHER)
@pytest.mark.timeout(1500)
def test_links_can_be_cut_where_no_namespaces_can_be_made(tmp_path: Path, engine: str) -> None:
    with (
        linked_cluster(tmp_path, nodes=3, spaces=False, engine=engine) as cluster,
        Tried(cluster, "relayed", k=1) as job,
    ):
        [(_, (node, _)), *_] = sorted(job.replicas.living().items())
        cluster.cut(node)
        eventually("the node is missed", lambda: len(cluster.get("/nodes")) == 2)
        job.replicas.wait_output()
        cluster.heal(node)
        job.check()
