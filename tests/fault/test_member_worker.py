"""Workers that are replicas of a job: killed, behind, of another mind, standing by. The output is exact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from worker_lab import JOB, Lab, kill_tree, wait_for

from penstock.cluster.documents import Assignment, Joined, Membership
from penstock.cluster.members import member_name
from penstock.daemons.instance import ENDED, read_heartbeat
from penstock.engine.agreement.folder import Agreement


def _assignment(lab: Lab, number: int, *, runs: bool = True, until: str | None = None) -> Assignment:
    assignment = lab.assignment(number + 1, until=until)
    return replace(
        assignment, job=member_name(JOB, number), cores=1, membership=Membership(number, runs=runs)
    )


def _joined(lab: Lab, assignment: Assignment, attempt: int = 1) -> Joined:
    beat = read_heartbeat(lab.instance(assignment.revision, attempt, assignment.job))
    return beat[0].joined or Joined() if beat is not None else Joined()


def _wait_in_step(lab: Lab, assignment: Assignment, attempt: int = 1, more: int = 0) -> None:
    """Wait until a replica is where the others are, some batches from now."""
    goal = _head(lab) + more

    def there() -> bool:
        joined = _joined(lab, assignment, attempt)
        return joined.in_step and joined.batch >= goal

    wait_for(f"{assignment.job} in step", there, 90.0)


def _head(lab: Lab) -> int:
    shared = _agreement(lab).shared()
    return shared.head if shared is not None else -1


def _agreement(lab: Lab) -> Agreement:
    return Agreement(lab.storage / "agreements" / JOB / "0")


def test_a_replica_is_killed_and_comes_back_while_the_other_goes_on(tmp_path: Path) -> None:
    with Lab(tmp_path) as lab:
        lab.keep_feeding()
        first, second = _assignment(lab, 0), _assignment(lab, 1)
        for assignment in (first, second):
            lab.assign(assignment)
        lab.start_worker(first)
        other = lab.start_worker(second)
        for assignment in (first, second):
            lab.wait_phase("running", assignment.revision, job=assignment.job)
            _wait_in_step(lab, assignment, more=5)

        kill_tree(other.pid)
        killed_at = _head(lab)
        wait_for("batches without it", lambda: _head(lab) > killed_at + 25, 60.0)
        lab.start_worker(second, 2)
        lab.wait_phase("running", second.revision, 2, job=second.job)
        _wait_in_step(lab, second, 2, more=5)
        assert _joined(lab, second, 2).since > killed_at + 1, "it has copied the other, and not run after it"

        # The other way round: the one that was copied is gone for good.
        kill_tree(lab.processes[0].pid)
        gone_at = _head(lab)
        wait_for("batches of the copy", lambda: _head(lab) > gone_at + 10, 60.0)
        lab.stop_feeding()
        lab.check_output()
        assert {c.by for n in range(_head(lab)) if (c := _agreement(lab).committed(n))} == {JOB, f"{JOB}~1"}

        lab.assign(replace(second, until="drained"))
        assert lab.processes[-1].wait(60) == ENDED
