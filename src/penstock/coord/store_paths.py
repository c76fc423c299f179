"""The paths of the store's nodes, relative to the root that the store was opened with."""

from __future__ import annotations

MASTERS = "/masters/members"
"""``/masters/members/NAME``, ephemeral, by each master: MasterInfo. The classes are in ``cluster``."""
LEADER = "/masters/leader"
"""Ephemeral: the lock that masters compete for. Its data is the leader's name."""
EPOCH = "/masters/epoch"
"""Set by each new leader. Every write of a leader checks that this node's version has not changed since."""
CLUSTER = "/masters/cluster"
"""By the first leader, once: ClusterInfo."""
NODES = "/nodes"
"""``/nodes/NAME``, ephemeral, by each supervisor: NodeInfo."""
KNOWN = "/known"
"""``/known/NAME``, by each supervisor until it leaves the cluster properly: KnownNode."""
REPORTS = "/reports"
"""``/reports/NAME``, ephemeral, by each supervisor every few seconds: NodeReport."""
JOBS = "/jobs"
"""``/jobs/JOB``, by the leader on a client's request: JobSpec."""
ASSIGNMENTS = "/assignments"
"""``/assignments/JOB``, by the leader: Assignment."""
NODE_JOBS = "/node-jobs"
"""``/node-jobs/NAME``, by the leader: NodeJobs, so that a supervisor need not read all assignments."""
STATUS = "/status"
"""``/status/JOB``, by the leader: JobStatus."""
WORKERS = "/workers"
"""``/workers/JOB/REVISION-ATTEMPT``, ephemeral, by each worker: WorkerInfo."""
RESULTS = "/results"
"""``/results/JOB``, by a worker that ends permanently: Result."""
FAILURES = "/failures"
"""``/failures/JOB``, by supervisors: Failures."""
ALARMS = "/alarms"
"""``/alarms/ID``, by the leader: Alarm."""
LOCATIONS = "/locations"
"""``/locations/JOB``, by the leader: BackupLocation."""
KEPT = "/kept"
"""``/kept/JOB``, by the worker of a job with node-kept data: BackupStatus."""
TOMBSTONES = "/tombstones"
"""``/tombstones/JOB``, by the leader: Tombstone."""
REVISIONS = "/masters/revisions"
"""By the leader, when a job is forgotten: Revisions."""
BUNDLES = "/bundles"
"""``/bundles/SHA256``: BundleInfo; below it the chunks ``00000``, ``00001``, … of a small bundle."""


def worker(job: str, revision: int, attempt: int) -> str:
    """Return the node of a worker.

    >>> worker("wordcount", 3, 1)
    '/workers/wordcount/3-1'
    """
    return f"{WORKERS}/{job}/{revision}-{attempt}"
