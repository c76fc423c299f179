"""A job with replicas from its submission to its end: the service writes wishes, and the leader decides."""

from __future__ import annotations

from replicated_cluster import Cluster, joined, submission

from penstock.coord import store_paths

CODE = "b" * 64


def _decide(cluster: Cluster) -> dict[str, str]:
    """Let the leader decide; return where each replica is."""
    for _ in range(3):
        cluster.master.step(1.0)
    return {str(replica): found.node for replica, found in cluster.documents.assignments().items()}


def _run(cluster: Cluster) -> None:
    """Have a worker run for each replica that is assigned, in step with the others."""
    for replica, found in cluster.documents.assignments().items():
        cluster.member(replica.index, found.node, revision=found.revision, joined=joined(9, 9), assign=False)


def test_from_submission_to_end() -> None:
    cluster = Cluster(nodes=3)
    cluster.service.submit(submission(k=1), CODE)
    places = _decide(cluster)
    assert sorted(places) == ["job", "job~1"]
    assert places["job"] != places["job~1"]
    _run(cluster)
    _decide(cluster)
    [summary] = cluster.service.jobs()
    assert (summary["phase"], summary["safety"]) == ("RUNNING", "k-safe")

    cluster.service.replicate("job", {"k": 2})
    more = _decide(cluster)
    assert len(set(more.values())) == 3
    assert {name: more[name] for name in places} == places, "those that run are not touched"
    assert cluster.service.jobs()[0]["safety"] == "degraded (k=1)"
    assert [replica["phase"] for replica in cluster.service.job("job")["replicas"]][2] == "assigned"

    cluster.service.replicate("job", {"k": 0})
    assert _decide(cluster) == {"job": places["job"]}
    assert cluster.spec().agreed

    cluster.service.kill("job", drain=False)
    assert _decide(cluster) == {}
    for name in cluster.store.children(store_paths.WORKERS):
        for worker in cluster.store.children(f"{store_paths.WORKERS}/{name}"):
            cluster.store.delete(f"{store_paths.WORKERS}/{name}/{worker}")
    _decide(cluster)
    assert cluster.service.jobs()[0]["phase"] == "ENDED"

    before = cluster.status().revision
    cluster.service.submit(submission(k=1, fresh=True), CODE)
    assert (cluster.spec().after, cluster.spec().forget) == (before, before)
    assert sorted(_decide(cluster)) == ["job", "job~1"]
    assert cluster.status().revision > before


def test_the_first_replica_is_moved_and_the_others_stay() -> None:
    cluster = Cluster(nodes=3)
    cluster.service.submit(submission(k=1), CODE)
    places = _decide(cluster)
    _run(cluster)
    [free] = {"n0", "n1", "n2"} - set(places.values())
    cluster.service.migrate("job", free)
    assert _decide(cluster) == {**places, "job": free}
