"""The loop of a daemon: when it steps, and how long it rests."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from penstock.coord.coordination_store import DisconnectedError
from penstock.daemon.step_loop import LEAST_PAUSE, MOST_PAUSE, pause_after, run_step_loop


class _Clock:
    """Virtual time: it passes while somebody waits, and in steps as a test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.computed = 0.0
        self.wakes: list[float] = []
        """When the daemon is woken."""


class _Event(threading.Event):
    """An event that is waited for in virtual time."""

    def __init__(self, clock: _Clock, wakes: list[float] | None = None) -> None:
        super().__init__()
        self._clock = clock
        self._wakes = wakes if wakes is not None else []
        self.waited: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        clock, end = self._clock, self._clock.now + timeout
        if not self.is_set() and self._wakes and self._wakes[0] <= end:
            clock.now = max(clock.now, self._wakes.pop(0))
            self.set()
        if self.is_set():
            return True
        self.waited.append(round(timeout, 6))
        clock.now = end
        return False


def _run(
    wakes: list[float], steps: int, cost: float = 0.001, fail: type[Exception] | None = None
) -> list[float]:
    """Return when a daemon that is woken at some moments does its steps."""
    clock = _Clock()
    stop, wake = _Event(clock), _Event(clock, wakes)
    at: list[float] = []

    def step(now: float) -> None:
        at.append(round(now, 3))
        clock.now += cost
        clock.computed += cost
        if len(at) == steps:
            stop.set()
        if fail is not None:
            raise fail("told to")

    _keep(step, wake, stop, clock)
    return at


def _keep(step: Callable[[float], None], wake: _Event, stop: _Event, clock: _Clock) -> None:
    run_step_loop(
        step,
        wake=wake,
        stop=stop,
        tick=2.0,
        clock=lambda: clock.now,
        elapsed=lambda: clock.now,
        computed=lambda: clock.computed,
    )


def test_without_a_change_it_steps_with_each_tick() -> None:
    assert _run([], steps=3) == [0.0, 2.001, 4.002]


def test_a_change_after_a_rest_is_handled_at_once() -> None:
    assert _run([1.0, 2.5], steps=3) == [0.0, 1.0, 2.5]


def test_changes_right_after_a_step_wait_for_the_pause_and_are_handled_together() -> None:
    wakes = [0.0, 0.01, 0.02, 0.03]
    assert _run(wakes, steps=2) == [0.0, round(0.001 + LEAST_PAUSE, 3)]


def test_the_pause_grows_with_what_a_step_has_computed() -> None:
    assert _run([0.11, 0.12], steps=2, cost=0.1) == [0.0, 0.6]
    assert pause_after(100.0) == MOST_PAUSE


@pytest.mark.parametrize("fail", [DisconnectedError, ValueError])
def test_no_failure_ends_it(fail: type[Exception]) -> None:
    assert _run([], steps=2, fail=fail) == [0.0, 2.001]


def test_who_waits_for_a_step_need_not_wait_for_the_pause() -> None:
    clock = _Clock()
    stop, wake, hurry = _Event(clock), _Event(clock, [0.002]), _Event(clock, [0.003])
    at: list[float] = []

    def step(now: float) -> None:
        at.append(round(now, 3))
        clock.now += 0.001
        if len(at) == 2:
            stop.set()

    run_step_loop(
        step,
        wake=wake,
        stop=stop,
        tick=2.0,
        clock=lambda: clock.now,
        hurry=hurry,
        elapsed=lambda: clock.now,
        computed=lambda: clock.computed,
    )
    assert at == [0.0, 0.003]
