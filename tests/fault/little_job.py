"""A job without Spark that commits as the real one does: positions, keyed state, records under way, segments.

It takes numbers from one log and writes each to another one, and adds them up by key; every third batch hands
some of them on to the next. So what a home must contain can be computed from its ledger.
"""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from penstock.engine.ledger import Entry, Ledger
from penstock.engine.packing import pack, unpack
from penstock.engine.sealed import read_sealed, write_sealed
from penstock.engine.state import BucketState, forget, read_bucket, remove_before
from penstock.engine.takeover import Claim, take_over
from penstock.log import Log, StagedSegment, log_folder
from penstock.record import Record

JOB = "little"
READER = "little.in"


class LittleJob:
    """The job in one home. ``step`` runs one batch."""

    def __init__(self, home: Path, revision: int = 1) -> None:
        self.home = home
        self.folder = take_over(home / "cluster-jobs" / JOB, Claim(revision, 1))
        for name in ("state", "feedback"):
            (self.folder / name).mkdir(exist_ok=True)
        self.input = Log.open(log_folder("in", home), upkeep=False)
        self.output = Log.create(log_folder("out", home), partitions=2, exist_ok=True, upkeep=False)
        self.ledger = Ledger(self.folder / "ledger")
        self.last = self.ledger.latest()
        forget(self.folder / "state")
        if self.last is not None:
            self._publish(self.last)

    def step(self, most: int = 50) -> bool:
        """Run a batch; False when there is nothing to do."""
        before = self.last
        batch = before.batch + 1 if before else 0
        start = before.end["sources"]["in"] if before else 0
        end = min(self.input.end(0), start + most)
        waiting = [number for name in before.feedback for number in self._waiting(name)] if before else []
        if end == start and not waiting:
            return False
        read = [r.value for chunk in self.input.read(0, start, end) for r in chunk] if end > start else []
        held = read[::5] if batch % 3 == 0 else []
        numbers = waiting + [number for number in read if number not in held]
        entry = Entry(
            batch,
            {"batch": batch + 1, "sources": {"in": end}},
            self._stage(batch, numbers),
            [self._hand_on(batch, held)] if held else [],
            dict(before.state) if before else {},
        )
        head = entry.state.get(0)
        bucket = BucketState(self.folder / "state", 0, head)
        sums = bucket.states.setdefault("sum", {})
        for number in numbers:
            sums[number % 7] = sums.get(number % 7, 0) + number
        bucket.changed("sum", sorted({number % 7 for number in numbers}))
        new = bucket.save(batch, uuid4().hex)
        if new is not None:
            entry.state[0] = new
        (self.folder / "state" / "00000" / f"{batch:012d}-failed.delta").write_text(f"failed {batch}")
        assert self.ledger.commit(entry)
        self._publish(entry)
        self._tidy(before, entry)
        self.input.note_reader(READER, {0: end})
        self.last = entry
        return True

    def _stage(self, batch: int, numbers: list[int]) -> dict[str, list[object]]:
        since = self.output.ends()
        parts: list[list[Record]] = [[], []]
        for number in numbers:
            parts[number % 2].append(Record(number, batch))
        staged = [self.output.stage(place, part) for place, part in enumerate(parts) if part]
        return {"out": [{"segments": [one.to_json() for one in staged], "since": since}]} if staged else {}

    def _publish(self, entry: Entry) -> None:
        for receipt in entry.receipts.get("out", ()):
            self.output.publish([StagedSegment.from_json(s) for s in receipt["segments"]], receipt["since"])

    def _hand_on(self, batch: int, numbers: list[int]) -> str:
        name = f"{batch:012d}-{uuid4().hex}"
        write_sealed(self.folder / "feedback" / name, pack((numbers,)))
        return name

    def _waiting(self, name: str) -> list[int]:
        (found,) = unpack(read_sealed(self.folder / "feedback" / name))
        return list(found)

    def _tidy(self, before: Entry | None, entry: Entry) -> None:
        if before is None:
            return
        for name in before.feedback:
            (self.folder / "feedback" / name).unlink()
        if 0 in before.state and before.state[0].base_batch != entry.state[0].base_batch:
            remove_before(self.folder / "state", 0, entry.state[0].base_batch)
        if entry.batch % 5 == 0:
            self.ledger.trim(5)

    def check(self) -> None:
        """See that outputs and state are those of the batches that have happened, each of them once."""
        if self.last is None:
            assert self.output.ends() == [0, 0]
            return
        reached = self.last.end["sources"]["in"]
        waiting = sorted(number for name in self.last.feedback for number in self._waiting(name))
        written = sorted(
            record.key
            for place in range(2)
            for chunk in self.output.read(place, self.output.begin(place))
            for record in chunk
        )
        # The input counts up from 0, so that a position is its number.
        assert sorted([*written, *waiting]) == list(range(reached))
        states = read_bucket(self.folder / "state", 0, self.last.state[0]) if self.last.state else {}
        sums: dict[int, int] = {}
        for number in written:
            sums[number % 7] = sums.get(number % 7, 0) + number
        assert states.get("sum", {}) == sums
