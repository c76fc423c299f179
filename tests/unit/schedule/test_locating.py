"""The location controller: who keeps copies, who runs the job next, and what is told of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.cluster.actions import Locate, Unlocate
from penstock.cluster.documents import Assignment, JobSpec, Kept, Location, NodeInfo, WorkerInfo
from penstock.cluster.view import Actual
from penstock.schedule.locating import LocatingRules, locate, occasion

GIB = 1 << 30


def _cluster(jobs: dict[str, str], nodes: int = 3, **more: Any) -> tuple[dict[str, JobSpec], Actual]:
    """Jobs that keep their data with the nodes they are on, each with one core of four."""
    specs = {name: JobSpec(name, "b", "job.py", keep="node") for name in jobs}
    assignments = {
        name: Assignment(name, 1, 1, 1, "b", "job.py", node, 1, GIB, keep="node")
        for name, node in jobs.items()
    }
    infos = {
        f"n{number}": NodeInfo(f"n{number}", "", 4, 8 * GIB, url=f"http://n{number}", **more)
        for number in range(1, nodes + 1)
    }
    return specs, Actual(nodes=infos, assignments=assignments)


def _told(actual: Actual, actions: list[Locate | Unlocate]) -> Actual:
    """Return the cluster in which that has been written."""
    locations = dict(actual.locations)
    for action in actions:
        if isinstance(action, Locate):
            locations[action.job] = action.location
        else:
            del locations[action.job]
    return replace(actual, locations=locations)


def test_a_copy_is_on_another_node_which_runs_the_job_next() -> None:
    desired, actual = _cluster({"a": "n1"})
    [told] = locate(desired, actual, 5.0)
    assert isinstance(told, Locate)
    found = told.location
    assert found.store == found.redeploy != "n1"
    assert (found.store_url, found.since, found.rate) == (f"http://{found.store}", 5.0, 0.0)
    assert found.reason


def test_only_differences_are_told() -> None:
    desired, actual = _cluster({"a": "n1", "b": "n2"})
    settled = _told(actual, locate(desired, actual, 5.0))
    assert locate(desired, settled, 9.0) == []
    gone = settled.locations["a"].store
    fewer = {name: node for name, node in settled.nodes.items() if name != gone}
    on_rest = {name: one for name, one in settled.assignments.items() if one.node != gone}
    after = locate(desired, replace(settled, nodes=fewer, assignments=on_rest), 10.0)
    assert {told.job for told in after if isinstance(told, Locate)} >= {"a"}
    assert all(told.location.store != gone for told in after if isinstance(told, Locate))


def test_a_store_that_answers_elsewhere_is_told() -> None:
    desired, actual = _cluster({"a": "n1"})
    settled = _told(actual, locate(desired, actual, 5.0))
    store = settled.locations["a"].store
    nodes = {**settled.nodes, store: replace(settled.nodes[store], url="http://elsewhere")}
    [told] = locate(desired, replace(settled, nodes=nodes), 9.0)
    assert isinstance(told, Locate)
    assert told.location.store_url == "http://elsewhere"


def test_the_location_of_a_job_whose_node_is_gone_stays_until_it_is_used() -> None:
    desired, actual = _cluster({"a": "n1"})
    settled = _told(actual, locate(desired, actual, 5.0))
    nodes = {name: node for name, node in settled.nodes.items() if name != "n1"}
    assert locate(desired, replace(settled, nodes=nodes), 9.0) == []


def test_without_another_node_there_is_no_copy() -> None:
    desired, actual = _cluster({"a": "n1"}, nodes=1)
    assert locate(desired, actual, 5.0) == []
    before = Location("a", "n2", "http://n2", "n2")
    [told] = locate(desired, replace(actual, locations={"a": before}), 5.0)
    assert isinstance(told, Unlocate)
    assert "nobody can keep a copy" in told.reason


def test_the_location_of_a_job_that_is_over_goes_when_its_worker_has() -> None:
    desired, actual = _cluster({"a": "n1"})
    settled = replace(_told(actual, locate(desired, actual, 5.0)), assignments={})
    worker = WorkerInfo("a", 1, 1, "n1", 1, "stopping", 0.0)
    assert locate(desired, replace(settled, workers={"a": (worker,)}), 9.0) == []
    assert locate(desired, settled, 9.0) == [Unlocate("a", "it runs no more")]


def test_what_other_jobs_leave_decides_who_runs_it_next() -> None:
    desired, actual = _cluster({"a": "n1"})
    full = Assignment("full", 1, 1, 1, "b", "job.py", "n2", 4, GIB)
    [told] = locate(desired, replace(actual, assignments={**actual.assignments, "full": full}), 5.0)
    assert isinstance(told, Locate)
    assert told.location.redeploy == "n3"


def test_two_failures_at_once_need_more_room() -> None:
    jobs = {"a": "n1", "b": "n2"}
    desired, actual = _cluster(jobs, nodes=3)
    three = {name: replace(one, cores=3) for name, one in actual.assignments.items()}
    crowded = replace(actual, assignments=three)
    one = locate(desired, crowded, 5.0)
    assert len([told for told in one if isinstance(told, Locate)]) == 2, "n3 can take either of them"
    two = locate(desired, crowded, 5.0, LocatingRules(failures=2))
    assert len([told for told in two if isinstance(told, Locate)]) < 2, "n3 cannot take both"


def test_how_much_there_is_to_copy_is_what_was_copied() -> None:
    desired, actual = _cluster({"a": "n1"}, bandwidth=10e6)
    # All is on nodes of one link each: what is copied every second must fit through it.
    fast = replace(actual, kept={"a": Kept("a", "n1", 1, 1, "n2", bytes=50_000_000, rate=20e6)})
    assert locate(desired, fast, 5.0) == []
    slow = replace(actual, kept={"a": Kept("a", "n1", 1, 1, "n2", bytes=50_000_000, rate=2e6)})
    assert len(locate(desired, slow, 5.0)) == 1


def test_only_what_matters_is_an_occasion() -> None:
    desired, actual = _cluster({"a": "n1"})
    before = occasion(desired, actual)
    moved = replace(actual, assignments={"a": replace(actual.assignments["a"], node="n2")})
    assert occasion(desired, moved) != before
    assert occasion(desired, replace(actual, nodes=dict(list(actual.nodes.items())[:2]))) != before
    shared = {"a": replace(desired["a"], keep="shared")}
    assert occasion(shared, actual) == (), "jobs whose data is everywhere need no copies"


def test_a_job_is_redeployed_only_where_its_labels_and_nodes_let_it_run() -> None:
    specs, actual = _cluster({"count": "n1"}, nodes=4)
    labelled = {**actual.nodes, "n3": replace(actual.nodes["n3"], labels={"disk": "fast"})}
    fast = {"count": replace(specs["count"], labels={"disk": "fast"})}
    (told,) = locate(fast, replace(actual, nodes=labelled), 0.0)
    assert isinstance(told, Locate)
    assert told.location.redeploy == "n3"
    chosen = {"count": replace(specs["count"], nodes=("n1", "n4"))}
    (told,) = locate(chosen, actual, 0.0)
    assert isinstance(told, Locate)
    assert told.location.redeploy == "n4"
    nowhere = {"count": replace(specs["count"], nodes=("n1",))}
    assert locate(nowhere, actual, 0.0) == []
