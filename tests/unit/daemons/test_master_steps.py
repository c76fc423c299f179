"""A master's steps on the store in memory: what it writes when it has not heard of everything yet."""

from __future__ import annotations

import pytest

from penstock.cluster.codec import decode, encode
from penstock.cluster.documents import JobSpec, JobStatus, MasterInfo, Result
from penstock.coord import paths
from penstock.coord.memory import MemoryEnsemble, MemoryStore
from penstock.coord.store import Create, Put, Watcher
from penstock.daemons.master import Master

DRAINED = JobSpec("job", "a" * 64, "job.py", wanted="ended", drain=True)
AGAIN = JobSpec("job", "b" * 64, "job.py", generation=2, after=1)


def _phase(store: MemoryStore) -> str:
    node = store.get(f"{paths.STATUS}/job")
    assert node is not None
    return decode(JobStatus, node.data).phase


@pytest.mark.parametrize("last_first", [False, True])
def test_who_has_read_but_half_of_a_submission_does_not_end_the_job(last_first: bool) -> None:
    ensemble = MemoryEnsemble()
    held: list[Watcher] = []
    master = Master(MemoryStore(ensemble, deliver=held.append), MasterInfo("m1", "", 1, 0.0, ""))
    other = MemoryStore(ensemble)

    def deliver() -> None:
        while held:
            held.pop()()

    master.step(0.0)
    result = Result("job", 1, "drained", "all is processed", 1.0)
    other.create(f"{paths.RESULTS}/job", encode(result))
    master.write(
        [
            Create(f"{paths.JOBS}/job", encode(DRAINED)),
            Create(f"{paths.STATUS}/job", encode(JobStatus("ENDING", "draining", 0.0, 1))),
        ]
    )
    for moment in range(1, 4):
        deliver()
        master.step(float(moment))
    assert _phase(other) == "ENDED"
    deliver()
    master.step(4.0)

    master.write(
        [
            Put(f"{paths.JOBS}/job", encode(AGAIN)),
            Put(f"{paths.STATUS}/job", encode(JobStatus("PENDING", "it was submitted", 5.0, 1))),
        ]
    )
    assert held, "it has been told of something"
    seen = []
    for moment in range(5, 15):
        if held:
            held.pop(-1 if last_first else 0)()
        master.step(float(moment))
        seen.append(_phase(other))
    assert "ENDED" not in seen
    assert master.documents.jobs()["job"] == AGAIN, "what a refused write has found otherwise is read again"
