"""Python work on each record, written by hand with ``mapInArrow``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from benchmarks.arrow_files import SCHEMA
from benchmarks.events import LEAST_CENTS, RATES
from benchmarks.hand.arrow_source import read_stream
from benchmarks.hand.query import drain
from benchmarks.hand.session import open_session
from benchmarks.timing import Measured


def one_step(batches: Iterator[Any]) -> Iterator[Any]:
    """Parse an event, drop the small ones, write the action in capitals."""
    for batch in batches:
        keys, values = [], []
        for key, line in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            fields = line.split(",", 5)
            if int(fields[3]) < LEAST_CENTS:
                continue
            fields[1] = fields[1].upper()
            keys.append(key)
            values.append(",".join(fields))
        yield pa.record_batch([pa.array(keys, pa.string()), pa.array(values, pa.string())], schema=SCHEMA)


def five_steps(batches: Iterator[Any]) -> Iterator[Any]:
    """Parse, filter, normalise, convert and render in one loop, with nothing between the steps."""
    for batch in batches:
        keys, values = [], []
        for key, line in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            user, action, country, cents, time, note = line.split(",", 5)
            amount, moment = int(cents), int(time)
            if amount < LEAST_CENTS:
                continue
            action, country = action.upper(), country.upper()
            amount = amount * RATES[country.lower()] // 100
            keys.append(key)
            values.append(f"{user}|{action}|{country}|{amount}|{moment}|{note}")
        yield pa.record_batch([pa.array(keys, pa.string()), pa.array(values, pa.string())], schema=SCHEMA)


def run(folder: str, steps: int, check: bool, store: bool = True) -> Measured:
    """Run the job with one step or five over a folder; store the results or drop them."""
    session = open_session()
    function = one_step if steps == 1 else five_steps
    frame = read_stream(session, folder).mapInArrow(function, "key string, value string")
    return drain(frame, check=check, store=store)
