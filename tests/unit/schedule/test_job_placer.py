"""The leader's questions as snapshots, and matrices as answers."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.assignment_documents import Assignment, ExecutorSlot
from penstock.cluster.cluster_state import ClusterState, ReservedResources
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.node_documents import NodeInfo, NodeReport
from penstock.cluster.placement_request import PlacementRequest, PlacementResult
from penstock.cluster.worker_documents import WorkerFigures
from penstock.graph.qos import QoS
from penstock.job_settings import Resources
from penstock.schedule.custom_strategy import StrategyPendingError
from penstock.schedule.job_placer import DEFAULT_PRIORITY, JobPlacer
from penstock.schedule.placement_model import ClusterSnapshot, Matrix, Task
from penstock.schedule.placement_strategies import Balanced, Packed, Strategy
from support.settings import make_assignment, make_spec, make_state, replace

GIB = 1 << 30


def _spec(name: str = "job", cores: int = 1, **changes: Any) -> JobSpec:
    asked = changes.pop("resources", Resources(cores=cores, memory=GIB))
    return make_spec(name, "b" * 64, "job.py", resources=asked, **changes)


def _nodes(**cores: int) -> dict[str, NodeInfo]:
    return {name: NodeInfo(name, "", count, 64 * GIB) for name, count in cores.items()}


def _assignment(name: str, node: str, cores: int = 1, **changes: Any) -> Assignment:
    return replace(make_assignment(name, 1, 1, 1, "b" * 64, "job.py", node, cores, GIB), **changes)


def _place(
    actual: ClusterState, *requests: PlacementRequest, placer: JobPlacer | None = None
) -> dict[str, PlacementResult]:
    answers = (placer or JobPlacer()).place(requests, actual)
    return {str(replica): placed for replica, placed in answers.items()}


def test_jobs_that_lost_a_node_are_spread_over_the_others_together() -> None:
    actual = ClusterState(nodes=_nodes(n1=4, n2=4))
    found = _place(actual, *(PlacementRequest(_spec(f"j{number}", 2)) for number in range(4)))
    assert sorted(placed.node or "" for placed in found.values()) == ["n1", "n1", "n2", "n2"]
    assert {placed.strategy for placed in found.values()} == {"balanced"}


def test_a_driver_that_can_stay_stays() -> None:
    busy = {name: _assignment(name, "n1") for name in ("a", "b")}
    job = _assignment("job", "n1")
    actual = make_state(nodes=_nodes(n1=4, n2=4), assignments={**busy, "job": job})
    request = PlacementRequest(_spec(), job, stay="n1")
    assert _place(actual, request)["job"].node == "n1"
    larger = replace(request, spec=_spec(cores=3))
    assert _place(actual, larger)["job"].node == "n2", "it has become too large for where it was"


def test_what_runs_of_a_job_whose_assignment_cannot_be_read_takes_room() -> None:
    worker = WorkerFigures("later", "driver", 1, 1, 7, "LIVE|running", 2.5, 8 * GIB, 0.0)
    report = NodeReport(1.0, 0.0, 0, 64 * GIB, 0.0, 0.0, workers=(worker,))
    actual = ClusterState(
        nodes=_nodes(n1=4, n2=3), reports={"n1": report}, unreadable={"later": "/assignments/later: schema 2"}
    )
    assert _place(actual, PlacementRequest(_spec(cores=2)))["job"].node == "n2"
    assert _place(replace(actual, unreadable={}), PlacementRequest(_spec(cores=4)))["job"].node == "n1"
    assert _place(actual, PlacementRequest(_spec(cores=4)))["job"].node is None


def test_a_node_that_is_preferred_is_taken_if_it_can_be() -> None:
    full = make_state(nodes=_nodes(n1=4, n2=4, n3=4), assignments={"full": _assignment("full", "n1", 4)})
    assert _place(full, PlacementRequest(_spec(), prefer="n2"))["job"].node == "n2"
    assert _place(full, PlacementRequest(_spec(), prefer="n1"))["job"].node in ("n2", "n3")
    assert _place(full, PlacementRequest(_spec(nodes=("n3",)), prefer="n2"))["job"].node == "n3"
    refused = _place(full, PlacementRequest(_spec(), only="n1"))["job"]
    assert refused.node is None
    assert "1 cores asked for, 0 of 4 free" in refused.told


def test_a_node_to_avoid_is_avoided() -> None:
    actual = ClusterState(nodes=_nodes(n1=8, n2=2))
    assert _place(actual, PlacementRequest(_spec(), avoid=frozenset({"n1"})))["job"].node == "n2"
    alone = _place(ClusterState(nodes=_nodes(n1=8)), PlacementRequest(_spec(), avoid=frozenset({"n1"})))[
        "job"
    ]
    assert alone.node is None


def test_executors_that_are_missing_go_around_those_that_stay() -> None:
    asked = Resources(1, GIB, executors=3, executor_cores=1, executor_memory=GIB)
    slots = (ExecutorSlot(2, "n2", 1, GIB),)
    before = _assignment("job", "n1", executors=slots)
    actual = make_state(nodes=_nodes(n1=2, n2=2, n3=2), assignments={"job": before})
    request = PlacementRequest(_spec(resources=asked), before, driver=False, slots=slots, missing=(1, 3))
    found = _place(actual, request)["job"]
    assert sorted(found.executors) == [1, 3]
    assert "n3" in found.executors.values(), "nothing is there yet"


def test_a_node_that_came_back_smaller_keeps_what_it_has_and_gets_no_more() -> None:
    there = {"a": _assignment("a", "n1", 4)}
    actual = make_state(nodes=_nodes(n1=2, n2=1), assignments=there)
    assert _place(actual, PlacementRequest(_spec()))["job"].node == "n2"
    assert _place(actual, PlacementRequest(_spec(cores=2)))["job"].node is None


def test_a_node_that_is_overloaded_is_the_last_to_be_used() -> None:
    busy = NodeReport(0.0, 0.99, 0, 1, 0.0, 0.0)
    actual = ClusterState(nodes=_nodes(n1=8, n2=1), reports={"n1": busy})
    assert _place(actual, PlacementRequest(_spec()))["job"].node == "n2"
    assert _place(actual, PlacementRequest(_spec(cores=2)))["job"].node == "n1"


def test_where_every_node_is_overloaded_that_is_no_reason_against_any() -> None:
    busy = NodeReport(0.0, 0.99, 0, 1, 0.0, 0.0)
    actual = ClusterState(nodes=_nodes(n1=8, n2=8), reports={"n1": busy, "n2": busy})
    request = PlacementRequest(_spec(strategy="mine:First"))
    found = _place(actual, request, placer=JobPlacer(_by_job))["job"]
    assert (found.node, found.strategy, found.refused) == ("n1", "mine:First", "")


def test_the_tasks_of_a_job_stay_in_one_rack_and_are_spread_over_it() -> None:
    nodes = {
        name: NodeInfo(name, "", 4, 64 * GIB, rack=rack)
        for name, rack in (("n1", "r1"), ("n2", "r2"), ("n3", "r1"), ("n4", "r2"))
    }
    asked = Resources(1, GIB, executors=3, executor_cores=1, executor_memory=GIB)
    found = _place(ClusterState(nodes=nodes), PlacementRequest(_spec(resources=asked), missing=(1, 2, 3)))[
        "job"
    ]
    places = [found.node or "", *found.executors.values()]
    assert len({nodes[name].rack for name in places}) == 1
    assert len(set(places)) == 2


class _Waiting:
    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        raise StrategyPendingError("it is asked")


class _First:
    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        return Matrix({task.id: snapshot.nodes[0].name for task in demands})


class _Faulty:
    def place(self, snapshot: ClusterSnapshot, demands: tuple[Task, ...]) -> Matrix:
        return Matrix({task.id: "moon" for task in demands})


def _by_job(spec: JobSpec) -> tuple[str, Strategy]:
    known: dict[str, Strategy] = {
        "mine:Waiting": _Waiting(),
        "mine:Faulty": _Faulty(),
        "mine:First": _First(),
        "packed": Packed(),
    }
    return spec.settings.placement.strategy or "balanced", known.get(
        spec.settings.placement.strategy, Balanced()
    )


def test_each_job_is_placed_by_its_own_strategy() -> None:
    actual = ClusterState(nodes=_nodes(n1=4, n2=4))
    packed = [PlacementRequest(_spec(f"p{number}", strategy="packed")) for number in range(3)]
    level = [PlacementRequest(_spec(f"b{number}")) for number in range(2)]
    found = _place(actual, *packed, *level, placer=JobPlacer(_by_job))
    assert len({found[f"p{number}"].node for number in range(3)}) == 1
    assert {found[f"p{number}"].strategy for number in range(3)} == {"packed"}
    assert {found[f"b{number}"].strategy for number in range(2)} == {"balanced"}


def test_who_waits_for_a_strategy_keeps_nobody_waiting() -> None:
    actual = ClusterState(nodes=_nodes(n1=4))
    slow, quick = PlacementRequest(_spec("slow", strategy="mine:Waiting")), PlacementRequest(_spec("quick"))
    found = _place(actual, slow, quick, placer=JobPlacer(_by_job))
    assert (found["slow"].node, found["slow"].waits, found["slow"].told) == (None, True, "it is asked")
    assert found["quick"].node == "n1"


def test_what_a_strategy_says_wrong_is_refused_with_the_reason() -> None:
    request = PlacementRequest(_spec(strategy="mine:Faulty"))
    found = _place(ClusterState(nodes=_nodes(n1=4)), request, placer=JobPlacer(_by_job))["job"]
    assert (found.node, found.strategy) == ("n1", "balanced")
    assert "there is no node 'moon'" in found.refused


@given(
    st.dictionaries(st.sampled_from(["n1", "n2", "n3"]), st.integers(1, 8), min_size=1),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=6),
)
def test_no_node_is_given_more_than_it_has_and_nobody_is_turned_away_without_a_reason(
    cores: dict[str, int], jobs: list[tuple[int, int]], there: list[tuple[int, int]]
) -> None:
    names = sorted(cores)
    standing = {
        f"old{n}": _assignment(f"old{n}", names[at % len(names)], count)
        for n, (at, count) in enumerate(there)
    }
    actual = make_state(nodes=_nodes(**cores), assignments=standing)
    requests = [
        PlacementRequest(
            _spec(f"new{n}", resources=Resources(count, GIB, more, 1, GIB)), missing=tuple(range(1, more + 1))
        )
        for n, (count, more) in enumerate(jobs)
    ]
    found = _place(actual, *requests)
    used = dict.fromkeys(names, 0)
    for assignment in standing.values():
        used[assignment.node] += assignment.settings.resources.cores
    before = dict(used)
    for request in requests:
        placed = found[request.spec.name]
        assert (placed.node is None) == bool(placed.told)
        if placed.node is not None:
            used[placed.node] += request.spec.settings.resources.cores
            for node in placed.executors.values():
                used[node] += 1
    for name in names:
        assert used[name] <= max(cores[name], before[name])
    assert found == _place(actual, *reversed(requests))


def test_a_job_that_cannot_be_placed_anew_keeps_its_room() -> None:
    """It runs on where it is: another job must not be given its place."""
    full = {"full": _assignment("full", "n2", 2), "job": _assignment("job", "n1", 2)}
    actual = make_state(nodes=_nodes(n1=2, n2=2), assignments=full)
    moved = PlacementRequest(_spec(cores=2), full["job"], only="n2", stay="n1")
    found = _place(actual, moved, PlacementRequest(_spec("new", 2)))
    assert found["job"].node is None
    assert "0 of 2 free (n2)" in found["job"].told
    assert found["new"].node is None


def test_two_jobs_on_full_nodes_can_change_places() -> None:
    standing = {"a": _assignment("a", "n1", 2), "b": _assignment("b", "n2", 2)}
    actual = make_state(nodes=_nodes(n1=2, n2=2), assignments=standing)
    requests = [
        PlacementRequest(_spec("a", 2), standing["a"], only="n2", stay="n1"),
        PlacementRequest(_spec("b", 2), standing["b"], only="n1", stay="n2"),
    ]
    found = _place(actual, *requests)
    assert (found["a"].node, found["b"].node) == ("n2", "n1")


def test_a_driver_is_not_placed_if_none_of_its_executors_is() -> None:
    asked = Resources(cores=1, memory=GIB, executors=1, executor_cores=2)
    small = ClusterState(nodes=_nodes(n1=1))
    found = _place(small, PlacementRequest(_spec(resources=asked), missing=(1,)))["job"]
    assert (found.node, dict(found.executors)) == (None, {})
    assert "none of its executors has a node: no node can take it: 2 cores asked for" in found.told
    found = _place(ClusterState(nodes=_nodes(n1=2)), PlacementRequest(_spec(resources=asked), missing=(1,)))[
        "job"
    ]
    assert (found.node, dict(found.executors)) == (None, {})
    assert "no node has room for the driver once the executors are placed" in found.told
    both = _place(
        ClusterState(nodes=_nodes(n1=2)),
        PlacementRequest(_spec(resources=asked), missing=(1,)),
        PlacementRequest(_spec("z", 2)),
    )
    assert both["z"].node == "n1", "what it cannot use is free for others"


def test_an_executor_that_cannot_be_placed_anew_keeps_its_room() -> None:
    before = _assignment("job", "n1", executors=(ExecutorSlot(1, "n2", 1, GIB),))
    asked = Resources(cores=1, memory=GIB, executors=1, executor_cores=4)
    actual = make_state(nodes=_nodes(n1=1, n2=1), assignments={"job": before})
    larger = PlacementRequest(_spec(resources=asked), before, driver=False, missing=(1,))
    found = _place(actual, larger, PlacementRequest(_spec("new")))
    assert dict(found["job"].executors) == {}
    assert found["new"].node is None


def test_where_there_is_not_room_for_all_priority_counts_and_then_age() -> None:
    urgent = _spec("z", structure={"qos": {"priority": 9}}, submitted=3.0)
    old, new = _spec("y", submitted=1.0), _spec("a", submitted=2.0)
    requests = [PlacementRequest(spec) for spec in (new, old, urgent)]
    found = _place(ClusterState(nodes=_nodes(n1=1)), *requests)
    assert [name for name, placed in found.items() if placed.node] == ["z"]
    found = _place(ClusterState(nodes=_nodes(n1=1, n2=1)), *requests)
    assert sorted(name for name, placed in found.items() if placed.node) == ["y", "z"]
    broken = _spec("b", structure={"qos": {"priority": "high"}}, submitted=0.5)
    found = _place(ClusterState(nodes=_nodes(n1=1)), *requests[:2], PlacementRequest(broken))
    assert [name for name, placed in found.items() if placed.node] == ["b"], "it counts as ordinary"


def test_a_job_without_a_priority_has_that_of_the_default() -> None:
    assert QoS().priority == DEFAULT_PRIORITY


def test_priority_counts_more_than_how_hard_a_job_is_to_place() -> None:
    large = _spec("large", 2)
    urgent = [_spec(f"small{number}", structure={"qos": {"priority": 8}}) for number in range(2)]
    found = _place(ClusterState(nodes=_nodes(n1=2)), *map(PlacementRequest, [large, *urgent]))
    assert sorted(name for name, placed in found.items() if placed.node) == ["small0", "small1"]
    larger = replace(large, structure={"qos": {"priority": 9}})
    found = _place(ClusterState(nodes=_nodes(n1=2)), *map(PlacementRequest, [*urgent, larger]))
    assert [name for name, placed in found.items() if placed.node] == ["large"]


def test_priority_counts_whatever_strategies_jobs_have() -> None:
    low = _spec("low", structure={"qos": {"priority": 1}})
    high = _spec("high", strategy="packed", structure={"qos": {"priority": 9}})
    found = _place(
        ClusterState(nodes=_nodes(n1=1)),
        PlacementRequest(low),
        PlacementRequest(high),
        placer=JobPlacer(_by_job),
    )
    assert [name for name, placed in found.items() if placed.node] == ["high"]
    old, new = _spec("old", strategy="packed", submitted=1.0), _spec("new", submitted=2.0)
    found = _place(
        ClusterState(nodes=_nodes(n1=1)),
        PlacementRequest(new),
        PlacementRequest(old),
        placer=JobPlacer(_by_job),
    )
    assert [name for name, placed in found.items() if placed.node] == ["old"]


def test_all_replicas_of_an_urgent_job_come_before_others() -> None:
    low = _spec("low", structure={"qos": {"priority": 1}})
    high = _spec("high", k=1, agreed=True, structure={"qos": {"priority": 9}})
    requests = [
        PlacementRequest(low),
        *(PlacementRequest(high, replica=index) for index in (0, 1)),
    ]
    found = _place(ClusterState(nodes=_nodes(n1=1, n2=1)), *requests)
    assert sorted(name for name, placed in found.items() if placed.node) == ["high", "high~1"]


def test_an_assignment_that_cannot_be_read_takes_the_room_that_it_names_while_its_worker_is_down() -> None:
    rooms = (
        ReservedResources("later", "driver", "n1", 3, GIB),
        ReservedResources("later", "executor-1", "gone", 3, GIB),
    )
    actual = ClusterState(nodes=_nodes(n1=4, n2=2), unreadable={"later": "schema 2"}, unreadable_room=rooms)
    assert _place(actual, PlacementRequest(_spec(cores=2)))["job"].node == "n2"
    assert _place(actual, PlacementRequest(_spec(cores=3)))["job"].node is None
