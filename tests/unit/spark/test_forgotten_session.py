"""What PySpark knows of a session whose Java is gone."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.spark import spark_session


def _gateway() -> Any:
    java = SimpleNamespace(stdin=io.BytesIO(), wait=lambda timeout: 0)
    return SimpleNamespace(shutdown=lambda: None, proc=java)


def test_a_start_in_which_java_has_died_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The context was made, and what comes after it failed: the next start would find half a session."""
    context = SimpleNamespace(_jvm=None)
    for name, value in {"_active_spark_context": context, "_gateway": _gateway(), "_jvm": object()}.items():
        monkeypatch.setattr(SparkContext, name, value)
    for name in ("_instantiatedSession", "_activeSession"):
        monkeypatch.setattr(SparkSession, name, object())
    spark_session._end_java()
    assert SparkContext._active_spark_context is None
    assert (SparkContext._gateway, SparkContext._jvm) == (None, None)
    assert SparkSession._instantiatedSession is None
    assert SparkSession.getActiveSession() is None
