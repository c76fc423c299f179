"""Which jobs each node has to do with. A supervisor follows these, and not the assignments of all nodes."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cluster.documents import Assignment, NodeJobs
from penstock.cluster.replicas import nodes_used


def jobs_by_node(assignments: Mapping[str, Assignment]) -> dict[str, NodeJobs]:
    """Return the jobs of each node that something is assigned to.

    >>> jobs_by_node({"count": Assignment("count", 1, 1, 1, "", "", "n1", 1, 1)})
    {'n1': NodeJobs(node='n1', jobs=('count',))}
    """
    found: dict[str, list[str]] = {}
    for job in sorted(assignments):
        for node in nodes_used(assignments[job]):
            found.setdefault(node, []).append(job)
    return {node: NodeJobs(node, tuple(found[node])) for node in sorted(found)}


def listing_changes(
    assignments: Mapping[str, Assignment], listed: Mapping[str, NodeJobs]
) -> list[tuple[str, NodeJobs | None]]:
    """Return the nodes whose list is to be written, with what it is to be; None for one to be removed.

    >>> listing_changes({}, {"n1": NodeJobs("n1", ("count",))})
    [('n1', None)]
    """
    wanted = jobs_by_node(assignments)
    return [
        (node, wanted.get(node))
        for node in sorted({*wanted, *listed})
        if wanted.get(node) != listed.get(node)
    ]
