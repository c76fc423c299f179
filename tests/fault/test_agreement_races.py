"""Replicas as processes, killed and paused anywhere: each batch is planned, committed and put out once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from agreeing_replica import FORGET_EVERY, JOB, KEPT, state_after

from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import Charter, Commit, Plan
from support.waiting import DEADLINE, eventually

REPLICA = Path(__file__).with_name("agreeing_replica.py")


class Process:
    """A replica that is started again whenever it has been killed."""

    def __init__(self, home: Path, number: int, batches: int) -> None:
        self._home, self._number, self._batches = home, number, batches
        self._attempts = 0
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._attempts += 1
        numbers = (self._number, self._attempts, self._batches)
        return subprocess.Popen([sys.executable, str(REPLICA), str(self._home), *map(str, numbers)])

    def disturb(self, chance: random.Random, outage: float) -> None:
        """Kill it, or stop it for a while in which the others go on."""
        if self.finished:
            return
        if chance.random() < 0.6:
            self._process.kill()
            self._process.wait()
            time.sleep(outage)
            self._process = self._start()
        else:
            self._process.send_signal(signal.SIGSTOP)
            time.sleep(outage)
            self._process.send_signal(signal.SIGCONT)

    @property
    def finished(self) -> bool:
        """Whether it has come to the end; fails if it has come to another one."""
        code = self._process.poll()
        assert code in (None, 0), f"a replica has failed with {code}"
        return code == 0

    def end(self) -> None:
        """Leave nothing behind."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


@contextmanager
def running(home: Path, count: int, batches: int) -> Iterator[list[Process]]:
    """Run replicas, and end them."""
    for name in ("staged", "sink"):
        (home / name).mkdir()
    processes: list[Process] = []
    try:
        processes += [Process(home, number, batches) for number in range(count)]
        yield processes
    finally:
        for process in processes:
            process.end()


@pytest.mark.parametrize(
    ("batches", "disturbances"), [(150, 12), pytest.param(1500, 150, marks=pytest.mark.full)]
)
def test_killed_and_paused_replicas_put_each_batch_out_once(
    tmp_path: Path, batches: int, disturbances: int
) -> None:
    chance = random.Random(20261115)
    sink = tmp_path / "sink"
    with running(tmp_path, 3, batches) as processes:
        for number in range(disturbances):
            enough = batches * number // disturbances
            eventually(
                f"{enough} batches are out",
                lambda enough=enough: len(os.listdir(sink)) >= enough,  # type: ignore[misc]
                meanwhile=lambda: [process.finished for process in processes],
                every=0.002,
            )
            chance.choice(processes).disturb(chance, chance.uniform(0, 0.3))
        eventually("all replicas have finished", lambda: all(process.finished for process in processes))

    outputs = sorted(os.listdir(sink))
    assert [int(name.partition(".")[0]) for name in outputs] == list(range(batches))
    state = 0
    for name in outputs:
        drawn, after = (sink / name).read_text().split()
        state = state_after(state, int(drawn))
        assert int(after) == state, f"{name} is not the run of the plans in order"
    place = AgreementFolder(tmp_path / "agreements" / JOB / "0").shared()
    assert place is not None
    # Who was killed lately knows no batch before that, and forgets none until it has settled others.
    assert place.floor >= batches - KEPT - 8 * FORGET_EVERY
    assert place.done == batches - 1


def test_of_many_processes_one_wins_and_all_see_it(tmp_path: Path) -> None:
    """Forked, so that they begin each batch at the same moment; what each has seen is written down."""
    place, count, batches = tmp_path / "place", 6, 100
    AgreementFolder(place).create(Charter(0, {}))
    start = get_context("fork").Barrier(count)
    children = []
    try:
        for number in range(count):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    _offer(place, start, f"count~{number}", batches, tmp_path / f"seen-{number}")
                    code = 0
                finally:
                    os._exit(code)
            children.append(child)
    finally:
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * count
    seen = [(tmp_path / f"seen-{number}").read_text() for number in range(count)]
    assert all(each == seen[0] for each in seen)
    assert len({line.split()[0] for line in seen[0].splitlines()}) > 1, "nobody else has ever been first"


def _offer(place: Path, start: Barrier, name: str, batches: int, seen: Path) -> None:
    agreement = AgreementFolder(place)
    lines = []
    for batch in range(batches):
        start.wait(DEADLINE)
        plan = agreement.propose(Plan(batch, {}, name, 0.0))
        commit = agreement.commit(Commit(batch, name, name, 1, {}))
        agreement.mark_published(batch)
        lines.append(f"{plan.by} {commit.by}")
    seen.write_text("\n".join(lines))
