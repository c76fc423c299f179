"""The Penstock halves. Each runs a job over a folder of Arrow files and returns what it measured.

What is the same for all of them:

- ``folder`` holds micro-batches as :mod:`benchmarks.arrow_files` describes them. Each half puts the same
  records into a log (two partitions, one segment for each file, so that batch boundaries are the same)
  before the clock starts, and reads that log one micro-batch at a time.
- The Spark settings are those of :mod:`benchmarks.hand.session`: ``local[2]``, two shuffle partitions.
- ``check=True`` asks for the outcome (:class:`~benchmarks.timing.Outcome`) instead of a time; the sink
  then keeps its records. ``check=False`` asks for the batches; the sink may drop its records.
- A half is called several times in one process, the first time with ``check=True`` over a small folder.
"""

from __future__ import annotations

from benchmarks.timing import Measured


def per_record(folder: str, steps: int, check: bool) -> Measured:
    """Python work on each record.

    With ``steps`` 1: source, one task that calls ``events.one_step`` on the value and keeps the key,
    sink. With 5: five tasks in a row, ``events.parse``, ``is_large`` (drops the record), ``normalise``,
    ``convert`` and ``render``. The outcome is ``outcome_of((key, value) ...)`` over the sink's records.
    """
    raise NotImplementedError


def keyed_count(folder: str, check: bool) -> Measured:
    """Count records by key: source, ``ps.Count()``, sink.

    The outcome is ``last_counts((key, count) ...)`` over the sink's records.
    """
    raise NotImplementedError


def state_growth(folder: str, check: bool) -> Measured:
    """Count records by key in Python state, over a folder of ``events.growth_batches``.

    The batches come in the order of the folder: first those that bring the keys in, then those that
    touch some. The outcome is that of ``keyed_count``.
    """
    raise NotImplementedError


def small_batch(folder: str, keyed: bool, check: bool) -> Measured:
    """Run small batches back to back, in the job of ``per_record`` with one step or in ``keyed_count``."""
    raise NotImplementedError
