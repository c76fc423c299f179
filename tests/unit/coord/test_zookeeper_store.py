"""News are told in order, and one listener that fails takes nothing from the others."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from penstock.coord.zookeeper_store import Notifier


def test_calls_are_made_in_order_elsewhere() -> None:
    notifier = Notifier("test")
    made: list[tuple[int, bool]] = []
    caller = threading.get_ident()
    for number in range(100):
        notifier.post(lambda number=number: made.append((number, threading.get_ident() == caller)))  # type: ignore[misc]
    notifier.close(10)
    assert made == [(number, False) for number in range(100)]


def test_one_that_raises_is_logged_and_the_rest_is_called(caplog: pytest.LogCaptureFixture) -> None:
    notifier = Notifier("test")
    done = threading.Event()

    def fail() -> None:
        raise ValueError("of the listener")

    with caplog.at_level(logging.ERROR):
        notifier.post(fail)
        notifier.post(done.set)
        notifier.close(10)
    assert done.is_set()
    assert "of the listener" in caplog.text


def test_who_posts_does_not_wait_for_one_that_blocks() -> None:
    notifier = Notifier("test")
    release = threading.Event()

    def block() -> None:
        release.wait(30)

    notifier.post(block)
    began = time.monotonic()
    notifier.post(lambda: None)
    notifier.close(0.05)
    assert time.monotonic() - began < 5
    release.set()
    notifier.close(10)
