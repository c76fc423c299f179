"""How much of what user code prints is kept, by the environment of a supervisor."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import SettingError
from penstock.log.retention import read_size
from penstock.user_output import OutputLimits

RATE = "PENSTOCK_OUTPUT_RATE"
SIZE = "PENSTOCK_OUTPUT_SIZE"
_SMALLEST = 1_000_000


def read_output_limits(environment: Mapping[str, str]) -> OutputLimits:
    """Read the limits; raises SettingError.

    >>> read_output_limits({"PENSTOCK_OUTPUT_RATE": "200", "PENSTOCK_OUTPUT_SIZE": "100MB"})
    OutputLimits(rate=200, size=100000000)
    """
    default = OutputLimits()
    rate = environment.get(RATE, "") or str(default.rate)
    if not (rate.isascii() and rate.isdigit() and int(rate)):
        raise SettingError(f"{RATE} is {rate!r}: give a number of lines a second, such as 1000")
    size = default.size
    if environment.get(SIZE):
        try:
            size = read_size(environment[SIZE])
        except SettingError as error:
            raise SettingError(f"{SIZE}: {error}") from error
        if size < _SMALLEST:
            raise SettingError(f"{SIZE} is {environment[SIZE]!r}: give at least 1MB")
    return OutputLimits(int(rate), size)
