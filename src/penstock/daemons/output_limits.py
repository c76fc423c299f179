"""How much of what user code prints is kept, by the environment of a supervisor."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import SettingError
from penstock.log.retention import read_size
from penstock.user_output import OutputLimits

OUTPUT_RATE_VARIABLE = "PENSTOCK_OUTPUT_RATE"
OUTPUT_SIZE_VARIABLE = "PENSTOCK_OUTPUT_SIZE"
_SMALLEST_OUTPUT = 1_000_000


def read_output_limits(environment: Mapping[str, str]) -> OutputLimits:
    """Read the limits; raises SettingError.

    >>> read_output_limits({"PENSTOCK_OUTPUT_RATE": "200", "PENSTOCK_OUTPUT_SIZE": "100MB"})
    OutputLimits(rate=200, size=100000000)
    """
    default = OutputLimits()
    rate = environment.get(OUTPUT_RATE_VARIABLE, "") or str(default.rate)
    if not (rate.isascii() and rate.isdigit() and int(rate)):
        raise SettingError(
            f"{OUTPUT_RATE_VARIABLE} is {rate!r}: give a number of lines a second, such as 1000"
        )
    size = default.size
    if environment.get(OUTPUT_SIZE_VARIABLE):
        try:
            size = read_size(environment[OUTPUT_SIZE_VARIABLE])
        except SettingError as error:
            raise SettingError(f"{OUTPUT_SIZE_VARIABLE}: {error}") from error
        if size < _SMALLEST_OUTPUT:
            raise SettingError(
                f"{OUTPUT_SIZE_VARIABLE} is {environment[OUTPUT_SIZE_VARIABLE]!r}: give at least 1MB"
            )
    return OutputLimits(int(rate), size)
