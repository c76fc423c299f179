"""The shared place: each agreement is made once, for everyone, by whatever name the folder goes."""

from __future__ import annotations

import os
import resource
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import JobFailedError, ReplicaOutdatedError
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import (
    AgreementStatus,
    BatchStatus,
    Charter,
    Commit,
    Plan,
    ReplicaProgress,
)


def plan(batch: int, by: str = "count") -> Plan:
    return Plan(batch, {"sources": {"orders": {"0": batch * 10}}}, by, at=float(batch))


def commit(batch: int, by: str = "count") -> Commit:
    return Commit(batch, f"{by}-{batch}", by, 1, {"batch": batch + 1}, {"out": [["a", 1]]}, {"out": 7})


def founded(tmp_path: Path, begin: int = 0) -> Path:
    place = tmp_path / "agreements" / "count" / "0"
    AgreementFolder(place).create(Charter(begin, {"orders": {"0": 5}}))
    return place


def run(agreement: AgreementFolder, batches: range, by: str = "count") -> None:
    for batch in batches:
        agreement.propose(plan(batch, by))
        agreement.commit(commit(batch, by))
        agreement.mark_published(batch)


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Do something in many threads at the same moment, and return what each has got."""
    barrier = threading.Barrier(count)
    results: list[Any] = [None] * count

    def one(index: int) -> None:
        barrier.wait()
        results[index] = work(index)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.glob("agreed-*/*"))


def test_there_is_nothing_before_it_is_founded(tmp_path: Path) -> None:
    agreement = AgreementFolder(tmp_path / "place")
    assert agreement.charter() is None
    assert agreement.shared() is None
    assert agreement.replica_progress() == {}
    (tmp_path / "place").mkdir()
    assert agreement.charter() is None


def test_a_place_is_founded_once_by_whoever_is_first(tmp_path: Path) -> None:
    place = tmp_path / "count" / "0"

    def found(index: int) -> Charter | None:
        agreement = AgreementFolder(place)
        agreement.create(Charter(0, {"orders": index}))
        return agreement.charter()

    charters = together(16, found)
    assert len({str(charter) for charter in charters}) == 1
    assert sorted(path.name for path in place.iterdir()) == ["agreed-000000000000", "charter", "members"]
    assert [path.name for path in place.parent.iterdir()] == ["0"], "nothing that was staged is left"


def test_who_founds_late_does_not_bring_an_old_name_back(tmp_path: Path) -> None:
    place = founded(tmp_path)
    agreement, paused = AgreementFolder(place), AgreementFolder(place)
    run(agreement, range(4))
    assert paused.plan(2) == plan(2)
    agreement.forget(2)
    AgreementFolder(place).create(Charter(0, {}))
    assert [path.name for path in place.glob("agreed-*")] == ["agreed-000000000002"]
    assert paused.plan(4) is None
    assert paused.propose(plan(4)) == agreement.plan(4)


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    place = founded(tmp_path)
    agreement = AgreementFolder(place)
    run(agreement, range(1))
    agreement.report_progress(ReplicaProgress("count", 0, 1.0))
    for path in [place, *place.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_first_plan_and_the_first_commit_count(tmp_path: Path) -> None:
    place = founded(tmp_path)
    first, second = AgreementFolder(place), AgreementFolder(place)
    assert first.see(0) == BatchStatus(0)
    assert first.plan(0) is None
    assert first.propose(plan(0, "count")) == plan(0, "count")
    assert second.propose(plan(0, "count~1")) == plan(0, "count")
    assert second.see(0) == BatchStatus(0, planned=True)
    assert second.committed(0) is None
    assert second.commit(commit(0, "count~1")) == commit(0, "count~1")
    assert first.commit(commit(0, "count")) == commit(0, "count~1") == first.committed(0)
    assert first.see(0) == BatchStatus(0, planned=True, committed=True)
    assert not first.is_published(0)
    second.mark_published(0)
    second.mark_published(0)
    assert first.is_published(0)
    assert names(place) == ["000000000000.done", "000000000000.out", "000000000000.plan"]


def test_who_wins_gets_what_the_others_read(tmp_path: Path) -> None:
    agreement = AgreementFolder(founded(tmp_path))
    own = agreement.propose(replace(plan(0), end={"lanes": {3: (1, 2)}}))
    assert own == agreement.plan(0)
    assert own.end == {"lanes": {"3": [1, 2]}}


@pytest.mark.parametrize("kind", ["plan", "commit"])
def test_of_many_at_once_one_wins_and_all_see_it(tmp_path: Path, kind: str) -> None:
    place = founded(tmp_path)

    def offer(index: int) -> list[str]:
        agreement = AgreementFolder(place)
        if kind == "plan":
            return [agreement.propose(plan(batch, f"count~{index}")).by for batch in range(30)]
        return [agreement.commit(commit(batch, f"count~{index}")).by for batch in range(30)]

    seen = together(8, offer)
    assert all(each == seen[0] for each in seen)


def test_what_is_forgotten_is_history_to_one_who_was_paused(tmp_path: Path) -> None:
    place = founded(tmp_path)
    agreement, paused = AgreementFolder(place), AgreementFolder(place)
    run(agreement, range(6))
    assert paused.see(1) == BatchStatus(0, planned=True, committed=True)
    agreement.forget(4)
    assert names(place)[0] == "000000000004.done"
    for attempt in (
        lambda: paused.plan(1),
        lambda: paused.propose(plan(1)),
        lambda: paused.committed(3),
        lambda: paused.commit(commit(3, "other")),
    ):
        with pytest.raises(ReplicaOutdatedError, match="begins with batch 4"):
            attempt()
    assert paused.see(1) == BatchStatus(4)
    assert paused.is_published(1)
    paused.mark_published(1)
    assert paused.plan(4) == plan(4)
    assert paused.commit(commit(4, "other")) == commit(4)
    assert names(place)[0] == "000000000004.done"


def _paused(place: Path) -> AgreementFolder:
    """A replica that last looked before batches 0 to 3 were forgotten, and 4 and 5 agreed on."""
    paused, agreement = AgreementFolder(place), AgreementFolder(place)
    assert paused.see(0) == BatchStatus(0)
    run(agreement, range(6))
    agreement.forget(4)
    return paused


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        pytest.param(lambda paused: paused.see(5), BatchStatus(4, planned=True, committed=True), id="see"),
        pytest.param(lambda paused: paused.see(6), BatchStatus(4), id="see-nothing"),
        pytest.param(lambda paused: paused.plan(5), plan(5), id="plan"),
        pytest.param(lambda paused: paused.plan(6), None, id="no-plan"),
        pytest.param(lambda paused: paused.committed(5), commit(5), id="committed"),
        pytest.param(lambda paused: paused.propose(plan(5, "late")), plan(5), id="propose"),
        pytest.param(lambda paused: paused.commit(commit(5, "late")), commit(5), id="commit"),
        pytest.param(lambda paused: paused.is_published(5), True, id="is-out"),
        pytest.param(lambda paused: paused.is_published(6), False, id="is-not-out"),
        pytest.param(lambda paused: paused.shared(), AgreementStatus(0, 4, 5, 5), id="shared"),
        pytest.param(lambda paused: paused.head(after=-1), 5, id="head"),
    ],
)
def test_one_who_was_paused_sees_what_is(
    tmp_path: Path, ask: Callable[[AgreementFolder], Any], answer: Any
) -> None:
    assert ask(_paused(founded(tmp_path))) == answer


def test_one_who_was_paused_marks_by_the_new_name(tmp_path: Path) -> None:
    place = founded(tmp_path)
    paused = _paused(place)
    paused.mark_published(6)
    assert AgreementFolder(place).is_published(6)


def test_the_head_is_the_last_batch_that_is_planned(tmp_path: Path) -> None:
    place = founded(tmp_path)
    agreement = AgreementFolder(place)
    assert agreement.head(after=-1) == -1
    run(agreement, range(4))
    agreement.propose(plan(4))
    assert [agreement.head(after) for after in (-1, 2, 4)] == [4, 4, 4]
    agreement.forget(4)
    assert [AgreementFolder(place).head(after) for after in (-1, 4)] == [4, 4]


def test_before_there_is_a_place_the_head_is_what_one_knows(tmp_path: Path) -> None:
    assert AgreementFolder(tmp_path / "nowhere").head(after=6) == 6


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can have more than a few bytes: the one that pytest reports to cannot, either."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_where_there_is_no_room_to_found_nothing_is_left(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(JobFailedError, match=r"charter cannot be written: .+: check the disk"):
        founded(tmp_path)
    assert not list(tmp_path.glob("agreements/count/*"))


@pytest.mark.parametrize(
    "say",
    [
        pytest.param(lambda agreement: agreement.propose(plan(1)), id="plan"),
        pytest.param(lambda agreement: agreement.commit(commit(0)), id="commit"),
        pytest.param(
            lambda agreement: agreement.report_progress(ReplicaProgress("count", 0, 0.0)), id="stand"
        ),
    ],
)
def test_where_there_is_no_room_nothing_is_agreed_on(
    tmp_path: Path, say: Callable[[AgreementFolder], Any]
) -> None:
    place = founded(tmp_path)
    agreement = AgreementFolder(place)
    agreement.propose(plan(0))
    before = sorted(place.rglob("*"))
    with full_disk(), pytest.raises(JobFailedError, match=r"cannot be written: .+: check the disk"):
        say(agreement)
    assert sorted(place.rglob("*")) == before


def test_of_two_that_forget_the_faster_one_does(tmp_path: Path) -> None:
    place = founded(tmp_path)
    fast, slow = AgreementFolder(place), AgreementFolder(place)
    run(fast, range(6))
    assert slow.plan(5) == plan(5)
    fast.forget(4)
    slow.forget(2)
    assert [path.name for path in place.glob("agreed-*")] == ["agreed-000000000004"]
    slow.forget(3)
    slow.forget(5)
    assert fast.shared() == AgreementStatus(0, 5, 5, 5)


def test_what_is_not_committed_is_not_forgotten(tmp_path: Path) -> None:
    agreement = AgreementFolder(founded(tmp_path))
    run(agreement, range(2))
    agreement.propose(plan(2))
    with pytest.raises(ValueError, match="batch 2 is not committed"):
        agreement.forget(3)
    agreement.forget(2)
    agreement.forget(1)
    assert agreement.shared() == AgreementStatus(0, 2, 2, 1)


def test_forgetting_removes_what_the_dead_have_left(tmp_path: Path) -> None:
    place = founded(tmp_path)
    agreement = AgreementFolder(place)
    run(agreement, range(3))
    for litter in (".000000000001.0123", ".000000000002.0123", "000000000000.more"):
        (place / "agreed-000000000000" / litter).touch()
    agreement.forget(2)
    assert names(place) == [
        ".000000000002.0123",
        "000000000002.done",
        "000000000002.out",
        "000000000002.plan",
    ]


def test_what_is_left_below_the_floor_does_not_count(tmp_path: Path) -> None:
    place = founded(tmp_path)
    agreement = AgreementFolder(place)
    run(agreement, range(3))
    agreement.forget(3)
    (place / "agreed-000000000003" / "000000000001.plan").write_text("made by a link that came too late")
    assert agreement.shared() == AgreementStatus(0, 3, 2, 2)
    assert agreement.see(1) == BatchStatus(3)


def test_a_job_that_ran_alone_begins_later(tmp_path: Path) -> None:
    agreement = AgreementFolder(founded(tmp_path, begin=7))
    assert agreement.shared() == AgreementStatus(7, 7, 6, 6)
    assert agreement.charter() == Charter(7, {"orders": {"0": 5}})
    with pytest.raises(ReplicaOutdatedError):
        agreement.propose(plan(6))
    agreement.propose(plan(7))
    assert agreement.shared() == AgreementStatus(7, 7, 7, 6)


def test_replicas_stand_where_they_last_said(tmp_path: Path) -> None:
    place = founded(tmp_path)
    agreement = AgreementFolder(place)
    for standing in (
        ReplicaProgress("count", 3, 1.0),
        ReplicaProgress("count~1", 2, 1.5, 0.2),
        ReplicaProgress("count", 4, 2.0),
    ):
        agreement.report_progress(standing)
    (place / "members" / ".count.0123").touch()
    assert AgreementFolder(place).replica_progress() == {
        "count": ReplicaProgress("count", 4, 2.0),
        "count~1": ReplicaProgress("count~1", 2, 1.5, 0.2),
    }
    agreement.leave("count~1")
    agreement.leave("count~1")
    assert list(agreement.replica_progress()) == ["count"]


@pytest.mark.parametrize("content", ["", "00000000 {}", "no number", '{"crc": 1}', "12345678"])
@pytest.mark.parametrize("name", ["charter", "agreed-000000000000/000000000000.plan", "members/count"])
def test_damage_is_told_with_the_path(tmp_path: Path, name: str, content: str) -> None:
    place = founded(tmp_path)
    agreement = AgreementFolder(place)
    run(agreement, range(1))
    agreement.report_progress(ReplicaProgress("count", 0, 1.0))
    (place / name).write_text(content)
    ask: dict[str, Callable[[], object]] = {
        "charter": agreement.shared,
        "members/count": agreement.replica_progress,
    }
    with pytest.raises(JobFailedError, match=f"{place / name} is damaged.*--fresh"):
        ask.get(name, lambda: agreement.propose(plan(0)))()


@pytest.mark.parametrize("cut", [1, 9, 30])
def test_a_cut_file_is_damage(tmp_path: Path, cut: int) -> None:
    place = founded(tmp_path)
    agreement = AgreementFolder(place)
    run(agreement, range(1))
    path = place / "agreed-000000000000" / "000000000000.done"
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(JobFailedError, match="done is damaged"):
        agreement.committed(0)


@pytest.mark.parametrize("name", ["charter", "agreed-000000000000", "members"])
def test_what_is_missing_is_told(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.replicas.agreement.agreement_folder._FIND_SECONDS", 0.0)
    place = founded(tmp_path)
    (place / name).rename(tmp_path / "elsewhere")
    agreement = AgreementFolder(place)
    ask: dict[str, Callable[[], object]] = {
        "charter": agreement.charter,
        "members": lambda: agreement.report_progress(ReplicaProgress("count", 0, 1.0)),
    }
    with pytest.raises(JobFailedError, match="is missing: restore it"):
        ask.get(name, lambda: agreement.plan(0))()


def test_other_trouble_is_not_taken_for_a_new_name(tmp_path: Path) -> None:
    place = founded(tmp_path)
    agreement = AgreementFolder(place)
    assert agreement.plan(0) is None
    folder = place / "agreed-000000000000"
    folder.rename(tmp_path / "elsewhere")
    folder.write_text("not a folder")
    with pytest.raises(NotADirectoryError):
        agreement.propose(plan(0))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "something").touch()
    with pytest.raises(OSError, match="other"):
        AgreementFolder(tmp_path / "other").create(Charter(0, {}))


def test_asking_for_a_plan_that_is_not_there_is_two_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreement = AgreementFolder(founded(tmp_path))
    assert agreement.plan(0) is None
    monkeypatch.setattr(os, "listdir", lambda _: pytest.fail("the place was searched again"))
    assert agreement.plan(0) is None
