"""What a replica does next. That it is right in every order is checked in tests/property."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine.agreement.core import (
    Entrance,
    Move,
    Seen,
    Shared,
    after_batch,
    before_batch,
    can_go_on,
    enter,
)
from penstock.errors import JobFailedError

NEW = Shared(begin=0, floor=0, head=-1)
YOUNG = Shared(begin=0, floor=0, head=9, done=8)
OLD = Shared(begin=0, floor=100, head=500, done=499)
LATE = Shared(begin=7, floor=7, head=8, done=8)


@pytest.mark.parametrize(
    ("seen", "more", "move"),
    [
        (Seen(4), {"work": True}, Move.REBUILD),
        (Seen(4, planned=True, committed=True), {"work": True}, Move.REBUILD),
        (Seen(3, planned=True), {"work": False}, Move.FOLLOW),
        (Seen(3, planned=True), {"work": True, "whole": False}, Move.FOLLOW),
        (Seen(3), {"work": True}, Move.PROPOSE),
        (Seen(3), {"work": False}, Move.WAIT),
        (Seen(3), {"work": True, "whole": False}, Move.WAIT),
    ],
)
def test_before_a_batch(seen: Seen, more: dict[str, Any], move: Move) -> None:
    assert before_batch(3, seen, **more) is move


@pytest.mark.parametrize(
    ("seen", "more", "move"),
    [
        (Seen(4), {}, Move.REBUILD),
        (Seen(3, planned=True), {}, Move.COMMIT),
        (Seen(3, planned=True, committed=True), {}, Move.ACCEPT),
        (Seen(3, planned=True, committed=True), {"holds": True}, Move.ACCEPT),
        (Seen(3, planned=True, committed=True), {"whole": False}, Move.ACCEPT),
        (Seen(3, planned=True), {"holds": True}, Move.WAIT),
        (Seen(3, planned=True), {"whole": False}, Move.WAIT),
    ],
)
def test_after_a_batch(seen: Seen, more: dict[str, Any], move: Move) -> None:
    assert after_batch(3, seen, **more) is move


@pytest.mark.parametrize(
    ("number", "own", "shared", "others", "more", "entrance"),
    [
        pytest.param(0, -1, None, {}, {}, (Entrance.FOUND, ""), id="first"),
        pytest.param(0, 6, None, {"b": -1}, {}, (Entrance.FOUND, ""), id="first-with-batches"),
        pytest.param(1, -1, None, {"a": 6}, {}, (Entrance.WAIT, ""), id="second-waits-for-the-first"),
        pytest.param(1, -1, None, {"a": -1}, {"new": True}, (Entrance.FOUND, ""), id="anyone-if-new"),
        pytest.param(1, -1, NEW, {"a": -1}, {}, (Entrance.BEGIN, ""), id="begin"),
        pytest.param(1, -1, YOUNG, {"a": 8}, {}, (Entrance.BEGIN, ""), id="begin-later"),
        pytest.param(1, -1, YOUNG, {"a": 8}, {"far": 5}, (Entrance.COPY, "a"), id="copy-rather"),
        pytest.param(1, -1, YOUNG, {"a": -1}, {"far": 5}, (Entrance.BEGIN, ""), id="nothing-to-copy"),
        pytest.param(1, 5, YOUNG, {"a": 8}, {}, (Entrance.GO_ON, ""), id="go-on"),
        pytest.param(1, 300, OLD, {"a": 498}, {}, (Entrance.COPY, "a"), id="far-behind"),
        pytest.param(1, 490, OLD, {"a": 498}, {}, (Entrance.GO_ON, ""), id="not-far-behind"),
        pytest.param(1, 300, OLD, {"a": 200}, {}, (Entrance.GO_ON, ""), id="the-other-is-behind"),
        pytest.param(1, 99, OLD, {"a": 98}, {}, (Entrance.GO_ON, ""), id="just-able"),
        pytest.param(1, 98, OLD, {"a": 99}, {}, (Entrance.COPY, "a"), id="just-unable"),
        pytest.param(1, 98, OLD, {"a": 97}, {}, (Entrance.WAIT, ""), id="nobody-is-able"),
        pytest.param(1, -1, OLD, {}, {}, (Entrance.WAIT, ""), id="nobody-is-there"),
        pytest.param(2, 5, OLD, {"b": 498, "a": 498}, {}, (Entrance.COPY, "a"), id="of-equals-by-name"),
        pytest.param(1, -1, LATE, {"a": 6}, {}, (Entrance.COPY, "a"), id="the-first-had-a-past"),
        pytest.param(0, 6, LATE, {"b": -1}, {}, (Entrance.GO_ON, ""), id="the-first-itself"),
        pytest.param(1, 498, OLD, {"a": 497}, {"stray": True}, (Entrance.COPY, "a"), id="stray-copies-older"),
        pytest.param(1, 498, OLD, {"a": 98}, {"stray": True}, (Entrance.GO_ON, ""), id="stray-alone"),
        pytest.param(1, 98, OLD, {}, {"stray": True}, (Entrance.WAIT, ""), id="stray-and-unable"),
        pytest.param(1, -1, OLD, {}, {"stateless": True}, (Entrance.SKIP, ""), id="skip"),
        pytest.param(1, 498, OLD, {}, {"stateless": True}, (Entrance.GO_ON, ""), id="no-need-to-skip"),
        pytest.param(
            1, 498, OLD, {}, {"stateless": True, "stray": True}, (Entrance.SKIP, ""), id="stray-skips"
        ),
        pytest.param(
            1,
            -1,
            Shared(7, 7, 7, 6),
            {"a": 6},
            {"stateless": True},
            (Entrance.COPY, "a"),
            id="nothing-to-skip-to",
        ),
    ],
)
def test_coming_in(
    number: int,
    own: int,
    shared: Shared | None,
    others: dict[str, int],
    more: dict[str, Any],
    entrance: tuple[Entrance, str],
) -> None:
    assert enter(number, own, shared, others, **more) == entrance


def test_a_place_that_knows_less_than_a_replica_is_refused() -> None:
    with pytest.raises(JobFailedError, match="has done batch 10, and the shared place knows of none after 9"):
        enter(0, 10, YOUNG, {})


def test_who_can_go_on() -> None:
    assert can_go_on(-1, NEW)
    assert can_go_on(-1, YOUNG)
    assert not can_go_on(-1, OLD)
    assert not can_go_on(-1, LATE)
    assert can_go_on(6, LATE)
