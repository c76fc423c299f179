"""Workers that take over from each other: paused, replaced, without a store. No record is lost or doubled."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from worker_lab import JOB, Lab, running_zookeeper, signal_tree

from penstock.coord.embedded_zookeeper import EmbeddedZooKeeper
from penstock.daemon.worker_folder import EXIT_ENDED, EXIT_REFUSED, read_exit
from penstock.engine.storage.job_folder import Claim, current_claim
from support.engines import EITHER, SPARK
from support.waiting import DEADLINE


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


def _check_superseded(lab: Lab, attempt: int, process: subprocess.Popen[bytes]) -> None:
    assert process.wait(DEADLINE) == EXIT_ENDED
    left = read_exit(lab.instance(1, attempt))
    assert left is not None
    assert left.outcome == "superseded"


def test_a_worker_whose_java_goes_on_while_its_python_is_paused_cannot_commit_after_a_takeover(
    tmp_path: Path, zookeeper: EmbeddedZooKeeper
) -> None:
    with Lab(tmp_path, zookeeper, SPARK) as lab:
        lab.keep_feeding()
        assignment = lab.assignment(1)
        lab.assign(assignment)
        first = lab.start_worker(assignment, 1, COUNTED_PAUSE=0.05)
        lab.wait_phase("running", 1, 1)
        lab.wait_batches(2, 1, 1)
        # Java ends the batch, and waits for its commit.
        psutil.Process(first.pid).suspend()
        lab.start_worker(assignment, 2)
        lab.wait_phase("running", 1, 2)
        lab.wait_batches(2, 1, 2)
        psutil.Process(first.pid).resume()
        _check_superseded(lab, 1, first)
        lab.wait_batches(2, 1, 2)
        lab.stop_feeding()
        lab.check_output()
        assert current_claim(lab.storage / "cluster-jobs" / JOB) == Claim(1, 2)


@pytest.mark.parametrize("engine", EITHER)
def test_workers_that_were_paused_cannot_commit_after_a_takeover(
    tmp_path: Path, zookeeper: EmbeddedZooKeeper, engine: str
) -> None:
    with Lab(tmp_path, zookeeper, engine) as lab:
        lab.keep_feeding()
        assignment = lab.assignment(1)
        lab.assign(assignment)
        first = lab.start_worker(assignment, 1, COUNTED_PAUSE=0.05)
        lab.wait_phase("running", 1, 1)
        lab.wait_batches(2, 1, 1)
        # Python alone, if there is more than that.
        psutil.Process(first.pid).suspend()
        second = lab.start_worker(assignment, 2, COUNTED_PAUSE=0.05)
        lab.wait_phase("running", 1, 2)
        lab.wait_batches(2, 1, 2)
        signal_tree(second.pid, signal.SIGSTOP)
        third = lab.start_worker(assignment, 3)
        lab.wait_phase("running", 1, 3)
        lab.wait_batches(2, 1, 3)
        signal_tree(second.pid, signal.SIGCONT)
        psutil.Process(first.pid).resume()
        for attempt, process in ((1, first), (2, second)):
            _check_superseded(lab, attempt, process)
        lab.wait_batches(2, 1, 3)
        lab.stop_feeding()
        lab.check_output()
        assert current_claim(lab.storage / "cluster-jobs" / JOB) == Claim(1, 3)

        third.send_signal(signal.SIGTERM)
        assert third.wait(DEADLINE) == EXIT_ENDED
        assert lab.result() is None, "a worker that is told to leave says nothing of its job"


@pytest.mark.parametrize("engine", EITHER)
def test_a_job_moves_on_without_a_store_then_to_a_new_worker_and_to_its_end(
    tmp_path: Path, zookeeper: EmbeddedZooKeeper, engine: str
) -> None:
    with Lab(tmp_path, zookeeper, engine) as lab:
        lab.keep_feeding()
        lab.assign(lab.assignment(1))
        old = lab.start_worker(lab.assignment(1))
        lab.wait_phase("running", 1)
        lab.wait_batches(2, 1)

        lab.zookeeper.stop()
        lab.wait_batches(5, 1)
        lab.zookeeper.start()
        lab.zookeeper.wait_ready(timeout=DEADLINE)
        back = lab.wait_phase("running", 1)
        assert back.pid == old.pid

        lab.assign(lab.assignment(2))
        begun = time.monotonic()
        new = lab.start_worker(lab.assignment(2))
        _check_superseded(lab, 1, old)
        lab.wait_phase("running", 2)
        took = time.monotonic() - begun
        lab.wait_batches(2, 2)
        gap = _longest_pause(lab)
        print(f"handover: {gap:.2f} s between two batches at the most, {took:.2f} s until the new one ran")
        # The old one goes on while Spark starts: on a machine on which that takes long, the rest may as well.
        assert gap < max(10.0, took / 2)

        lab.stop_feeding()
        lab.assign(lab.assignment(2, until="drained"))
        assert new.wait(DEADLINE) == EXIT_ENDED
        result = lab.result()
        assert result is not None
        assert (result.outcome, result.revision) == ("drained", 2)
        assert lab.info(2) is None
        lab.check_output()


def test_a_job_that_cannot_run_is_refused_with_the_reason(
    tmp_path: Path, zookeeper: EmbeddedZooKeeper
) -> None:
    # The code is loaded before Spark is: none starts.
    with Lab(tmp_path, zookeeper, SPARK) as lab:
        (lab.bundle / "counted_job.py").write_text("import penstock as ps\njob = ps.Job(\n")
        lab.assign(lab.assignment(1))
        worker = lab.start_worker(lab.assignment(1))
        assert worker.wait(DEADLINE) == EXIT_REFUSED
        left = read_exit(lab.instance(1, 1))
        assert left is not None
        assert left.outcome == "refused"
        assert "counted_job.py, line 2" in left.reason
        result = lab.result()
        assert result is not None
        assert (result.outcome, result.reason) == ("refused", left.reason)


def _longest_pause(lab: Lab) -> float:
    """Return the longest time between two batches, by the files that committed them."""
    holder = current_claim(lab.storage / "cluster-jobs" / JOB)
    assert holder is not None
    ledger = lab.storage / "cluster-jobs" / JOB / holder.name / "ledger"
    moments = []
    for path in ledger.glob("*.json"):
        with suppress(FileNotFoundError):  # Those of long ago are removed meanwhile.
            moments.append(path.stat().st_mtime)
    return max(after - before for before, after in pairwise(sorted(moments)))
