"""A process for the tests, made to be killed: append|commit|compact PATH NAME.

``append`` appends batch after batch. ``commit`` stages each batch, writes its decision down and publishes it,
and goes on after a crash from the last decision. Both say each batch's number when it is in the log.
``compact`` merges segments for ever.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from penstock.errors import LogError
from penstock.log import Log, StagedSegment
from penstock.record import Record


def records_of(name: str, batch: int, partition: int) -> list[Record]:
    return [Record(name, [batch, partition, index]) for index in range(batch % 4 + 1)]


def say(batch: int) -> None:
    os.write(1, f"{batch}\n".encode())


def append(log: Log, name: str) -> None:
    batch = 0
    while True:
        log.append(records_of(name, batch, 0), 0)
        say(batch)
        batch += 1


def commit(log: Log, name: str) -> None:
    decision = log.path.parent / f"{name}.json"
    batch = 0
    if decision.exists():
        batch = publish(log, decision) + 1
    while True:
        staged = [log.stage(number, records_of(name, batch, number)) for number in range(log.partitions)]
        content = {"batch": batch, "staged": [one.to_json() for one in staged], "since": log.ends()}
        draft = decision.with_suffix(".draft")
        draft.write_text(json.dumps(content))
        draft.replace(decision)
        publish(log, decision)
        say(batch)
        batch += 1


def publish(log: Log, decision: Path) -> int:
    found = json.loads(decision.read_text())
    log.publish([StagedSegment.from_json(one) for one in found["staged"]], found["since"])
    return int(found["batch"])


def compact(log: Log) -> None:
    while True:
        try:
            log.compact()
        except LogError as error:
            # Upkeep gives way to one that holds the gate, however busy its machine or its disk is.
            if "another process has held" not in str(error):
                raise


if __name__ == "__main__":
    role, path, own_name = sys.argv[1:]
    opened = Log.open(path)
    if role == "compact":
        compact(opened)
    elif role == "commit":
        commit(opened, own_name)
    else:
        append(opened, own_name)
