"""Clusters described in a file: what is right is read, whatever else is told with its place."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.schedule.backup_location import verify
from penstock.schedule.backup_location.backup_problem import UNKNOWN_BANDWIDTH
from penstock.schedule.backup_location.location_methods import (
    METHODS,
    MethodError,
    described_problem,
    protect,
)
from penstock.schedule.cluster_file import (
    CLUSTER,
    LISTS,
    DescriptionError,
    TaskBackup,
    describe,
    parse_cluster_file,
)
from penstock.schedule.placement_decision import decide
from penstock.schedule.placement_model import Link, Node, Task, Traffic
from penstock.schedule.placement_strategies import Balanced

ROOT = Path(__file__).parents[3]
NODE = {"name": "a", "cores": 4, "memory": 1024}
WHOLE: dict[str, Any] = {
    "nodes": [NODE, {**NODE, "name": "b", "rack": "r", "labels": {"disk": "fast"}, "storage": 5}],
    "tasks": [
        {"id": "j/t", "snapshot": 10, "input_rate": 2, "nodes": ["a", "b"], "current": "a"},
        {"id": "u", "job": "k", "kind": "executor", "cpu": 0.5, "memory": 1e3, "apart": "g"},
    ],
    "traffic": [{"first": "j/t", "second": "u", "rate": 3}],
    "links": [{"rack": "r", "bandwidth": 7}],
    "overloaded_above": 0.8,
}


def test_a_description_is_a_snapshot_and_what_backups_need() -> None:
    described = describe(WHOLE)
    assert described.snapshot.nodes == (
        Node("a", 4.0, 1024),
        Node("b", 4.0, 1024, rack="r", labels={"disk": "fast"}),
    )
    assert described.snapshot.tasks == (
        Task("j/t", "j", nodes=("a", "b"), current="a"),
        Task("u", "k", "executor", 0.5, 1000, apart="g"),
    )
    assert described.snapshot.traffic == (Traffic("j/t", "u", 3.0),)
    assert described.snapshot.links == (Link("r", 7.0),)
    assert described.snapshot.overloaded_above == 0.8
    assert described.storage == {"a": inf, "b": 5.0}
    assert described.backups == {"j/t": TaskBackup(10.0, 2.0, 10.0, 1.0)}


def _changed(path: str, value: object) -> dict[str, Any]:
    """Return the whole description with another value at a place, written as in the messages."""
    content = json.loads(json.dumps(WHOLE))
    at: Any = content
    *way, last = path.replace("[", ".").replace("]", "").split(".")
    for step in way:
        at = at[int(step)] if step.isdigit() else at[step]
    if last.isdigit():
        at[int(last)] = value
    else:
        at[last] = value
    return dict(content)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("nodes[1].cores", -1, "nodes[1].cores: expected a number from 0 on, found -1"),
        ("nodes[1].cores", float("nan"), "nodes[1].cores: expected a number from 0 on, found nan"),
        ("nodes[1].cores", inf, "nodes[1].cores: expected a number from 0 on, found inf"),
        ("nodes[1].cores", True, "nodes[1].cores: expected a number from 0 on, found True"),
        ("nodes[1].cores", "4", "nodes[1].cores: expected a number from 0 on, found '4'"),
        ("nodes[1].cores", None, "nodes[1].cores: it is missing"),
        ("nodes[1].memory", 1.5, "nodes[1].memory: expected a whole number from 0 on, found 1.5"),
        (
            "nodes[1].memory",
            10**400,
            "nodes[1].memory: expected a whole number from 0 on, found a number larger than 1e18",
        ),
        ("nodes[1].load", 2, "nodes[1].load: expected a number from 0 on to 1, found 2"),
        ("nodes[1].name", "", "nodes[1].name: it is empty"),
        ("nodes[1].name", "a", "nodes[1].name: 'a' is the name of nodes[0]"),
        ("nodes[1].labels", {"a": 1}, "nodes[1].labels: expected an object of texts, found an object"),
        ("nodes[1].size", 1, "nodes[1]: there is no field 'size'; use bandwidth, cores,"),
        ("nodes[0]", 7, "nodes[0]: expected an object, found 7"),
        ("nodes", {}, "nodes: expected a list, found an object"),
        ("tasks[1].cpu", -0.5, "tasks[1].cpu: expected a number from 0 on, found -0.5"),
        ("tasks[1].interval", 0, "tasks[1].interval: expected a number over 0, found 0"),
        ("tasks[1].current", "z", "tasks[1].current: there is no node 'z'"),
        ("tasks[1].nodes", ["a", "z"], "tasks[1].nodes: there is no node 'z'"),
        ("tasks[1].nodes", "a", "tasks[1].nodes: expected a list of texts, found 'a'"),
        ("tasks[1].id", "j/t", "tasks[1].id: 'j/t' is the id of tasks[0]"),
        ("traffic[0].second", "z", "traffic[0].second: there is no task 'z'"),
        ("traffic[0].rate", -1, "traffic[0].rate: expected a number from 0 on, found -1"),
        ("links[0].rack", "z", "links[0].rack: no node is in rack 'z'"),
        ("links[0].bandwidth", 0, "links[0].bandwidth: expected a number over 0, found 0"),
        ("overloaded_above", 7, "overloaded_above: expected a number from 0 on to 1, found 7"),
        ("racks", [], "there is no field 'racks'; use links, nodes, overloaded_above, tasks, traffic"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(path: str, value: object, reason: str) -> None:
    with pytest.raises(DescriptionError) as raised:
        describe(_changed(path, value))
    assert any(fault.startswith(reason) for fault in raised.value.faults), raised.value.faults


def test_places_behind_a_wrong_item_keep_their_numbers() -> None:
    content = {"nodes": [7, {**NODE, "cores": -1}], "tasks": []}
    with pytest.raises(DescriptionError, match=r"nodes\[1\]\.cores"):
        describe(content)


@pytest.mark.parametrize("text", ["", "{", "[1", "[" * 100_000, '{"nodes": [}'])
def test_what_is_no_json_is_told(text: str) -> None:
    with pytest.raises(DescriptionError, match=r"it is not valid JSON|it is nested too deeply"):
        parse_cluster_file(text)


def test_many_faults_are_counted() -> None:
    with pytest.raises(DescriptionError, match="and 12 more"):
        describe({"nodes": [3] * 20, "tasks": []})


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_PLACES = [
    f"{name}[0].{field.name}" if name else field.name
    for name, fields in (*LISTS.items(), ("", CLUSTER))
    for field in fields
] + [*LISTS, *(f"{name}[0]" for name in LISTS)]


@settings(max_examples=4 * settings().max_examples, deadline=None)
@given(place=st.sampled_from(_PLACES), value=_PLAIN)
@example(place="nodes[0].labels", value={"a": "\ud800"})
def test_nonsense_at_any_place_is_read_or_refused_with_that_place(place: str, value: object) -> None:
    content = _changed(place, value)
    try:
        described = describe(content)
    except DescriptionError:
        return
    placement = decide(Balanced(), described.snapshot, name="balanced")
    problem = described_problem(described, placement.matrix, 1)
    assert verify(problem, protect(problem, "improved", 1.0)) == ()


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(content=_PLAIN)
def test_nonsense_is_refused(content: object) -> None:
    with pytest.raises(DescriptionError):
        describe(content)


def test_the_example_is_described_rightly_and_protected() -> None:
    described = parse_cluster_file((ROOT / "examples" / "cluster.json").read_text())
    placement = decide(Balanced(), described.snapshot, name="balanced")
    assert placement.unplaced == {}
    problem = described_problem(described, placement.matrix, 1)
    decision = protect(problem, "improved", 1.0)
    assert verify(problem, decision) == ()
    assert decision.unprotected == ()
    assert {choice.task for choice in decision.choices} == set(described.backups)


def test_backups_are_of_placed_tasks_that_keep_something() -> None:
    described = describe(
        {
            "nodes": [
                {**NODE, "labels": {"x": "1"}},
                {**NODE, "name": "b"},
                {**NODE, "name": "c", "bandwidth": 9},
            ],
            "tasks": [
                {"id": "kept", "snapshot": 1, "current": "a", "labels": {"x": "1"}},
                {"id": "pinned", "input_rate": 1, "current": "b", "nodes": ["b", "c"], "cpu": 2},
                {"id": "stateless", "current": "b"},
                {"id": "huge", "snapshot": 1, "cpu": 99},
            ],
        }
    )
    placement = decide(Balanced(), described.snapshot, name="balanced")
    problem = described_problem(described, placement.matrix, 2)
    assert [task.name for task in problem.tasks] == ["kept", "pinned"]
    assert [task.allowed for task in problem.tasks] == [("a",), ("b", "c")]
    assert [server.bandwidth for server in problem.servers] == [UNKNOWN_BANDWIDTH, UNKNOWN_BANDWIDTH, 9.0]
    assert [server.cpu_in_use for server in problem.servers] == [1.0, 3.0, 0.0]
    assert problem.failures == 2
    decision = protect(problem, "algorithm1", 1.0)
    assert [left.task for left in decision.unprotected] == ["kept"]
    assert decision.choices[0].redeploy == "c"


def test_a_method_without_its_package_or_its_time_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = described_problem(
        describe(WHOLE), decide(Balanced(), describe(WHOLE).snapshot, name="b").matrix, 1
    )

    def missing(problem: object, seconds: float) -> Any:
        raise ModuleNotFoundError("No module named 'pulp'", name="pulp")

    monkeypatch.setitem(METHODS, "cbc", missing)
    with pytest.raises(MethodError, match=r"needs the package pulp: install penstock\[solvers\]"):
        protect(problem, "cbc", 1.0)


def test_the_page_on_the_file_has_every_field_and_what_it_means() -> None:
    page = (ROOT / "docs" / "reference" / "cluster-file.md").read_text()
    for fields in (*LISTS.values(), CLUSTER):
        for field in fields:
            assert f"| `{field.name}` |" in page
            assert field.meaning in page, field.name
