"""The worker state model, looked at in all its states."""

from __future__ import annotations

import itertools

import pytest

from penstock.cluster.worker_states import (
    ACTIONS,
    INITIAL,
    LIVE_RUNNING,
    STANDBY_RUNNING,
    STANDBY_WAITING,
    STEADY,
    VOID_RUNNING,
    VOID_WAITING,
    Event,
    P,
    Q,
    State,
    WorkerAction,
    action_in,
    after_action,
    after_death,
    after_event,
)

ALL = [State(p, q) for p, q in itertools.product(P, Q)]


def _reachable() -> set[State]:
    """Every state that any history of events, actions and deaths leads to."""
    found = {INITIAL}
    while True:
        more = set(found)
        for state in found:
            more |= {after_event(state, event) for event in Event}
            more |= {after_action(state, action_in(state, code_changed=changed)) for changed in (True, False)}
            more.add(after_death(state))
        if more == found:
            return found
        found = more


def test_there_are_two_steady_and_four_intermediate_states_and_all_are_reached() -> None:
    assert STEADY == (VOID_WAITING, LIVE_RUNNING)
    assert _reachable() == set(ALL)
    assert len(ALL) - len(STEADY) == 4


@pytest.mark.parametrize("state", ALL, ids=str)
@pytest.mark.parametrize("changed", [True, False])
def test_every_state_reaches_a_steady_one_by_its_actions(state: State, changed: bool) -> None:
    seen = [state]
    while state not in STEADY:
        state = after_action(state, action_in(state, code_changed=changed))
        assert state not in seen, "actions lead in a circle"
        seen.append(state)
    assert len(seen) <= 2


@pytest.mark.parametrize("state", ALL, ids=str)
def test_events_wait_outside_of_steady_states(state: State) -> None:
    for event in Event:
        if state not in STEADY:
            assert after_event(state, event) == state


@pytest.mark.parametrize("state", STEADY, ids=str)
def test_steady_states_stay_until_something_happens(state: State) -> None:
    assert action_in(state) is WorkerAction.KEEP
    assert after_action(state, WorkerAction.KEEP) == state


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([Event.SUBMIT], STANDBY_WAITING),
        ([Event.MIGRATE], STANDBY_WAITING),
        ([Event.KILL], VOID_WAITING),
        ([Event.SUBMIT, None, Event.KILL], VOID_RUNNING),
        ([Event.SUBMIT, None, Event.MIGRATE], VOID_RUNNING),
        ([Event.SUBMIT, None, Event.RESUBMIT], STANDBY_RUNNING),
        ([Event.SUBMIT, None, Event.SUBMIT], LIVE_RUNNING),
        ([Event.SUBMIT, Event.KILL, None], LIVE_RUNNING),
        ([Event.SUBMIT, None, Event.KILL, None], VOID_WAITING),
    ],
)
def test_histories(events: list[Event | None], expected: State) -> None:
    """None stands for the action of the state."""
    state = INITIAL
    for event in events:
        state = after_action(state, action_in(state)) if event is None else after_event(state, event)
    assert state == expected


def test_an_action_that_does_not_belong_to_a_state_is_refused() -> None:
    for state, action in itertools.product(ALL, WorkerAction):
        if (state, action) not in ACTIONS:
            with pytest.raises(KeyError):
                after_action(state, action)
