"""Jobs stay in one rack where they fit, and are cut where it costs least where they do not."""

from __future__ import annotations

import pytest
from benchmarks.placement_baselines import StormResourceAware, by_connections

from penstock.schedule.placement_cost import DEFAULT_WEIGHTS, cost
from penstock.schedule.placement_decision import decide
from penstock.schedule.placement_model import ClusterSnapshot, Matrix, Node, Task, Traffic
from penstock.schedule.placement_strategies import Balanced, TrafficFirst
from penstock.schedule.search.construction_heuristics import place_whole_jobs
from penstock.schedule.search.placement_state import NOWHERE, SnapshotIndex, initial_state


def _nodes(racks: str, cores: float = 4) -> tuple[Node, ...]:
    return tuple(Node(f"n{number}", cores, 1 << 30, rack=rack) for number, rack in enumerate(racks))


def _chain(job: str, length: int, rates: list[float]) -> tuple[list[Task], list[Traffic]]:
    tasks = [Task(f"{job}/t-{number}", job, memory=1 << 20) for number in range(length)]
    pairs = zip(tasks, tasks[1:], rates, strict=False)
    return tasks, [Traffic(one.id, two.id, rate) for one, two, rate in pairs]


def _racks(places: Matrix, snapshot: ClusterSnapshot, job: str) -> set[str]:
    return {
        snapshot.node_named[node].rack for task, node in places.places.items() if task.startswith(f"{job}/")
    }


@pytest.mark.parametrize("strategy", [Balanced(), TrafficFirst()])
def test_jobs_that_fit_into_a_rack_are_whole_and_the_nodes_alike(strategy: Balanced | TrafficFirst) -> None:
    tasks, traffic = [], []
    for job in ("a", "b"):
        of, sent = _chain(job, 4, [1.0] * 3)
        tasks += of
        traffic += sent
    snapshot = ClusterSnapshot(_nodes("xxyy"), tuple(tasks), tuple(traffic))
    placement = decide(strategy, snapshot, name="tested")
    assert not placement.unplaced
    assert placement.cost.cross_rack == 0.0
    if isinstance(strategy, Balanced):
        assert _racks(placement.matrix, snapshot, "a") != _racks(placement.matrix, snapshot, "b")
        assert placement.cost.imbalance == pytest.approx(0.0, abs=1e-9)


def test_a_job_that_fits_into_no_rack_is_cut_where_it_sends_least() -> None:
    tasks, traffic = _chain("a", 6, [5.0, 5.0, 0.1, 5.0, 5.0])
    snapshot = ClusterSnapshot(_nodes("xy", cores=4), tuple(tasks), tuple(traffic))
    placement = decide(Balanced(), snapshot, name="balanced")
    assert not placement.unplaced
    assert placement.cost.cross_rack == pytest.approx(0.1 / 20.1)


def test_the_emptier_rack_takes_a_new_job() -> None:
    old, sent = _chain("old", 3, [1.0] * 2)
    running = [Task(task.id, task.job, memory=task.memory, current="n0") for task in old]
    new, more = _chain("new", 3, [1.0] * 2)
    snapshot = ClusterSnapshot(_nodes("xxyy"), (*running, *new), (*sent, *more))
    placement = decide(Balanced(), snapshot, name="balanced")
    assert _racks(placement.matrix, snapshot, "new") == {"y"}


def test_what_fits_into_no_rack_is_left_to_others_and_nothing_stays_behind() -> None:
    tasks, traffic = _chain("a", 6, [1.0] * 5)
    small, more = _chain("b", 2, [1.0])
    snapshot = ClusterSnapshot(_nodes("xy"), (*tasks, *small), (*traffic, *more))
    index = SnapshotIndex(snapshot)
    movable, state = initial_state(index, snapshot.tasks, DEFAULT_WEIGHTS)
    left = place_whole_jobs(state, movable)
    assert sorted(index.tasks[task].id for task in left) == [task.id for task in tasks]
    assert all(state.place[task] == NOWHERE for task in left)
    assert sum(state.cpu) == 2.0


def test_the_whole_is_taken_only_where_it_is_cheaper() -> None:
    # One job on two racks with nothing sent: level is all that counts.
    tasks = tuple(Task(f"a/t-{number}", "a", memory=1 << 20) for number in range(4))
    snapshot = ClusterSnapshot(_nodes("xy"), tasks)
    assert cost(Balanced().place(snapshot, tasks), snapshot).imbalance == pytest.approx(0.0, abs=1e-9)


def test_storm_takes_the_best_connected_vertex_first_and_one_of_each_neighbour_in_turn() -> None:
    counts = {"spout": 1, "split": 2, "count": 3}
    tasks = tuple(
        Task(f"j/{name}-{number}", "j") for name, count in counts.items() for number in range(1, count + 1)
    )
    edges = (("spout", "split"), ("split", "count"))
    traffic = tuple(
        Traffic(f"j/{one}-{first}", f"j/{two}-{second}", 1.0)
        for one, two in edges
        for first in range(1, counts[one] + 1)
        for second in range(1, counts[two] + 1)
    )
    index = SnapshotIndex(ClusterSnapshot(_nodes("x"), tasks, traffic))
    order = [index.tasks[task].id for task in by_connections(index, list(range(len(tasks))))]
    # split has 2 (1 + 3) connections, count 3 * 2, spout 1 * 2; of split's neighbours spout has fewer tasks.
    assert order == ["j/split-1", "j/spout-1", "j/count-1", "j/split-2", "j/count-2", "j/count-3"]


def test_storm_goes_on_where_its_job_is() -> None:
    running = Task("j/a-1", "j", current="n1", memory=1)
    lost = Task("j/a-2", "j", memory=1)
    snapshot = ClusterSnapshot(_nodes("xx"), (running, lost))
    assert StormResourceAware().place(snapshot, (lost,)).places["j/a-2"] == "n1"
