"""How a worker comes in among the replicas of its job, with folders of others that nobody runs in."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import penstock as ps
from penstock.cluster.assignment_documents import ReplicaAssignment
from penstock.engine.blueprint import Blueprint, make_blueprint
from penstock.engine.storage.job_folder import Claim, current_claim, take_over
from penstock.engine.storage.ledger import Ledger, LedgerEntry
from penstock.errors import JobFailedError
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import Charter, Commit, Plan
from penstock.replicas.worker import replica_join
from penstock.replicas.worker.replica_join import (
    Divergence,
    ReplicaFolders,
    ReplicaJoin,
    read_divergence,
    replica_folders_of,
    write_divergence,
)
from support.settings import make_assignment, replace

LINEAGE = 3


def _look() -> None:
    """Stand for a worker that beats and is not asked to stop."""


class World:
    """A shared folder with replicas of one job."""

    def __init__(self, storage: Path) -> None:
        self.storage = storage
        self.agreement = AgreementFolder(storage / "agreements" / "job" / str(LINEAGE))

    def has(self, name: str, last: int, *, revision: int = LINEAGE + 1) -> Path:
        """Have a replica that has come so far."""
        base = self.storage / "cluster-jobs" / name
        folder = take_over(base, Claim(revision, 1)) if not base.exists() else base / _held(base)
        if last >= 0:
            Ledger(folder / "ledger").commit(LedgerEntry(last, {"batch": last + 1, "sources": {}}))
        return folder

    def agree(self, begin: int, head: int, floor: int = 0) -> None:
        """Have the replicas agree on some batches."""
        self.agreement.create(Charter(begin, {}))
        for batch in range(begin, head + 1):
            self.agreement.propose(Plan(batch, {"batch": batch + 1}, "job", 0.0))
        if floor > begin:
            self.agreement.commit(Commit(floor - 1, "id", "job", 1, {"batch": floor}))
            self.agreement.forget(floor)

    def way_in(self, name: str, *, blank: bool = False, stateless: bool = False) -> ReplicaJoin:
        """Have a replica come in that has its folder."""
        group = ReplicaFolders(self.storage, name, LINEAGE)
        return ReplicaJoin(group, self.drawn(name, stateless=stateless), blank=blank)

    def drawn(self, name: str, *, stateless: bool = False) -> Blueprint:
        """Draw the job for a replica."""
        job = ps.Job("job")
        task = job.task("pass", lambda record: record) if stateless else job.task("count", ps.Count())
        job.source("in", ps.MemorySource(["a"])) >> task >> job.sink("out", ps.MemorySink())
        base = self.storage / "cluster-jobs" / name
        place = base / _held(base) if base.exists() else self.has(name, -1)
        blueprint = make_blueprint(job, folder=place, buckets=1, sides={})
        blueprint.folders.create()
        return blueprint

    def last(self, name: str) -> int:
        """Return how far a replica is."""
        base = self.storage / "cluster-jobs" / name
        return Ledger(base / _held(base) / "ledger").latest_batch()


def _held(base: Path) -> str:
    claim = current_claim(base)
    assert claim is not None
    return claim.name


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    soon = {"CREATE_AFTER": 0.2, "TRUST_AFTER": 0.2, "GIVE_UP_AFTER": 0.4, "_LOOK": 0.002}
    for name, seconds in soon.items():
        monkeypatch.setattr(replica_join, name, seconds)


def test_the_first_replica_founds_with_the_begin_of_the_sources(world: World) -> None:
    world.way_in("job").go(_look)
    charter = world.agreement.charter()
    assert charter is not None
    assert charter.begin == 0
    assert set(charter.sources) == {"in"}


def test_the_first_replica_of_a_job_that_has_run_alone_founds_after_its_last_batch(world: World) -> None:
    world.has("job", 41)
    world.way_in("job").go(_look)
    assert world.agreement.charter() == Charter(42, {})


@pytest.mark.parametrize("last", [-1, 41])
def test_others_wait_for_the_first_also_if_that_has_run_alone(world: World, last: int) -> None:
    world.has("job", last)
    looks = iter(range(10_000))
    done = threading.Event()

    def look() -> None:
        if next(looks) == 300:
            world.way_in("job").go(_look)
            done.set()

    world.way_in("job~1").go(look)
    assert done.is_set(), "it has waited for longer than it waits for one that never began"


def test_who_founds_removes_what_was_agreed_on_before_the_job_started_from_scratch(world: World) -> None:
    lineages = world.storage / "agreements" / "job"
    for lineage in (0, LINEAGE - 1, LINEAGE + 1):
        AgreementFolder(lineages / str(lineage)).create(Charter(0, {}))
    world.way_in("job").go(_look)
    assert sorted(path.name for path in lineages.iterdir()) == [str(LINEAGE), str(LINEAGE + 1)]


def test_another_founds_when_the_first_has_never_begun(world: World) -> None:
    began = time.monotonic()
    world.way_in("job~2").go(_look)
    assert time.monotonic() - began >= replica_join.CREATE_AFTER
    assert world.agreement.charter() is not None


def test_who_waits_leaves_when_it_is_asked_to(world: World) -> None:
    world.has("job", -1)

    class AskedError(Exception):
        pass

    looks = iter(range(10_000))

    def look() -> None:
        if next(looks) == 5:
            raise AskedError

    with pytest.raises(AskedError):
        world.way_in("job~1").go(look)


# What is agreed on (begin, head, floor), how far each replica is, and how far this one is when it is in.
CASES: dict[str, tuple[tuple[int, int, int], dict[str, int], int]] = {
    "begins like the others": ((0, 5, 0), {"job": 4}, -1),
    "goes on from its own": ((0, 9, 0), {"job": 8, "job~1": 7}, 7),
    "copies, far behind": ((0, 90, 0), {"job": 88, "job~1": 7}, 88),
    "copies, without history": ((60, 90, 60), {"job": 88}, 88),
    "copies, behind the floor": ((0, 30, 25), {"job": 28, "job~1": 20}, 28),
    "copies the best": ((60, 90, 60), {"job": 80, "job~2": 85}, 85),
}


@pytest.mark.parametrize("case", CASES)
def test_a_replica_comes_in_as_it_must(world: World, case: str) -> None:
    agreed, histories, last = CASES[case]
    world.agree(*agreed)
    for name, own in histories.items():
        world.has(name, own)
    world.way_in("job~1").go(_look)
    assert world.last("job~1") == last


def test_what_is_forgotten_is_not_copied(world: World) -> None:
    world.agree(60, 90)
    world.has("job", 80)
    world.has("job~2", 85, revision=LINEAGE)
    world.way_in("job~1").go(_look)
    assert world.last("job~1") == 80


def test_when_one_cannot_be_copied_another_is(world: World) -> None:
    world.agree(60, 90)
    world.has("job", 80)
    (world.has("job~2", 85) / "ledger" / f"{85:012d}.json").write_text("{}")
    world.way_in("job~1").go(_look)
    assert world.last("job~1") == 80


def test_when_nobody_can_be_copied_the_reasons_are_told(world: World) -> None:
    world.agree(60, 90)
    (world.has("job", 85) / "ledger" / f"{85:012d}.json").write_text("{}")
    with pytest.raises(
        JobFailedError, match=r"job 'job'.*replica 1.*batch 59 or later.*replica 0: .*85.json is damaged"
    ):
        world.way_in("job~1").go(_look)


def test_when_nobody_has_what_is_needed_it_gives_up_in_time(world: World) -> None:
    world.agree(0, 90, 70)
    world.has("job", 50)
    with pytest.raises(JobFailedError, match="no other replica has one"):
        world.way_in("job~1").go(_look)


@pytest.mark.parametrize(
    ("name", "histories"), [("job", {"job~1": 5}), ("job~1", {"job~2": 5}), ("job~1", {"job~1": 5})]
)
def test_an_agreement_that_is_gone_is_not_made_anew(
    world: World, name: str, histories: dict[str, int]
) -> None:
    for other, last in histories.items():
        world.has(other, last)
    with pytest.raises(JobFailedError, match=f"agreements/job/{LINEAGE} is missing"):
        world.way_in(name).go(_look)


class TestStray:
    """A replica that must not go on from what it has."""

    def test_it_copies_whose_result_counts(self, world: World) -> None:
        world.agree(0, 9)
        world.has("job", 6)
        world.has("job~2", 8)
        write_divergence(world.has("job~1", 5), Divergence(6, "job"))
        world.way_in("job~1").go(_look)
        assert world.last("job~1") == 6
        assert read_divergence(world.has("job~1", -1)) is None

    def test_it_waits_until_that_one_has_noted_its_batch(self, world: World) -> None:
        world.agree(0, 9)
        world.has("job", 5)
        write_divergence(world.has("job~1", 5), Divergence(6, "job"))
        looks = iter(range(10_000))

        def look() -> None:
            if next(looks) == 5:
                world.has("job", 6)

        world.way_in("job~1").go(look)
        assert world.last("job~1") == 6

    def test_it_keeps_what_it_has_when_nobody_has_noted_that_batch(self, world: World) -> None:
        """Who made what counts died before it could: nobody could ever follow it."""
        world.agree(0, 9)
        world.has("job", 5)
        folder = world.has("job~1", 5)
        write_divergence(folder, Divergence(6, "job"))
        way_in = world.way_in("job~1")
        way_in.go(_look)
        assert (world.last("job~1"), way_in.may_differ_until) == (5, 6)
        assert read_divergence(folder) is None

    def test_it_rebuilds_again_after_a_crash_in_the_middle(self, world: World) -> None:
        world.agree(0, 9)
        world.has("job", 8)
        folder = world.has("job~1", 8)
        write_divergence(folder, Divergence(6, "job"))

        class CrashError(Exception):
            pass

        def crash(*_: object) -> int:
            raise CrashError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(replica_join, "copy_snapshot", crash)
            with pytest.raises(CrashError):
                world.way_in("job~1").go(_look)
        assert read_divergence(folder) == Divergence(6, "job")
        world.way_in("job~1").go(_look)
        assert read_divergence(folder) is None
        assert world.last("job~1") == 8

    def test_others_do_not_copy_it(self, world: World) -> None:
        world.agree(60, 90)
        write_divergence(world.has("job", 89), Divergence(80, "job~2"))
        world.has("job~2", 85)
        world.way_in("job~1").go(_look)
        assert world.last("job~1") == 85

    def test_a_damaged_note_is_a_note(self, world: World) -> None:
        folder = world.has("job~1", 3)
        write_divergence(folder, Divergence(1, "job"))
        (folder / "strayed").write_text("{")
        assert read_divergence(folder) == Divergence(0, "")


def test_a_blank_replica_takes_no_state(world: World) -> None:
    world.agree(60, 90)
    world.has("job", 80)
    world.way_in("job~1", blank=True).go(_look)
    assert world.last("job~1") == 80
    assert world.drawn("job~1").folders.state_incomplete.exists()


def test_who_begins_with_the_first_batch_lacks_nothing(world: World) -> None:
    """What it began to copy before a crash is of no use to it."""
    world.agree(0, 5)
    folders = world.drawn("job~1").folders
    folders.state_incomplete.write_text("{}")
    world.way_in("job~1").go(_look)
    assert not folders.state_incomplete.exists()


@pytest.mark.parametrize(("stateless", "last"), [(True, 88), (False, 5)])
def test_a_replica_without_state_goes_on_after_the_last_commit(
    world: World, stateless: bool, last: int
) -> None:
    world.agree(0, 90)
    for batch in (87, 88):
        end = {"batch": batch + 1, "sources": {}}
        world.agreement.commit(Commit(batch, "id", "job", 1, end, {"out": ["receipt"]}))
    folder = world.has("job~1", 5)
    world.way_in("job~1", stateless=stateless).go(_look)
    entry = Ledger(folder / "ledger").latest()
    receipts: dict[str, list[object]] = {"out": ["receipt"]} if stateless else {}
    assert entry == LedgerEntry(
        last, {"batch": last + 1, "sources": {}}, receipts, buckets=0 if stateless else 1
    )


def test_where_a_group_agrees() -> None:
    plain = make_assignment("job", 1, 7, 1, "b", "job.py", "n1", 1, 1)
    storage = Path("/shared")
    assert replica_folders_of(storage, plain).agreement == storage / "agreements/job/0"
    fresh = replace(plain, fresh=True, forget=5)
    assert replica_folders_of(storage, fresh).agreement == storage / "agreements/job/5"
    member = replace(plain, job="job~2", membership=ReplicaAssignment(2, lineage=5))
    assert replica_folders_of(storage, member).agreement == storage / "agreements/job/5"
