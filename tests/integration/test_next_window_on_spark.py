"""A replica that comes in without state, on real Spark: it runs along, and counts from the next window on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import penstock as ps
from penstock.engine.driver.job_handle import Handle
from penstock.engine.storage.job_folder import Claim, JobFolders, take_over
from penstock.log import Log, log_folder
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import Charter, ReplicaSpec
from penstock.replicas.agreement.replica_catch_up import join_without_state
from penstock.spark.spark_runtime import start
from support.running import MASTER
from support.waiting import DEADLINE

pytestmark = pytest.mark.usefixtures("spark_says")


def counting() -> ps.Job:
    job = ps.Job("minutes", parallelism=2, replicas=ps.Replicas(k=1, recovery="next-window"))
    count = job.task("count", ps.Count(), window=ps.TimeWindow("10s"))
    job.source("in", ps.LogSource("seconds")) >> job.task("key", lambda r: (r.value % 3, r.value)) >> count
    count >> job.sink("out", ps.LogSink("counted"))
    return job


class Group:
    """Two replicas, each with a folder that it has taken over."""

    def __init__(self, storage: Path) -> None:
        self.storage = storage
        self.agreement = AgreementFolder(storage / "agreement")
        self.agreement.create(Charter(0, {}))
        self.folders = [take_over(self.base(number), Claim(1, 1)) for number in (0, 1)]

    def base(self, number: int) -> Path:
        return self.storage / "cluster-jobs" / f"member-{number}"

    def begin(self, number: int) -> Handle:
        replica_spec = ReplicaSpec(f"minutes~{number}", number, str(self.storage / "agreement"))
        folder = self.folders[number]
        return start(counting(), master=MASTER, folder=folder, taken=True, replica_spec=replica_spec)


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    Log.create(log_folder("seconds"))
    return Group(tmp_path)


def _append(first: int, last: int) -> None:
    log = Log.open(log_folder("seconds"))
    log.append([ps.Record(None, second, float(second)) for second in range(first, last)])


def _counted() -> Counter[tuple[int, float, int]]:
    log = Log.open(log_folder("counted"))
    records = [r for p in range(log.partitions) for chunk in log.read(p, 0) for r in chunk]
    return Counter((r.key, (r.ts or 0.0) // 10 * 10, r.value) for r in records)


def _expected(closed: int) -> Counter[tuple[int, float, int]]:
    """Return the counts by key of all windows that end at a time or before."""
    found = Counter((second % 3, float(second // 10 * 10)) for second in range(closed))
    return Counter((key, begin, count) for (key, begin), count in found.items())


def test_a_replica_without_state_counts_from_the_next_window_on(group: Group) -> None:
    with group.begin(0) as first:
        _append(0, 26)
        assert first.wait(timeout=DEADLINE)
        into = JobFolders(str(group.folders[1]), taken=True)
        into.create()
        join_without_state(group.base(0), into)
        with group.begin(1) as second:
            # The window from 20 on closes, of which the second has seen a part only.
            _append(26, 36)
            assert first.wait(timeout=DEADLINE)
            assert second.wait(timeout=DEADLINE)
            assert _counted() == _expected(30)
            _append(36, 47)
            assert first.wait(timeout=DEADLINE)
            assert second.wait(timeout=DEADLINE)
            assert not into.state_incomplete.exists()
            first.stop()
            _append(47, 72)
            assert second.wait(timeout=DEADLINE)
    assert _counted() == _expected(70)
    shared = group.agreement.shared()
    assert shared is not None
    newest = group.agreement.committed(shared.done)
    assert newest is not None
    assert newest.by == "minutes~1"
