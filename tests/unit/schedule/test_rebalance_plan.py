"""Which drivers are moved to even a cluster out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.job_documents import JobSpec
from penstock.cluster.node_documents import NodeInfo
from penstock.cluster.worker_documents import Progress, WorkerInfo
from penstock.job_settings import Resources
from penstock.schedule.rebalance_plan import DriverMove, rebalance
from support.settings import make_assignment, make_spec, make_state, replace

GIB = 1 << 30


def _cluster(
    nodes: dict[str, int], places: dict[str, tuple[str, int]], *, phase: str = "running", only: str = ""
) -> tuple[dict[str, JobSpec], ClusterState]:
    """Nodes with cores, and jobs with the node and the cores of their driver."""
    specs, assignments, workers = {}, {}, {}
    for name, (node, cores) in places.items():
        allowed = (only,) if only else ()
        specs[name] = make_spec(
            name, "b", "job.py", resources=Resources(cores=cores, memory=GIB), nodes=allowed
        )
        assignments[name] = make_assignment(name, 1, 1, 1, "b", "job.py", node, cores, GIB)
        workers[name] = (WorkerInfo(name, 1, 1, node, 1, phase, 0.0, progress=Progress()),)
    infos = {name: NodeInfo(name, "127.0.0.1", cores, 64 * GIB) for name, cores in nodes.items()}
    return specs, make_state(nodes=infos, assignments=assignments, workers=workers)


def test_jobs_move_from_full_nodes_to_empty_ones() -> None:
    desired, actual = _cluster({"n1": 4, "n2": 4}, {"a": ("n1", 2), "b": ("n1", 2)})
    assert rebalance(desired, actual) == [
        DriverMove("b", "n1", "n2", "cores in use: n1 100% -> 50%, n2 0% -> 50%")
    ]


def test_what_is_even_stays() -> None:
    desired, actual = _cluster({"n1": 4, "n2": 4}, {"a": ("n1", 2), "b": ("n2", 2)})
    assert rebalance(desired, actual) == []
    alone, one = _cluster({"n1": 4, "n2": 4}, {"a": ("n1", 4)})
    assert rebalance(alone, one) == [], "elsewhere it would be as full"


def test_jobs_that_do_not_run_or_may_not_go_stay() -> None:
    places = {"a": ("n1", 2), "b": ("n1", 2)}
    assert rebalance(*_cluster({"n1": 4, "n2": 4}, places, phase="ready")) == []
    assert rebalance(*_cluster({"n1": 4, "n2": 4}, places, only="n1")) == []


def test_what_the_user_put_somewhere_stays_and_what_was_rebalanced_does_not() -> None:
    desired, actual = _cluster({"n1": 4, "n2": 4}, {"a": ("n1", 2), "b": ("n1", 2)})
    by_user = {name: replace(spec, driver="n1", driver_by="user") for name, spec in desired.items()}
    assert rebalance(by_user, actual) == []
    by_us = {name: replace(spec, driver="n1", driver_by="rebalance") for name, spec in desired.items()}
    assert len(rebalance(by_us, actual)) == 1


def test_a_job_whose_data_is_with_its_node_stays() -> None:
    desired, actual = _cluster({"n1": 4, "n2": 4}, {"a": ("n1", 2), "b": ("n1", 2)})
    assert (
        rebalance({name: replace(spec, data_location="node") for name, spec in desired.items()}, actual) == []
    )


@given(
    st.dictionaries(st.sampled_from(["n1", "n2", "n3", "n4"]), st.integers(1, 16), min_size=1),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 8)), max_size=12),
)
def test_moves_never_overfill_and_never_make_loads_less_alike(
    nodes: dict[str, int], jobs: list[tuple[int, int]]
) -> None:
    names = sorted(nodes)
    places = {f"j{n:02}": (names[at % len(names)], cores) for n, (at, cores) in enumerate(jobs)}
    desired, actual = _cluster(nodes, places)
    moves = rebalance(desired, actual)
    assert len({move.job for move in moves}) == len(moves)
    before, after = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    targets = {move.job: move.target for move in moves}
    for job, (node, cores) in places.items():
        before[node] += cores
        after[targets.get(job, node)] += cores
    for move in moves:
        assert places[move.job][0] == move.origin
    for name in names:
        assert after[name] <= max(nodes[name], before[name])
    assert moves == rebalance(desired, actual)
