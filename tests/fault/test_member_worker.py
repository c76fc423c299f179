"""Workers that are replicas of a job: killed, behind, of another mind, standing by. The output is exact."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_lab import JOB, Lab, kill_tree, running_zookeeper

from penstock.cluster.assignment_documents import Assignment, ReplicaAssignment
from penstock.cluster.worker_documents import Difference, ReplicaReport
from penstock.coord.embedded_zookeeper import EmbeddedZooKeeper
from penstock.daemon.worker_folder import EXIT_ENDED
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.replica_id import ReplicaId
from support.engines import EITHER, LOCAL, SPARK
from support.settings import replace
from support.waiting import DEADLINE, eventually
from support.worker_files import read_heartbeat

PAUSE = {LOCAL: 0.1, SPARK: 0.4}
"""Seconds from one batch to the next: replicas share a machine here, and must be able to catch up."""


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(params=EITHER)
def lab(tmp_path: Path, zookeeper: EmbeddedZooKeeper, request: pytest.FixtureRequest) -> Iterator[Lab]:
    with Lab(tmp_path, zookeeper, request.param) as running:
        yield running


def _assignment(lab: Lab, number: int, *, runs: bool = True, entry: str = "counted_job.py") -> Assignment:
    membership = ReplicaAssignment(number, runs=runs)
    assignment = lab.assignment(number + 1)
    return replace(assignment, job=str(ReplicaId(JOB, number)), cores=1, entry=entry, membership=membership)


def _joined(lab: Lab, assignment: Assignment, attempt: int = 1) -> ReplicaReport:
    beat = read_heartbeat(lab.instance(assignment.revision, attempt, assignment.job))
    return beat[0].joined or ReplicaReport() if beat is not None else ReplicaReport()


def _wait_in_step(lab: Lab, assignment: Assignment, attempt: int = 1, more: int = 0) -> None:
    """Wait until a replica is where the others are, some batches from now."""
    goal = _head(lab) + more

    def there() -> bool:
        joined = _joined(lab, assignment, attempt)
        return joined.in_step and joined.batch >= goal

    eventually(f"{assignment.job} in step", there)


def _head(lab: Lab) -> int:
    shared = _agreement(lab).shared()
    return shared.head if shared is not None else -1


def _agreement(lab: Lab) -> AgreementFolder:
    return AgreementFolder(lab.storage / "agreements" / JOB / "0")


def _start(lab: Lab, *assignments: Assignment) -> None:
    """Start workers, and wait until they run together."""
    for assignment in assignments:
        lab.assign(assignment)
        lab.start_worker(assignment)
    for assignment in assignments:
        lab.wait_phase("running", assignment.revision, job=assignment.job)
    for assignment in assignments:
        _wait_in_step(lab, assignment, more=3)


def test_a_replica_is_killed_and_comes_back_while_the_other_goes_on(lab: Lab) -> None:
    lab.keep_feeding(50, PAUSE[lab.engine])
    first, second = _assignment(lab, 0), _assignment(lab, 1)
    _start(lab, first, second)

    kill_tree(lab.processes[1].pid)
    killed_at = _head(lab)
    eventually("batches without it", lambda: _head(lab) > killed_at + 22)
    lab.start_worker(second, 2)
    lab.wait_phase("running", second.revision, 2, job=second.job)
    _wait_in_step(lab, second, 2, more=3)
    assert _joined(lab, second, 2).since > killed_at + 1, "it has copied the other, and not run after it"

    # The other way round: the one that was copied is gone for good.
    kill_tree(lab.processes[0].pid)
    gone_at = _head(lab)
    eventually("batches of the copy", lambda: _head(lab) > gone_at + 5)
    lab.stop_feeding()
    lab.check_output()
    commits = [_agreement(lab).committed(batch) for batch in range(_head(lab))]
    assert {commit.by for commit in commits if commit is not None} == {JOB, f"{JOB}~1"}
    assert _joined(lab, second, 2).differed is None

    lab.assign(replace(second, until="drained"))
    assert lab.processes[-1].wait(DEADLINE) == EXIT_ENDED


def test_a_replica_of_another_mind_is_rebuilt_in_its_process(lab: Lab) -> None:
    lab.unpack_code("odd_job.py", "counted_job.py", "counted_keys.py")
    replicas = [_assignment(lab, number, entry="odd_job.py") for number in (0, 1)]
    for replica in replicas:
        lab.assign(replica)
        lab.start_worker(replica)
    lab.keep_feeding(50, PAUSE[lab.engine])

    def differed() -> list[Difference]:
        return [found for one in replicas if (found := _joined(lab, one).differed) is not None]

    eventually("a difference", differed)
    found = differed()[0]
    assert found.vertex == "tally"
    assert found.by in (JOB, f"{JOB}~1")
    assert "another state" in found.reason
    eventually("all odd batches", lambda: _head(lab) >= 33)
    for replica in replicas:
        _wait_in_step(lab, replica, more=3)
    lab.stop_feeding()
    lab.check_output()
    assert [process.poll() for process in lab.processes] == [None, None], "in the process that it was in"


def test_a_replica_that_stands_by_carries_on_when_it_is_told_to(lab: Lab) -> None:
    lab.keep_feeding(50, PAUSE[lab.engine])
    first, second = _assignment(lab, 0), _assignment(lab, 1, runs=False)
    lab.assign(second)
    lab.start_worker(second)
    _start(lab, first)
    lab.wait_phase("ready", second.revision, job=second.job)
    eventually("a copy", lambda: _joined(lab, second).batch >= 0)
    kept = _joined(lab, second).batch
    eventually("a newer copy", lambda: _joined(lab, second).batch > kept)
    assert all(c is None or c.by == JOB for c in map(_agreement(lab).committed, range(_head(lab))))

    kill_tree(lab.processes[1].pid)
    head, killed = _head(lab), time.monotonic()
    lab.assign(replace(second, membership=ReplicaAssignment(1, runs=True)))
    eventually("batches", lambda: _head(lab) >= head + 3)
    print(f"standing by: {time.monotonic() - killed:.2f} s from the kill to the third batch")
    lab.wait_phase("running", second.revision, job=second.job)
    eventually("it went on from its copy", lambda: _joined(lab, second).since >= kept)
    lab.stop_feeding()
    lab.check_output()
