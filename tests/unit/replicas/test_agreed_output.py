"""Whose output of a batch counts, and who brings it out: without Spark, with sinks that note all calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from noting import END, Alone, Clock, Noted, Plain, Told, offer, replica

from penstock.engine.storage.ledger import LedgerEntry
from penstock.errors import ReplicaDivergedError, ReplicaOutdatedError, SupersededError
from penstock.replicas.agreement import batch_agreement
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import Charter, Commit, ReplicaProgress
from penstock.replicas.agreement.batch_agreement import AgreedOutput, Offer


@pytest.fixture
def place(tmp_path: Path) -> Path:
    AgreementFolder(tmp_path / "agreement").create(Charter(0, {}))
    return tmp_path


def test_the_first_output_counts_and_the_second_is_discarded(place: Path) -> None:
    told: Told = []
    one, _ = replica(place, 0, Noted(told))
    other, _ = replica(place, 1, Noted(told))
    assert one.settle(offer("a")).by == "count~0"
    assert other.settle(offer("b")).receipts == {"out": ["a"]}
    assert told == [("commit", (0, "a")), ("discard", ("b",))]


def test_a_winner_that_dies_before_it_publishes_leaves_that_to_the_loser(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: Told = []
    _dies_before_it_publishes(replica(place, 0, Noted(told))[0], monkeypatch)
    other, _ = replica(place, 1, Noted(told))
    other.settle(offer("b"))
    assert told == [("discard", ("b",)), ("commit", (0, "a"))]


def _dies_before_it_publishes(winner: AgreedOutput, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(batch_agreement, "publish", _die)
        with pytest.raises(KeyboardInterrupt):
            winner.settle(offer("a"))


def _die(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_replica_that_runs_its_own_batch_again_does_not_double_it(place: Path) -> None:
    told: Told = []
    one, _ = replica(place, 0, Noted(told))
    one.settle(offer("a"))
    again, _ = replica(place, 0, Noted(told))
    assert again.settle(offer("a2")).receipts == {"out": ["a"]}
    assert told == [("commit", (0, "a")), ("discard", ("a2",))]


def test_what_only_one_may_deliver_is_left_to_the_winner_and_then_to_the_next(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_agreement, "_DELIVERY_SECONDS", 0.05)
    told: Told = []
    _dies_before_it_publishes(replica(place, 0, Alone(told))[0], monkeypatch)
    other, _ = replica(place, 1, Alone(told))
    other.settle(offer("b"))
    assert told == [("discard", ("b",))]
    other.settle(offer("c", batch=1))
    assert told[1:] == [("commit", (0, "a")), ("commit", (1, "c"))]


def test_what_was_left_by_several_is_delivered_in_order(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The winner of a batch dies, and that of the next one before it comes to what was left to it."""
    monkeypatch.setattr(batch_agreement, "_DELIVERY_SECONDS", 0.01)
    told: Told = []
    with monkeypatch.context() as dying:
        dying.setattr(batch_agreement, "publish", _die)
        for number, receipt in enumerate("ab"):
            with pytest.raises(KeyboardInterrupt):
                replica(place, number, Alone(told))[0].settle(offer(receipt, batch=number))
    third, _ = replica(place, 2, Alone(told))
    third.settle(offer("c", batch=0))
    third.settle(offer("d", batch=1))
    third.settle(offer("e", batch=2))
    assert told[2:] == [("commit", (0, "a")), ("commit", (1, "b")), ("commit", (2, "e"))]


