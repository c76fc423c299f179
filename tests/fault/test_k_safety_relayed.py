"""A schedule over a job with replicas whose links are cut without a right to the network."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import Feeder
from k_safety_lab import Replicas, linked_cluster
from k_safety_schedules import NAME, survives


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_links_can_be_cut_where_no_namespaces_can_be_made(tmp_path: Path) -> None:
    with (
        linked_cluster(tmp_path, nodes=3, spaces=False) as cluster,
        Feeder(cluster.home, NAME, rate=200) as feeder,
    ):
        Replicas(cluster, NAME).submit("--k", "1")
        survives(cluster, feeder, seed=3)
