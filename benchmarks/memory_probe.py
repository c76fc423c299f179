"""Watches the driver's memory from inside the driver, while a half of a benchmark runs."""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psutil
from pyspark import SparkContext

from benchmarks.timing import Measured, MemorySample

SAMPLE_SECONDS = 0.5


def run(target: str, **arguments: Any) -> Measured:
    """Run another half, named ``MODULE:FUNCTION``, and add the driver's memory to what it measured."""
    module, name = target.split(":")
    function: Callable[..., Measured] = getattr(importlib.import_module(module), name)
    samples: list[MemorySample] = []
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(samples, over), daemon=True)
    thread.start()
    try:
        measured = function(**arguments)
    finally:
        over.set()
        thread.join()
    return replace(measured, memory=tuple(samples))


def _watch(samples: list[MemorySample], over: threading.Event) -> None:
    driver = psutil.Process(os.getpid())
    while not over.wait(SAMPLE_SECONDS):
        context = SparkContext._active_spark_context
        jvm = next((child for child in driver.children() if child.name() == "java"), None)
        if context is None or jvm is None:
            continue
        # What waits to be collected is not kept: only what survives a collection counts.
        context._jvm.System.gc()  # type: ignore[union-attr]
        samples.append(MemorySample(time.time(), _mebibytes(driver), _mebibytes(jvm), _live_heap(context)))


def _mebibytes(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 2**20


def _live_heap(context: SparkContext) -> float:
    runtime = context._jvm.Runtime.getRuntime()  # type: ignore[union-attr]
    return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20