def test_a_winner_that_is_slow_gets_time_to_deliver_what_only_one_may(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: Told = []
    _dies_before_it_publishes(replica(place, 0, Alone(told))[0], monkeypatch)
    clock = Clock(monkeypatch)
    clock.calls.append((clock.now + 9.0, lambda: AgreementFolder(place / "agreement").mark_published(0)))
    replica(place, 1, Alone(told))[0].settle(offer("b", batch=1))
    assert told == [("commit", (1, "b"))], "the winner has delivered its batch in the end"
    assert clock.now >= 1009.0


def test_what_all_may_deliver_waits_for_nobody(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: Told = []
    _dies_before_it_publishes(replica(place, 0, Noted(told))[0], monkeypatch)
    clock = Clock(monkeypatch)
    replica(place, 1, Noted(told))[0].settle(offer("b", batch=1))
    assert told == [("commit", (0, "a")), ("commit", (1, "b"))]
    assert clock.now == 1000.0
    assert AgreementFolder(place / "agreement").is_published(0)


def test_a_replica_says_how_far_it_has_come(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    one, _ = replica(place, 0, Noted([]))
    for batch in range(2):
        one.settle(offer("a", batch=batch, seconds=0.5))
    assert AgreementFolder(place / "agreement").replica_progress() == {
        "count~0": ReplicaProgress("count~0", 1, 1000.0, 0.5)
    }


def test_state_is_compared_every_sixteen_batches(place: Path) -> None:
    one, _ = replica(place, 0, Noted([]))
    given = [one.settle(offer("a", batch=batch, state={"tally": 7})).state for batch in range(17)]
    assert given == [{"tally": 7}, *[{}] * 15, {"tally": 7}]


def test_a_replica_that_starts_again_brings_out_what_it_had_left(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: Told = []
    _dies_before_it_publishes(replica(place, 0, Alone(told))[0], monkeypatch)
    replica(place, 1, Alone(told))[0].resume(LedgerEntry(0, END))
    assert told == [], "that is another's to deliver"
    for _ in range(2):
        replica(place, 0, Alone(told))[0].resume(LedgerEntry(0, END))
    assert told == [("commit", (0, "a"))]


@pytest.mark.parametrize(
    ("kind", "number", "brings"), [(Alone, 0, True), (Alone, 1, False), (Noted, 1, True)]
)
def test_the_last_batch_before_there_were_replicas_is_brought_out_too(
    tmp_path: Path, kind: type[Noted], number: int, brings: bool
) -> None:
    """Who ran alone may have died between its entry and its output."""
    AgreementFolder(tmp_path / "agreement").create(Charter(8, {}))
    told: Told = []
    replica(tmp_path, number, kind(told))[0].resume(LedgerEntry(7, END, {"out": ["a"]}))
    assert told == ([("commit", (7, "a"))] if brings else [])


def test_a_replica_differs_where_nobody_has_the_state_that_counts(place: Path) -> None:
    told: Told = []
    replica(place, 0, Noted(told))[0].settle(offer("a", 1))
    other, _ = replica(place, 1, Noted(told), may_differ_until=0)
    assert other.settle(offer("b", 2)).receipts == {"out": ["a"]}
    other.settle(offer("c", 2, batch=1))
    with pytest.raises(ReplicaDivergedError):
        replica(place, 2, Noted(told), may_differ_until=0)[0].settle(offer("d", 3, batch=1))


@pytest.mark.filterwarnings("ignore::penstock.errors.DeliveryWarning")
def test_a_sink_that_can_do_neither_gets_the_output_of_every_replica(place: Path) -> None:
    told: Told = []
    one, _ = replica(place, 0, Plain(told))
    other, _ = replica(place, 1, Plain(told))
    one.settle(offer("a"))
    other.settle(offer("b"))
    assert told == [("commit", (0, "a")), ("commit", (0, "b"))]


def test_a_difference_names_batch_and_vertex_and_keeps_the_first_output(place: Path) -> None:
    told: Told = []
    one, _ = replica(place, 0, Noted(told))
    other, _ = replica(place, 1, Noted(told))
    one.settle(offer("a", state={"tally": 7}))
    with pytest.raises(ReplicaDivergedError, match="came to another output than count~0") as caught:
        other.settle(offer("b", digest=2, state={"tally": 7}))
    assert (caught.value.batch, caught.value.vertex, caught.value.alarming) == (0, "out", True)
    assert told == [("commit", (0, "a")), ("discard", ("b",))]


def test_a_difference_in_the_state_is_found_though_the_output_is_the_same(place: Path) -> None:
    one, _ = replica(place, 0, Noted([]))
    other, _ = replica(place, 1, Noted([]))
    one.settle(offer("a", state={"tally": 7}))
    with pytest.raises(ReplicaDivergedError, match="another state") as caught:
        other.settle(offer("b", state={"tally": 8}))
    assert caught.value.vertex == "tally"


def test_output_that_one_replica_lacks_wholly_is_a_difference(place: Path) -> None:
    one, _ = replica(place, 0, Noted([]))
    other, _ = replica(place, 1, Noted([]))
    one.settle(offer("a"))
    with pytest.raises(ReplicaDivergedError):
        other.settle(Offer(0, END, {}, {}, {}))


def test_other_code_may_differ_and_what_it_leaves_raises_no_alarm(place: Path) -> None:
    one, _ = replica(place, 0, Noted([]), generation=2)
    other, _ = replica(place, 1, Noted([]), generation=1)
    one.settle(offer("a"))
    other.settle(offer("b", digest=2))
    updated, _ = replica(place, 0, Noted([]), generation=1)
    updated.settle(offer("c", batch=1))
    with pytest.raises(ReplicaDivergedError) as caught:
        other.settle(offer("d", digest=2, batch=1))
    assert not caught.value.alarming


@pytest.mark.parametrize(("last", "alarming"), [(16, False), (17, True)])
def test_after_other_code_a_difference_alarms_once_all_state_was_the_same(
    place: Path, last: int, alarming: bool
) -> None:
    one, _ = replica(place, 0, Noted([]), generation=2)
    other, _ = replica(place, 1, Noted([]), generation=1)
    one.settle(offer("a"))
    other.settle(offer("b", digest=2))
    updated, _ = replica(place, 0, Noted([]), generation=1)
    for batch in range(1, last):
        for each in (updated, other):
            each.settle(offer("c", batch=batch, state={"tally": batch}))
    updated.settle(offer("c", batch=last, state={"tally": last}))
    with pytest.raises(ReplicaDivergedError) as caught:
        other.settle(offer("d", digest=2, batch=last, state={"tally": last}))
    assert caught.value.alarming is alarming


def test_no_output_is_the_same_as_output_of_nothing(place: Path) -> None:
    replica(place, 0, Noted([]))[0].settle(offer("a", digest=0, state={"tally": 7}))
    replica(place, 1, Noted([]))[0].settle(Offer(0, END, {}, {}, {}))


def test_a_replica_that_lacks_state_commits_nothing_and_stops_when_asked(place: Path) -> None:
    told: Told = []
    one, blueprint = replica(place, 0, Noted(told))
    blueprint.folders.state_incomplete.touch()
    blueprint.folders.stop_request.touch()
    with pytest.raises(SupersededError):
        one.settle(offer("a"))
    assert told == []
    other, _ = replica(place, 1, Noted(told))
    other.settle(offer("b"))
    assert one.settle(offer("a", digest=9)).by == "count~1"


def test_a_replica_that_was_away_for_long_commits_nothing(place: Path) -> None:
    told: Told = []
    one, _ = replica(place, 0, Noted(told))
    agreement = AgreementFolder(place / "agreement")
    for batch in range(3):
        agreement.commit(Commit(batch, "x", "count~1", 1, END))
    agreement.forget(2)
    with pytest.raises(ReplicaOutdatedError):
        one.settle(offer("a", batch=1))
    assert told == []


def test_what_is_old_is_forgotten_together_by_all_and_told_to_the_sources(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        batch_agreement, "first_batch_to_keep", lambda times, now: max(min(times), max(times) - 10)
    )
    told: list[Any] = []
    monkeypatch.setattr(batch_agreement, "acknowledge", lambda blueprint, end: told.append(end))
    one, _ = replica(place, 0, Noted([]))
    for batch in range(70):
        one.settle(offer("a", batch=batch))
    agreement = AgreementFolder(place / "agreement")
    assert agreement.see(53).floor == 54
    assert agreement.see(54).committed
    assert told == [END]
