"""Every order of what replicas do, with any of them dying, joining and leaving anywhere: nothing goes wrong.

And the check is worth something: each of the rules, broken, is found out.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from agreement_model import Rules
from agreement_search import FoundWrongError, Search

from penstock.replicas.agreement import agreement_protocol
from penstock.replicas.agreement.agreement_protocol import (
    AgreementStatus,
    BatchAction,
    BatchStatus,
    JoinAction,
)

FULL = pytest.mark.full


@pytest.fixture(autouse=True)
def _no_collection() -> Iterator[None]:
    """Nothing here has cycles, and looking for them takes a third of the time."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    ("rules", "history", "at_least"),
    [
        pytest.param(Rules(4, 3), 0, 342_000, id="3-replicas-4-batches", marks=pytest.mark.full),
        pytest.param(Rules(3, 3), 1, 25_000, id="a-job-that-ran-alone"),
        pytest.param(Rules(2, 3, new=True), 0, 18_000, id="anyone-founds"),
        pytest.param(Rules(2, 3, far=9), 0, 15_000, id="run-rather-than-copy"),
        pytest.param(Rules(3, 3, margin=2), 0, 59_000, id="keep-another-batch"),
        pytest.param(Rules(2, 3, stateless=True), 0, 20_000, id="no-state"),
        pytest.param(Rules(2, 3, strays=True), 0, 22_000, id="strays"),
        pytest.param(Rules(4, 3), 1, 100_000, marks=FULL, id="a-job-that-ran-alone-full"),
        pytest.param(Rules(4, 3, new=True), 0, 300_000, marks=FULL, id="anyone-founds-full"),
        pytest.param(Rules(4, 3, far=9), 0, 200_000, marks=FULL, id="run-rather-than-copy-full"),
        pytest.param(Rules(4, 3, margin=2), 0, 200_000, marks=FULL, id="keep-another-batch-full"),
        pytest.param(Rules(4, 3, stateless=True), 0, 100_000, marks=FULL, id="no-state-full"),
        pytest.param(Rules(4, 3, strays=True), 0, 342_000, marks=FULL, id="strays-full"),
        pytest.param(Rules(2, 4), 0, 50_000, marks=FULL, id="4-replicas-2-batches"),
        pytest.param(Rules(8, 2), 0, 50_000, marks=FULL, id="2-replicas-8-batches"),
    ],
)
def test_nothing_goes_wrong_in_any_order(rules: Rules, history: int, at_least: int) -> None:
    explored = Search(rules, history).run()
    assert explored.states >= at_least, explored


