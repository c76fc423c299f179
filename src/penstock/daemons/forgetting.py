"""What is written to forget a job: all of its documents go, and a tombstone stays for the supervisors."""

from __future__ import annotations

from penstock.cluster.codec import encode
from penstock.cluster.documents import Alarm, Revisions, Tombstone
from penstock.cluster.members import job_of
from penstock.cluster.retention import last_known_revision
from penstock.coord import paths
from penstock.coord.store import ConflictError, Delete, Operation
from penstock.daemons.reading import Documents, upsert

_OF_REPLICAS = (paths.RESULTS, paths.FAILURES, paths.WORKERS, paths.LOCATIONS, paths.KEPT)


def forget_operations(documents: Documents, job: str, *, data: bool, now: float) -> list[Operation]:
    """Return what forgets a job that is over; refused by the store when one of its workers is back."""
    revision = last_known_revision(job, documents.actual())
    removed = [f"{paths.JOBS}/{job}", f"{paths.STATUS}/{job}"]
    for root in _OF_REPLICAS:
        removed += [f"{root}/{name}" for name in documents.names(root) if job_of(name) == job]
    alarms = documents.all(Alarm, paths.ALARMS)
    removed += [f"{paths.ALARMS}/{id}" for id in sorted(alarms) if job_of(alarms[id].subject) == job]
    versions = [(path, documents.version(path)) for path in removed]
    operations: list[Operation] = [Delete(path, version) for path, version in versions if version is not None]
    operations.append(
        upsert(documents, f"{paths.TOMBSTONES}/{job}", encode(Tombstone(job, revision, data, now)))
    )
    return operations


def revision_operations(documents: Documents, largest: int) -> list[Operation]:
    """Return what notes the largest revision of the jobs that are forgotten, if it is larger than before.

    A job of the same name begins after it: its worker would else be taken for one that was superseded.
    """
    known = documents.revisions()
    if known is None:  # The decision was made before it became unreadable.
        raise ConflictError(f"{documents.fault(paths.REVISIONS)} is not written over")
    if largest <= known:
        return []
    return [upsert(documents, paths.REVISIONS, encode(Revisions(largest)))]
