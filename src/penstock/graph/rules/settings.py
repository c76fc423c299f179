"""bad-mode, bad-guarantee, bad-k and the like, bad-on-error, bad-spark, and what is not supported yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.durations import read_duration
from penstock.errors import Problem, SettingError
from penstock.graph.on_error import on_error_fault
from penstock.graph.replication import REPLICATION_CHOICES, is_valid_k, replication_of
from penstock.graph.wording import choices, shown

if TYPE_CHECKING:
    from penstock.graph.job import Job

_CHOICES = {
    "mode": (("throughput",), ("latency",)),
    "guarantee": (("exactly-once", "at-least-once", "at-most-once"), ()),
    "durability": (("none", "batch"), ()),
    **{setting: (known, ()) for setting, known in REPLICATION_CHOICES.items()},
}
"""For each setting of a job the values it may have, and those that are known but not supported yet."""


def settings(job: Job) -> Iterator[Problem]:
    """The settings of a job must be known and supported."""
    for setting, (supported, planned) in _CHOICES.items():
        yield from _choice(setting, getattr(job, setting), supported, planned)
    fault = on_error_fault(job.on_error)
    if fault:
        yield Problem("bad-on-error", fault)
    if not is_valid_k(job.k):
        yield Problem("bad-k", f"k must be a whole number from 0 on, not {shown(job.k)}")
    else:
        yield from _replicas(job)
    yield from _interval(job.interval)
    yield from _spark(job.spark)


def _replicas(job: Job) -> Iterator[Problem]:
    """Replicas agree on what each batch has given, once: that is more than the weaker guarantees promise."""
    said = replication_of(job)
    weaker = isinstance(job.guarantee, str) and job.guarantee in ("at-least-once", "at-most-once")
    if said.has_replicas and weaker:
        yield Problem("bad-k", f"replicas are exactly-once: leave out guarantee={shown(job.guarantee)}")
    contradiction = said.contradiction()
    if contradiction is not None:
        setting, reason = contradiction
        yield Problem(f"bad-{setting}", reason)


def _interval(given: Any) -> Iterator[Problem]:
    try:
        sound = given is None or (isinstance(given, str) and read_duration(given) > 0)
    except SettingError:
        sound = False
    if not sound:
        yield Problem(
            "bad-interval", f'interval must be a duration above 0 such as "500ms", not {shown(given)}'
        )


def _choice(
    setting: str, given: Any, supported: tuple[str, ...], planned: tuple[str, ...]
) -> Iterator[Problem]:
    if isinstance(given, str) and given in supported:
        return
    if isinstance(given, str) and given in planned:
        yield Problem(
            "unsupported", f"{setting}={shown(given)} is not supported yet: use {choices(supported)}"
        )
    else:
        code = f"bad-{setting.replace('_', '-')}"
        yield Problem(code, f"{setting} must be one of {choices(supported)}, not {shown(given)}")


def _spark(given: Any) -> Iterator[Problem]:
    if not isinstance(given, dict):
        yield Problem("bad-spark", f"spark must be a dict of settings, not {shown(given)}")
        return
    for name, value in given.items():
        if not isinstance(name, str):
            yield Problem("bad-spark", f"the name of a Spark setting must be a string, not {shown(name)}")
        elif not isinstance(value, str | int | float):
            wanted = "a string, a number or a bool"
            yield Problem("bad-spark", f"Spark setting {shown(name)} must be {wanted}, not {shown(value)}")