def test_every_decision_is_taken_somewhere() -> None:
    taken: set[BatchAction | JoinAction] = set()

    def noting(decide: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            decision = decide(*args, **kwargs)
            taken.add(decision[0] if isinstance(decision, tuple) else decision)
            return decision

        return noted

    rules = Rules(
        2,
        3,
        before=noting(agreement_protocol.before_batch),
        after=noting(agreement_protocol.after_batch),
        enter=noting(agreement_protocol.enter),
        stateless=True,
    )
    Search(rules).run()
    Search(replace(rules, stateless=False)).run()
    # Nobody holds back here, and a replica with too little to decide may wait for ever.
    assert set(BatchAction) - taken == {BatchAction.WAIT}
    assert set(JoinAction) == taken - set(BatchAction)


def _blind_before(batch: int, seen: BatchStatus, **more: Any) -> BatchAction:
    return agreement_protocol.before_batch(batch, BatchStatus(seen.floor), **more)


def _blind_after(batch: int, seen: BatchStatus, **more: Any) -> BatchAction:
    return agreement_protocol.after_batch(batch, BatchStatus(seen.floor, planned=True), **more)


def _only_follow(batch: int, seen: BatchStatus, **more: Any) -> BatchAction:
    return agreement_protocol.before_batch(batch, seen, **{**more, "work": False})


def _only_accept(batch: int, seen: BatchStatus, **more: Any) -> BatchAction:
    return agreement_protocol.after_batch(batch, seen, **more, holds=True)


def _enter_below_the_floor(
    number: int, own: int, shared: AgreementStatus | None, others: Mapping[str, int], **more: Any
) -> tuple[JoinAction, str]:
    if shared is not None:
        return (JoinAction.GO_ON if own >= 0 else JoinAction.BEGIN), ""
    return agreement_protocol.enter(number, own, shared, others, **more)


def _copy_the_oldest(
    number: int, own: int, shared: AgreementStatus | None, others: Mapping[str, int], **more: Any
) -> tuple[JoinAction, str]:
    entrance, _ = agreement_protocol.enter(number, own, shared, others, **more)
    return entrance, min(sorted(others), key=lambda name: others[name], default="")


def _never_go_on_stray(*args: Any, **more: Any) -> tuple[JoinAction, str]:
    entrance, whom = agreement_protocol.enter(*args, **more)
    return (JoinAction.WAIT if more["stray"] and entrance is JoinAction.GO_ON else entrance), whom


def _skip_with_state(*args: Any, **more: Any) -> tuple[JoinAction, str]:
    return agreement_protocol.enter(*args, **{**more, "stateless": True})


@pytest.mark.parametrize(
    ("rules", "history", "reason"),
    [
        pytest.param(Rules(2, 2, plan_once=False, before=_blind_before), 0, "agreed on twice", id="plan"),
        pytest.param(Rules(2, 2, plan_once=False), 0, "agreed on twice", id="plan-meanwhile"),
        pytest.param(Rules(2, 2, commit_once=False, after=_blind_after), 0, "agreed on twice", id="commit"),
        pytest.param(Rules(2, 2, commit_once=False), 0, "agreed on twice", id="commit-meanwhile"),
        pytest.param(Rules(2, 2, keeps_winner=False), 0, "two outputs", id="own-output"),
        pytest.param(Rules(2, 2, renames=False), 0, "agreed on twice", id="forget-without-a-word"),
        pytest.param(
            Rules(2, 2, renames=False, enter=_enter_below_the_floor),
            0,
            "agreed on twice",
            id="forget-and-run",
        ),
        pytest.param(Rules(3, 2, checks_floor=False), 0, "agreed on twice", id="old-name"),
        pytest.param(Rules(2, 2, margin=-1), 0, "forgotten and not out", id="forget-the-next"),
        pytest.param(Rules(2, 2, margin=0), 0, "not finish", id="forget-what-is-not-kept"),
        pytest.param(
            Rules(3, 2, margin=9, leaves_publishing=True), 0, "skipped", id="leave-it-to-the-winner"
        ),
        pytest.param(Rules(2, 2, marks_first=True), 0, "marked as out", id="mark-first"),
        pytest.param(Rules(2, 2, founds_once=False, new=True), 0, "agreed on twice", id="found-twice"),
        pytest.param(Rules(3, 2, new=True), 1, "older copy", id="found-without-the-history"),
        pytest.param(Rules(3, 2, enter=_enter_below_the_floor), 0, "not finish", id="enter-below-the-floor"),
        pytest.param(Rules(2, 3, enter=_copy_the_oldest), 0, "not finish", id="copy-the-oldest"),
        pytest.param(Rules(3, 2, enter=_skip_with_state), 0, "the state of a replica", id="skip-with-state"),
        pytest.param(Rules(2, 2, strays=True, enter=_never_go_on_stray), 0, "not finish", id="stray-waits"),
        pytest.param(
            Rules(3, 2, strays=True, copies_over=True), 0, "not finish", id="leave-to-one-that-copies"
        ),
        pytest.param(Rules(2, 2, before=_only_follow), 0, "not finish", id="only-follow"),
        pytest.param(Rules(2, 2, after=_only_accept), 0, "not finish", id="only-accept"),
        pytest.param(Rules(3, 2, leaves_alone=True), 0, "not finish", id="leave-with-all-that-is-known"),
    ],
)
def test_a_broken_rule_is_found_out(rules: Rules, history: int, reason: str) -> None:
    with pytest.raises(FoundWrongError, match=reason) as found:
        Search(rules, history).run()
    assert "steps:" in str(found.value)
