"""What a replica does next. That it is right in every order is checked in tests/property."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import JobFailedError
from penstock.replicas.agreement.agreement_protocol import (
    AgreementStatus,
    BatchAction,
    BatchStatus,
    JoinAction,
    after_batch,
    before_batch,
    can_go_on,
    enter,
)

NEW = AgreementStatus(begin=0, floor=0, head=-1)
YOUNG = AgreementStatus(begin=0, floor=0, head=9, done=8)
OLD = AgreementStatus(begin=0, floor=100, head=500, done=499)
LATE = AgreementStatus(begin=7, floor=7, head=8, done=8)


@pytest.mark.parametrize(
    ("seen", "more", "move"),
    [
        (BatchStatus(4), {"work": True}, BatchAction.REBUILD),
        (BatchStatus(4, planned=True, committed=True), {"work": True}, BatchAction.REBUILD),
        (BatchStatus(3, planned=True), {"work": False}, BatchAction.FOLLOW),
        (BatchStatus(3, planned=True), {"work": True, "whole": False}, BatchAction.FOLLOW),
        (BatchStatus(3), {"work": True}, BatchAction.PROPOSE),
        (BatchStatus(3), {"work": False}, BatchAction.WAIT),
        (BatchStatus(3), {"work": True, "whole": False}, BatchAction.WAIT),
    ],
)
def test_before_a_batch(seen: BatchStatus, more: dict[str, Any], move: BatchAction) -> None:
    assert before_batch(3, seen, **more) is move


@pytest.mark.parametrize(
    ("seen", "more", "move"),
    [
        (BatchStatus(4), {}, BatchAction.REBUILD),
        (BatchStatus(3, planned=True), {}, BatchAction.COMMIT),
        (BatchStatus(3, planned=True, committed=True), {}, BatchAction.ACCEPT),
        (BatchStatus(3, planned=True, committed=True), {"holds": True}, BatchAction.ACCEPT),
        (BatchStatus(3, planned=True, committed=True), {"whole": False}, BatchAction.ACCEPT),
        (BatchStatus(3, planned=True), {"holds": True}, BatchAction.WAIT),
        (BatchStatus(3, planned=True), {"whole": False}, BatchAction.WAIT),
    ],
)
def test_after_a_batch(seen: BatchStatus, more: dict[str, Any], move: BatchAction) -> None:
    assert after_batch(3, seen, **more) is move


@pytest.mark.parametrize(
    ("number", "own", "shared", "others", "more", "entrance"),
    [
        pytest.param(0, -1, None, {}, {}, (JoinAction.CREATE, ""), id="first"),
        pytest.param(0, 6, None, {"b": -1}, {}, (JoinAction.CREATE, ""), id="first-with-batches"),
        pytest.param(1, -1, None, {"a": 6}, {}, (JoinAction.WAIT, ""), id="second-waits-for-the-first"),
        pytest.param(1, -1, None, {"a": -1}, {"new": True}, (JoinAction.CREATE, ""), id="anyone-if-new"),
        pytest.param(1, -1, NEW, {"a": -1}, {}, (JoinAction.BEGIN, ""), id="begin"),
        pytest.param(1, -1, YOUNG, {"a": 8}, {}, (JoinAction.BEGIN, ""), id="begin-later"),
        pytest.param(1, -1, YOUNG, {"a": 8}, {"far": 5}, (JoinAction.COPY, "a"), id="copy-rather"),
        pytest.param(1, -1, YOUNG, {"a": -1}, {"far": 5}, (JoinAction.BEGIN, ""), id="nothing-to-copy"),
        pytest.param(1, 5, YOUNG, {"a": 8}, {}, (JoinAction.GO_ON, ""), id="go-on"),
        pytest.param(1, 300, OLD, {"a": 498}, {}, (JoinAction.COPY, "a"), id="far-behind"),
        pytest.param(1, 490, OLD, {"a": 498}, {}, (JoinAction.GO_ON, ""), id="not-far-behind"),
        pytest.param(1, 300, OLD, {"a": 200}, {}, (JoinAction.GO_ON, ""), id="the-other-is-behind"),
        pytest.param(1, 99, OLD, {"a": 98}, {}, (JoinAction.GO_ON, ""), id="just-able"),
        pytest.param(1, 98, OLD, {"a": 99}, {}, (JoinAction.COPY, "a"), id="just-unable"),
        pytest.param(1, 98, OLD, {"a": 97}, {}, (JoinAction.WAIT, ""), id="nobody-is-able"),
        pytest.param(1, -1, OLD, {}, {}, (JoinAction.WAIT, ""), id="nobody-is-there"),
        pytest.param(2, 5, OLD, {"b": 498, "a": 498}, {}, (JoinAction.COPY, "a"), id="of-equals-by-name"),
        pytest.param(1, -1, LATE, {"a": 6}, {}, (JoinAction.COPY, "a"), id="the-first-had-a-past"),
        pytest.param(0, 6, LATE, {"b": -1}, {}, (JoinAction.GO_ON, ""), id="the-first-itself"),
        pytest.param(
            1, 498, OLD, {"a": 497}, {"stray": True}, (JoinAction.COPY, "a"), id="stray-copies-older"
        ),
        pytest.param(1, 498, OLD, {"a": 98}, {"stray": True}, (JoinAction.GO_ON, ""), id="stray-alone"),
        pytest.param(1, 98, OLD, {}, {"stray": True}, (JoinAction.WAIT, ""), id="stray-and-unable"),
        pytest.param(1, -1, OLD, {}, {"stateless": True}, (JoinAction.SKIP, ""), id="skip"),
        pytest.param(1, 498, OLD, {}, {"stateless": True}, (JoinAction.GO_ON, ""), id="no-need-to-skip"),
        pytest.param(
            1, 498, OLD, {}, {"stateless": True, "stray": True}, (JoinAction.SKIP, ""), id="stray-skips"
        ),
        pytest.param(
            1,
            -1,
            AgreementStatus(7, 7, 7, 6),
            {"a": 6},
            {"stateless": True},
            (JoinAction.COPY, "a"),
            id="nothing-to-skip-to",
        ),
    ],
)
def test_coming_in(
    number: int,
    own: int,
    shared: AgreementStatus | None,
    others: dict[str, int],
    more: dict[str, Any],
    entrance: tuple[JoinAction, str],
) -> None:
    assert enter(number, own, shared, others, **more) == entrance


def test_a_place_that_knows_less_than_a_replica_is_refused() -> None:
    with pytest.raises(JobFailedError, match="has run batch 10, but the agreement has no batch after 9"):
        enter(0, 10, YOUNG, {})


def test_who_can_go_on() -> None:
    assert can_go_on(-1, NEW)
    assert can_go_on(-1, YOUNG)
    assert not can_go_on(-1, OLD)
    assert not can_go_on(-1, LATE)
    assert can_go_on(6, LATE)
