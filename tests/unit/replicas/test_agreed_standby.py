"""Primary and backups: who gives output, when a backup does, and what becomes of what it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from noting import END, Alone, Clock, Noted, Plain, Told, offer, replica

from penstock.engine.blueprint import Blueprint
from penstock.engine.storage.ledger import Ledger, LedgerEntry
from penstock.graph.connector_api import Sink, SinkWriter, WriteContext
from penstock.record import Record
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import Charter
from penstock.replicas.agreement.batch_agreement import AgreedOutput
from penstock.replicas.agreement.held_output import HeldSink, is_held, release
from support.left_staged import left_staged

CONTEXT = WriteContext("count", "out", 0, "7-0")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    AgreementFolder(tmp_path / "agreement").create(Charter(0, {}))
    return tmp_path


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def one_of(place: Path, number: int, sink: Sink) -> tuple[AgreedOutput, Blueprint]:
    return replica(place, number, sink, holds=True, scratch=str(place / f"held-{number}"))


def written(blueprint: Blueprint, *values: Any) -> Any:
    """Have a Spark task of a replica write records, and return its receipt."""
    writer = blueprint.for_workers().sinks["out"].writer(CONTEXT)
    writer.write([Record(None, value) for value in values])
    return writer.finish()


def test_the_first_replica_of_a_new_job_is_the_primary(place: Path) -> None:
    _, first = one_of(place, 0, Noted([]))
    _, second = one_of(place, 1, Noted([]))
    assert written(first, 1) == "7-0: [1]"
    assert is_held(written(second, 1))


def test_what_the_primary_gives_counts_and_the_backup_drops_what_it_holds(place: Path) -> None:
    told: Told = []
    primary, first = one_of(place, 0, Noted(told))
    backup, second = one_of(place, 1, Noted(told))
    held = written(second, 1, 2)
    assert list((place / "held-1").iterdir())
    primary.settle(offer(written(first, 1, 2)))
    assert backup.settle(offer(held)).by == "count~0"
    assert told == [("commit", (0, "7-0: [1, 2]"))], "nothing was staged that had to be discarded"
    assert not left_staged(place / "held-1")


@pytest.mark.parametrize(("seconds", "waited"), [(0.0, 0.2), (1.5, 1.5)])
def test_a_backup_gives_the_primary_as_long_as_the_batch_took_itself(
    place: Path, clock: Clock, seconds: float, waited: float
) -> None:
    told: Told = []
    one_of(place, 0, Noted(told))
    backup, second = one_of(place, 1, Noted(told))
    assert backup.settle(offer(written(second, 1, 2), seconds=seconds)).by == "count~1"
    assert clock.now - 1000.0 == pytest.approx(waited, abs=0.01)
    assert told == [("commit", (0, "7-0: [1, 2]"))]
    assert not left_staged(place / "held-1")
    assert written(second, 3) == "7-0: [3]", "it is the primary now"
    backup.settle(offer("b", batch=1, seconds=100.0))
    assert clock.now - 1000.0 < 100.0, "who is the primary waits for nobody"


def test_a_primary_that_was_too_slow_is_a_backup_then(place: Path, clock: Clock) -> None:
    told: Told = []
    primary, first = one_of(place, 0, Noted(told))
    receipt = written(first, 1)
    backup, second = one_of(place, 1, Noted(told))
    backup.settle(offer(written(second, 1)))
    assert primary.settle(offer(receipt)).by == "count~1"
    assert told[1:] == [("discard", (receipt,))]
    assert is_held(written(first, 2))
    assert clock.now > 1000.0


def test_the_first_replica_is_no_primary_when_it_starts_again_as_a_backup(place: Path) -> None:
    _, first = one_of(place, 0, Noted([]))
    first.folders.primary.unlink()
    first.folders.create()
    Ledger(first.folders.ledger).commit(LedgerEntry(0, END))
    _, again = one_of(place, 0, Noted([]))
    assert is_held(written(again, 2))


def test_a_backup_that_is_to_stop_gives_what_it_holds_at_once(place: Path, clock: Clock) -> None:
    one_of(place, 0, Noted([]))
    backup, second = one_of(place, 1, Noted([]))
    second.folders.stop_request.touch()
    assert backup.settle(offer(written(second, 1), seconds=60.0)).by == "count~1"
    assert clock.now == 1000.0


@pytest.mark.filterwarnings("ignore::penstock.errors.DeliveryWarning")
def test_of_a_sink_that_others_collect_for_only_the_primary_gives_output(place: Path) -> None:
    told: Told = []
    primary, first = one_of(place, 0, Plain(told))
    backup, second = one_of(place, 1, Plain(told))
    primary.settle(offer(written(first, 1)))
    receipt = written(second, 1)
    assert not is_held(receipt), "that is held in the driver"
    backup.settle(offer(receipt))
    assert told == [("commit", (0, "7-0: [1]"))]


def test_what_a_sink_may_refuse_is_staged_there_by_backups_too(place: Path, clock: Clock) -> None:
    class Choosy(Noted):
        holdable = False

    told: Told = []
    primary, first = one_of(place, 0, Choosy(told))
    backup, second = one_of(place, 1, Choosy(told))
    primary.settle(offer(written(first, 1)))
    backup.settle(offer(written(second, 1)))
    assert told == [("commit", (0, "7-0: [1]")), ("discard", ("7-0: [1]",))]
    assert backup.settle(offer(written(second, 2), batch=1)).by == "count~1"
    assert told[2:] == [("commit", (1, "7-0: [2]"))]


@pytest.mark.parametrize("kind", [Noted, Alone])
def test_a_task_without_records_holds_nothing(place: Path, kind: type[Noted]) -> None:
    sink = HeldSink(kind([]), place / "held", place / "primary")
    assert sink.writer(CONTEXT).finish() is None


def test_what_is_held_may_come_to_nothing(place: Path) -> None:
    class Empty(Noted):
        def writer(self, context: WriteContext) -> SinkWriter:
            return Nothing()

    class Nothing(SinkWriter):
        def write(self, records: list[Record]) -> None:
            pass

        def finish(self) -> None:
            return None

    held = HeldSink(Empty([]), place / "held", place / "primary").writer(CONTEXT)
    held.write([Record(None, 1)])
    assert release(Empty([]), held.finish(), place / "held", 0) == []
