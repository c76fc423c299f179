"""Quality of service: what is good, and that making a bad one raises nothing."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.graph.qos import QoS, qos_faults, read_qos


@pytest.mark.parametrize(
    "good",
    [
        None,
        QoS(),
        QoS(0, 0.001, 1),
        QoS(10, 60, 0.5),
        {},
        {"priority": 3, "max_latency": None, "max_loss": 0.1},
    ],
)
def test_good(good: Any) -> None:
    assert qos_faults(good) == []


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (QoS(priority=11), "priority"),
        (QoS(priority=-1), "priority"),
        (QoS(priority=True), "priority"),
        (QoS(priority=1.0), "priority"),  # type: ignore[arg-type]
        (QoS(max_latency=0), "max_latency"),
        (QoS(max_latency=float("nan")), "max_latency"),
        (QoS(max_latency=float("inf")), "max_latency"),
        (QoS(max_latency="1s"), "max_latency"),  # type: ignore[arg-type]
        (QoS(max_loss=1.1), "max_loss"),
        (QoS(max_loss=-0.1), "max_loss"),
        (QoS(max_loss=None), "max_loss"),  # type: ignore[arg-type]
        ({"speed": 1}, "unknown field 'speed'"),
        ({3: 1}, "unknown field 3"),
        (5, "must be a QoS"),
        ("high", "must be a QoS"),
    ],
)
def test_bad(bad: Any, words: str) -> None:
    faults = qos_faults(bad)
    assert len(faults) == 1
    assert words in faults[0]
    assert read_qos(bad) is bad


def test_all_faults_come_together() -> None:
    assert len(qos_faults({"priority": 99, "max_latency": -1, "max_loss": 2, "b": 1, "a": 1})) == 5


def test_the_dict_form_becomes_a_qos() -> None:
    assert read_qos({"priority": 7, "max_loss": 0.25}) == QoS(7, None, 0.25)
