"""Scenarios from files: what is right is read, what is wrong is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.schedule.simulation.builtin_scenarios import SCENARIOS, TOPOLOGIES
from penstock.schedule.simulation.scenario_file import ScenarioError, parse_scenario, write_scenario

LEAST: dict[str, Any] = {
    "name": "mine",
    "nodes": [{"name": "n1", "cores": 4, "memory": 1024}],
    "duration": 60,
    "submit_every": 10,
}
ONE = {"name": "one", "vertices": [{"name": "v", "cpu": 1, "memory": 1}]}


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_what_is_written_is_read_again(name: str) -> None:
    scenario = SCENARIOS[name]()
    assert parse_scenario(write_scenario(scenario)) == scenario


def test_without_topologies_it_has_those_that_come_with_penstock() -> None:
    assert parse_scenario(json.dumps(LEAST)).topologies == TOPOLOGIES


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": 5}, "Scenario.name: expected str, found int"),
        ({"nodes": []}, "it needs nodes and topologies"),
        ({"nodes": [{"name": "n1", "cores": 0, "memory": 1}]}, "cores of n1 is 0.0, not over 0"),
        ({"nodes": LEAST["nodes"] * 2}, "node 'n1' is there 2 times"),
        ({"nodes": [{**LEAST["nodes"][0], "core": 1}]}, "nodes[0] has no 'core', only bandwidth, cores"),
        ({"submit_evry": 5}, "the scenario has no 'submit_evry', only"),
        ({"duration": -1}, "the duration is -1.0, not over 0"),
        ({"fill": 1.5}, "fill is 1.5"),
        ({"load": {"every": 5, "least": 2}}, "load.least is 2.0, not between 0 and 1"),
        ({"load": {"evry": 5}}, "Load lacks every"),
        ({"failures": {"between": 0}}, "failures.between is 0.0, not over 0"),
        ({"topologies": [{"name": "none", "vertices": []}]}, "topology none has no vertices"),
        (
            {"topologies": [{**ONE, "edges": [{"source": "v", "target": "w", "rate": 1}]}]},
            "an edge of topology one names 'w', which is no vertex of it",
        ),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(json.dumps({**LEAST, **change}))
    assert reason in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "5"])
def test_what_is_no_scenario_at_all_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match="this is no scenario"):
        parse_scenario(text)
