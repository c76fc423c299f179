"""On what the jobs of a test run: without Spark in ``make test``, on Spark as well in ``make test-full``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

LOCAL, SPARK = "local", "spark"

ALSO_ON_SPARK = [pytest.mark.full, pytest.mark.also_on_spark]
"""Of the form on Spark of a test that runs without it in ``make test``."""
EITHER = [LOCAL, pytest.param(SPARK, marks=ALSO_ON_SPARK)]
"""Parameters of a fixture whose tests hold on both; another test shows the same kind of fault on Spark."""


def each_on(
    rows: Mapping[str, Any] | Iterable[tuple[str, Any]],
    *,
    on_spark: Collection[str],
    only_on_spark: Collection[str] = (),
) -> list[ParameterSet]:
    """Return each named row of a table with an engine: all without Spark, and some of them on Spark as well.

    The others run on Spark in ``make test-full``.
    """
    listed = list(rows.items() if isinstance(rows, Mapping) else rows)
    names = [name for name, _ in listed]
    assert len(set(names)) == len(names), "names tell rows apart"
    assert {*on_spark, *only_on_spark} <= set(names)
    made = []
    for name, row in listed:
        if name not in only_on_spark:
            made.append(pytest.param(row, LOCAL, id=f"{name}-{LOCAL}"))
        at_once = name in on_spark or name in only_on_spark
        made.append(pytest.param(row, SPARK, id=f"{name}-{SPARK}", marks=[] if at_once else ALSO_ON_SPARK))
    return made
