"""Which drivers are moved to even a cluster out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.documents import Assignment, JobSpec, NodeInfo, Progress, Resources, WorkerInfo
from penstock.cluster.placing import Demand, Room
from penstock.cluster.rebalancing import Move, rebalance
from penstock.cluster.view import Actual

GIB = 1 << 30


def _cluster(
    nodes: dict[str, int], places: dict[str, tuple[str, int]], *, phase: str = "running", only: str = ""
) -> tuple[dict[str, JobSpec], Actual]:
    """Nodes with cores, and jobs with the node and the cores of their driver."""
    specs, assignments, workers = {}, {}, {}
    for name, (node, cores) in places.items():
        allowed = (only,) if only else ()
        specs[name] = JobSpec(
            name, "b", "job.py", resources=Resources(cores=cores, memory=GIB), nodes=allowed
        )
        assignments[name] = Assignment(name, 1, 1, 1, "b", "job.py", node, cores, GIB)
        workers[name] = (WorkerInfo(name, 1, 1, node, 1, phase, 0.0, progress=Progress()),)
    infos = {name: NodeInfo(name, "127.0.0.1", cores, 64 * GIB) for name, cores in nodes.items()}
    return specs, Actual(nodes=infos, assignments=assignments, workers=workers)


def test_jobs_move_from_full_nodes_to_empty_ones() -> None:
    desired, actual = _cluster({"n1": 4, "n2": 4}, {"a": ("n1", 2), "b": ("n1", 2)})
    assert rebalance(desired, actual) == [Move("a", "n1", "n2", "n1 is 100% full, n2 will be 50%")]


def test_what_is_even_stays() -> None:
    desired, actual = _cluster({"n1": 4, "n2": 4}, {"a": ("n1", 2), "b": ("n2", 2)})
    assert rebalance(desired, actual) == []
    alone, one = _cluster({"n1": 4, "n2": 4}, {"a": ("n1", 4)})
    assert rebalance(alone, one) == [], "elsewhere it would be as full"


def test_jobs_that_do_not_run_or_may_not_go_stay() -> None:
    places = {"a": ("n1", 2), "b": ("n1", 2)}
    assert rebalance(*_cluster({"n1": 4, "n2": 4}, places, phase="ready")) == []
    assert rebalance(*_cluster({"n1": 4, "n2": 4}, places, only="n1")) == []


@given(
    st.dictionaries(st.sampled_from(["n1", "n2", "n3", "n4"]), st.integers(1, 16), min_size=1),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 8)), max_size=12),
)
def test_moves_never_overfill_and_never_raise_the_fullest(
    nodes: dict[str, int], jobs: list[tuple[int, int]]
) -> None:
    names = sorted(nodes)
    places = {f"j{n:02}": (names[at % len(names)], cores) for n, (at, cores) in enumerate(jobs)}
    desired, actual = _cluster(nodes, places)
    room = Room.of(actual.nodes, actual.assignments.values())
    fullest = max((nodes[name] - room.cores[name]) / nodes[name] for name in names)
    moves = rebalance(desired, actual)
    assert len({move.job for move in moves}) == len(moves)
    for move in moves:
        demand = Demand(places[move.job][1], GIB)
        assert places[move.job][0] == move.origin
        assert room.cores[move.target] >= demand.cores
        room.give(move.origin, demand)
        room.take(move.target, demand)
    assert max((nodes[name] - room.cores[name]) / nodes[name] for name in names) <= fullest
    assert moves == rebalance(desired, actual)
