"""The error policy: how a job handles a record for which user code raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.errors import SettingError, choices, shown
from penstock.setting_values import read_duration

ACTIONS = ("fail", "discard", "retry")


@dataclass(frozen=True)
class Retry:
    """Repeat the call, with doubled delay each time, before the ``then`` action is taken.

    >>> Retry(5, delay="50ms", then="discard")
    Retry(times=5, delay='50ms', then='discard')
    """

    times: int = 3
    delay: str | float = 0.1
    """The delay before the first repetition: seconds, or a duration such as "50ms"."""
    then: str = "fail"
    """The last resort: "fail" ends the job, "discard" puts the record into ``errors``."""


@dataclass(frozen=True)
class ErrorPolicy:
    """The parsed setting: the number of repetitions, and whether to continue without the record."""

    discard: bool = False
    retries: int = 0
    delay: float = 0.0

    @property
    def goes_on(self) -> bool:
        """Whether the job can continue after an error, so that effects of the failed call must be undone."""
        return self.discard or self.retries > 0


def read_on_error(given: Any) -> ErrorPolicy:
    """Parse a validated setting.

    >>> read_on_error("retry")
    ErrorPolicy(discard=False, retries=3, delay=0.1)
    """
    if given == "retry":
        given = Retry()
    if isinstance(given, Retry):
        delay = read_duration(given.delay) if isinstance(given.delay, str) else float(given.delay)
        return ErrorPolicy(given.then == "discard", given.times, delay)
    return ErrorPolicy(discard=given == "discard")


def on_error_fault(given: Any) -> str | None:
    """Return what is wrong with a setting; None if it is valid.

    >>> on_error_fault("explode")
    "on_error must be one of 'fail', 'discard', 'retry' or a ps.Retry, not 'explode'"
    """
    if isinstance(given, str) and given in ACTIONS:
        return None
    if not isinstance(given, Retry):
        return f"on_error must be one of {choices(ACTIONS)} or a ps.Retry, not {shown(given)}"
    if not isinstance(given.times, int) or isinstance(given.times, bool) or not 0 <= given.times <= 100:
        return f"Retry: times must be a whole number from 0 to 100, not {shown(given.times)}"
    if given.then not in ("fail", "discard"):
        return f"Retry: then must be 'fail' or 'discard', not {shown(given.then)}"
    try:
        delay: Any = read_duration(given.delay) if isinstance(given.delay, str) else given.delay
    except SettingError as error:
        return f"Retry: delay: {error}"
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay <= 60:
        return f"Retry: delay must be from 0 to 60 seconds, not {shown(given.delay)}"
    return None
