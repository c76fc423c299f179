"""On what the jobs of a test run: without Spark in ``make test``, on Spark as well in ``make test-full``."""

from __future__ import annotations

import pytest

LOCAL, SPARK = "local", "spark"

EITHER = [LOCAL, pytest.param(SPARK, marks=pytest.mark.full)]
"""Parameters of a fixture whose tests hold on both; another test shows the same kind of fault on Spark."""
