"""A decision depends on its snapshot alone: not on the process, nor on the order of its sets of names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DECIDE = """
import json, random
from tests.unit.schedule.clusters import random_cluster
from benchmarks.backup_location import edge_cluster
from benchmarks.placement_baselines import BASELINES
from penstock.schedule.placement_decision import decide
from penstock.schedule.backup_location import algorithm1, solve
from penstock.schedule.placement_strategies import STRATEGIES

for seed in range(12):
    snapshot = random_cluster(seed, most_tasks=16, most_nodes=6)
    for name, make in sorted({**STRATEGIES, **BASELINES}.items()):
        if name != "exact":
            print(name, seed, json.dumps(decide(make(), snapshot, name=name).to_plain(snapshot.task_named)))
for seed in range(3):
    problem = edge_cluster(8, 12, seed, tight=True)
    print(solve(problem, effort=2000), algorithm1(problem))
"""


def test_decisions_are_the_same_in_another_process_with_another_hash_seed() -> None:
    answers = [
        subprocess.run(
            [sys.executable, "-c", DECIDE],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout
        for seed in ("0", "1", "977")
    ]
    assert len(answers[0].splitlines()) == 12 * 7 + 3
    assert answers[0] == answers[1] == answers[2]
