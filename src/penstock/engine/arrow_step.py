"""How a vertex with a function of Arrow batches works on columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.columns import Columns, batches_of
from penstock.graph.kinds import ArrowTask

ArrowStep = Callable[[Columns], list[Columns]]


def arrow_step(task: ArrowTask) -> ArrowStep:
    """Return how an Arrow task turns columns into columns."""
    function: Callable[[Any], Any] = task.function
    return lambda given: [given.answer(batch) for batch in batches_of(function(given.to_batch()))]
