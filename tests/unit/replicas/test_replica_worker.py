"""A worker as one of several replicas: how it stands by, begins again, and says where it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import penstock as ps
from penstock.cluster.assignment_documents import ReplicaAssignment
from penstock.daemon.worker_folder import WorkerConfig
from penstock.engine.storage.job_folder import Claim, take_over
from penstock.engine.storage.ledger import Ledger, LedgerEntry
from penstock.errors import JobFailedError, ReplicaDivergedError, ReplicaOutdatedError, SupersededError
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import Charter, Plan, ReplicaProgress
from penstock.replicas.worker import replica_worker
from penstock.replicas.worker.replica_join import Divergence, read_divergence, write_divergence
from penstock.replicas.worker.replica_worker import (
    CATCH_UP_SECONDS,
    MAX_BATCHES_BEHIND,
    MOST_REBUILDS,
    ReplicaWorker,
    is_falling_behind,
    refuse_if_agreed,
    replica_blueprint,
)
from support.settings import make_assignment, replace

ASSIGNMENT = make_assignment("job~1", 1, 2, 7, "b", "job.py", "n1", 1, 1, membership=ReplicaAssignment(1))


def _look() -> None:
    """Stand for a worker that beats and is not asked to stop."""


def _replica(storage: Path, own: ReplicaAssignment | None = None, **settings: str) -> ReplicaWorker:
    assignment = replace(ASSIGNMENT, membership=own or ReplicaAssignment(1), **settings)
    instance = WorkerConfig("job~1", "n1", "h", 2, 1, "c", "/", "k", str(storage), "b", assignment)
    return ReplicaWorker(instance, storage / "scratch")


def _settled(storage: Path, own: ReplicaAssignment | None = None) -> tuple[ReplicaWorker, Path]:
    """Return a replica that has its folder, and that folder."""
    replica = _replica(storage, own)
    place = take_over(storage / "cluster-jobs" / "job~1", Claim(2, 1))
    job = ps.Job("job")
    job.source("in", ps.MemorySource(["a"])) >> job.sink("out", ps.MemorySink())
    replica.attach(replica_blueprint(job, place))
    return replica, place


def _advance(folder: Path, batch: int) -> None:
    Ledger(folder / "ledger").commit(LedgerEntry(batch, {"batch": batch + 1, "sources": {}}))


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """The folder of the first replica, which has done ten batches."""
    folder = take_over(tmp_path / "cluster-jobs" / "job", Claim(1, 1))
    agreement = _agreement(tmp_path)
    agreement.create(Charter(0, {}))
    for batch in range(10):
        agreement.propose(Plan(batch, {"batch": batch + 1}, "job", 0.0))
        _advance(folder, batch)
    return folder


def _agreement(storage: Path) -> AgreementFolder:
    return AgreementFolder(storage / "agreements" / "job" / "0")


def test_what_the_engine_is_told(tmp_path: Path) -> None:
    replica_spec = _replica(tmp_path, ReplicaAssignment(1, lineage=4), publisher="primary").replica_spec
    assert (replica_spec.name, replica_spec.number, replica_spec.generation, replica_spec.holds) == (
        "job~1",
        1,
        7,
        True,
    )
    assert replica_spec.folder == tmp_path / "agreements" / "job" / "4"
    assert Path(replica_spec.scratch).is_relative_to(tmp_path / "scratch")
    assert not _replica(tmp_path).replica_spec.holds


def test_it_says_where_it_is(tmp_path: Path, first: Path) -> None:
    replica = _replica(tmp_path)
    assert replica.look().batch == -1
    replica, place = _settled(tmp_path)
    replica.join_replicas(_look)
    joined = replica.look()
    assert (joined.batch, joined.head, joined.since, joined.in_step) == (-1, 9, -1, False)
    for batch in range(8):
        _advance(place, batch)
    joined = replica.look()
    assert (joined.batch, joined.head, joined.in_step, joined.caught_up) == (7, 9, True, 1.0)
    (place / "unwhole").touch()
    assert not replica.look().whole
    (place / "ledger").rename(place / "gone")
    assert replica.look().batch == 7, "what it said last stands as long as it cannot look"


def test_who_is_at_work(tmp_path: Path, first: Path) -> None:
    replica = _replica(tmp_path)
    assert not replica.another_replica_runs(100.0)
    _agreement(tmp_path).report_progress(ReplicaProgress("job~1", 9, 99.0))
    assert not replica.another_replica_runs(100.0), "that is this one, before it died"
    _agreement(tmp_path).report_progress(ReplicaProgress("job", 9, 99.0))
    assert replica.another_replica_runs(100.0)
    assert not replica.another_replica_runs(200.0)
    assert _replica(tmp_path / "elsewhere", ReplicaAssignment(1, runs=False)).another_replica_runs(0.0), (
        "nobody waits for it"
    )


def test_nobody_is_at_work_before_there_is_an_agreement(tmp_path: Path) -> None:
    assert not _replica(tmp_path).another_replica_runs(0.0)


def test_who_stands_by_keeps_up_and_then_comes_in_at_once(
    tmp_path: Path, first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_worker, "_REFRESH_SECONDS", 0.0)
    replica, place = _settled(tmp_path, ReplicaAssignment(1, runs=False))
    assert replica.stands_by
    replica.refresh_copy(_look)
    assert Ledger(place / "ledger").latest_batch() == 9
    _agreement(tmp_path).propose(Plan(10, {"batch": 11}, "job", 0.0))
    _advance(first, 10)
    replica.refresh_copy(_look)
    assert replica.look().batch == 10
    replica.join_replicas(_look)
    assert not replica.stands_by
    assert replica.look().since == 10


def test_who_stands_by_looks_only_now_and_then(tmp_path: Path, first: Path) -> None:
    replica, place = _settled(tmp_path, ReplicaAssignment(1, runs=False))
    replica.refresh_copy(_look)
    _advance(first, 10)
    replica.refresh_copy(_look)
    assert Ledger(place / "ledger").latest_batch() == 9


def test_who_stands_by_alone_has_nothing_to_copy(tmp_path: Path) -> None:
    replica, place = _settled(tmp_path, ReplicaAssignment(1, runs=False))
    replica.refresh_copy(_look)
    assert Ledger(place / "ledger").latest_batch() == -1


def test_who_stands_by_and_had_strayed_drops_what_it_had(tmp_path: Path, first: Path) -> None:
    replica, place = _settled(tmp_path, ReplicaAssignment(1, runs=False))
    _advance(place, 55)
    write_divergence(place, Divergence(5, "job"))
    replica.refresh_copy(_look)
    assert Ledger(place / "ledger").latest_batch() == 9
    assert read_divergence(place) is None


def test_a_worker_that_slept_while_another_took_its_folder_makes_no_second_one(tmp_path: Path) -> None:
    base = tmp_path / "cluster-jobs" / "job~1"
    replica, place = _replica(tmp_path), take_over(base, Claim(2, 1))
    take_over(base, Claim(3, 1))
    job = ps.Job("job")
    job.source("in", ps.MemorySource(["a"])) >> job.sink("out", ps.MemorySink())
    with pytest.raises(SupersededError, match="another worker has taken over the job"):
        replica.attach(replica_blueprint(job, place))
    assert not place.exists()


def test_the_first_founds_even_if_it_stands_by(tmp_path: Path) -> None:
    assignment = replace(ASSIGNMENT, job="job", membership=ReplicaAssignment(0, runs=False))
    instance = WorkerConfig("job", "n1", "h", 2, 1, "c", "/", "k", str(tmp_path), "b", assignment)
    replica = ReplicaWorker(instance, tmp_path / "scratch")
    job = ps.Job("job")
    job.source("in", ps.MemorySource(["a"])) >> job.sink("out", ps.MemorySink())
    replica.attach(replica_blueprint(job, take_over(tmp_path / "cluster-jobs" / "job", Claim(2, 1))))
    assert _agreement(tmp_path).charter() is not None


def _stray(batch: int, *, alarming: bool = True) -> ReplicaDivergedError:
    return ReplicaDivergedError("job", batch, "out", "job", "it differs", alarming)


def test_it_begins_again_from_who_is_right_and_tells(tmp_path: Path, first: Path) -> None:
    replica, place = _settled(tmp_path)
    replica.join_replicas(_look)
    _advance(place, 0)
    before = time.time()
    replica.record_rebuild(_stray(1), 0.0)
    assert read_divergence(place) == Divergence(1, "job")
    assert not replica.look().in_step, "until it has begun again"
    replica.join_replicas(_look)
    joined = replica.look()
    assert (joined.batch, joined.since) == (9, 9)
    assert joined.differed is not None
    assert (joined.differed.batch, joined.differed.vertex, joined.differed.by) == (1, "out", "job")
    assert joined.differed.reason == "it differs"
    assert joined.differed.at >= before


def test_a_difference_that_was_to_be_expected_is_no_alarm(tmp_path: Path, first: Path) -> None:
    replica, place = _settled(tmp_path)
    replica.record_rebuild(_stray(1, alarming=False), 0.0)
    assert read_divergence(place) == Divergence(1, "job")
    assert replica.look().differed is None


def test_who_is_behind_is_not_of_another_mind(tmp_path: Path, first: Path) -> None:
    replica, place = _settled(tmp_path)
    replica.record_rebuild(ReplicaOutdatedError("batch 3 is history"), 0.0)
    assert read_divergence(place) is None
    assert replica.look().differed is None


@pytest.mark.parametrize(
    ("pace", "fails"), [(lambda n: 1.0 * n, True), (lambda n: 60.0 * n / MOST_REBUILDS, False)]
)
def test_who_begins_again_too_often_leaves_it_to_its_supervisor(
    tmp_path: Path, pace: Callable[[int], float], fails: bool
) -> None:
    replica, place = _settled(tmp_path)
    for number in range(MOST_REBUILDS):
        replica.record_rebuild(_stray(number), pace(number))
    if fails:
        with pytest.raises(JobFailedError, match=r"^replica 1 had to be rebuilt 6 times.*'out', batch 5"):
            replica.record_rebuild(_stray(5), pace(5))
    else:
        replica.record_rebuild(_stray(5), pace(5))
    assert read_divergence(place) == Divergence(5, "job"), "the next attempt begins again, too"


@pytest.mark.parametrize(
    ("gaps", "losing"),
    [
        ([], False),
        ([(0.0, 500)], False),
        ([(0.0, 500), (CATCH_UP_SECONDS - 1, 600)], False),
        ([(0.0, 500), (CATCH_UP_SECONDS, 600)], True),
        ([(0.0, 500), (CATCH_UP_SECONDS, 400)], True),
        ([(0.0, 500), (CATCH_UP_SECONDS, 340)], False),
        ([(0.0, MAX_BATCHES_BEHIND + 1), (CATCH_UP_SECONDS, MAX_BATCHES_BEHIND)], False),
        ([(0.0, MAX_BATCHES_BEHIND + 1), (CATCH_UP_SECONDS, MAX_BATCHES_BEHIND + 1)], True),
    ],
)
def test_who_will_not_catch_up(gaps: list[tuple[float, int]], losing: bool) -> None:
    assert is_falling_behind(gaps) == losing


def _paced(replica: ReplicaWorker, gaps: Iterable[int]) -> int:
    """Let a replica be so many batches behind from second to second; return when it gave up."""
    for second, gap in enumerate(gaps):
        replica.joined = replace(replica.joined, batch=9, head=9 + gap)
        try:
            replica.check_pace(float(second))
        except ReplicaOutdatedError:
            return second
    return -1


def test_who_does_not_catch_up_copies(tmp_path: Path, first: Path) -> None:
    replica, _ = _settled(tmp_path)
    _advance(first, 200)
    assert _paced(replica, [0] * 30 + [100] * 30) == 30 + CATCH_UP_SECONDS
    assert _paced(replica, [100] * 30) == CATCH_UP_SECONDS, "a copy has its time, too"


def test_who_catches_up_or_could_copy_nobody_runs_on(tmp_path: Path, first: Path) -> None:
    replica, _ = _settled(tmp_path)
    assert _paced(replica, [100] * 60) == -1, "the other has not come as far as its plans"
    _advance(first, 200)
    assert _paced(replica, [0]) == -1
    assert _paced(replica, range(200, 0, -4)) == -1


def test_who_tolerates_says_so_to_the_engine(
    tmp_path: Path, first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.replicas.worker.replica_join.TRUST_AFTER", 0.0)
    replica, place = _settled(tmp_path)
    _advance(place, 9)
    replica.record_rebuild(_stray(10), 0.0)
    replica.join_replicas(_look)
    assert replica.replica_spec.may_differ_until == 10


def test_a_worker_that_knows_of_no_replicas_does_not_decide_alone(tmp_path: Path) -> None:
    alone = replace(ASSIGNMENT, job="job", membership=None)
    refuse_if_agreed(tmp_path, alone)
    _agreement(tmp_path).create(Charter(0, {}))
    with pytest.raises(SupersededError, match="job 'job' has replicas now"):
        refuse_if_agreed(tmp_path, alone)
    refuse_if_agreed(tmp_path, replace(alone, fresh=True, forget=3))
