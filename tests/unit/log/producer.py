"""A producer process for the tests: PATH NAME BATCHES [PARTITION].

Appends batch after batch of known records and says each one's number when it is in the log.
"""

from __future__ import annotations

import os
import sys

from penstock.log import Log
from penstock.record import Record


def size_of(batch: int) -> int:
    """Mostly small, now and then large enough that its writing takes a while."""
    return 1_000 if batch % 7 == 6 else batch % 5 + 1


def records_of(name: str, batch: int) -> list[Record]:
    return [Record(name, [batch, index]) for index in range(size_of(batch))]


def main(path: str, name: str, batches: int, partition: int | None) -> None:
    log = Log.open(path)
    for batch in range(batches):
        log.append(records_of(name, batch), partition)
        os.write(1, f"{batch}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else None)
