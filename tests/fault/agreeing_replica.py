"""A replica without Spark: agrees, keeps a ledger, and puts files out. Started many times, and killed.

A batch reads a number that its planner has drawn, and its output is that number and a checksum of all numbers
so far, which is also the state. Whoever publishes an output names the file by the attempt that made it, so
that a second output of a batch would be a second file.
"""

from __future__ import annotations

import os
import random
import sys
import time
import zlib
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from penstock.engine.agreement.core import Entrance, Move, after_batch, before_batch, enter
from penstock.engine.agreement.folder import Agreement, Charter, Commit, Plan, Standing
from penstock.engine.ledger import Entry, Ledger
from penstock.errors import OutdatedError

FORGET_EVERY = 8
KEPT = 6
FAR = 5
PAUSE = 0.001


def state_after(state: int, number: int) -> int:
    """Return the checksum of all numbers up to one.

    >>> state_after(0, 1) == state_after(0, 2)
    False
    """
    return zlib.crc32(str(number).encode(), state)


class Replica:
    """One replica, in a folder of its own beside those of the others."""

    def __init__(self, home: Path, number: int, batches: int) -> None:
        self.home, self.number, self.batches = home, number, batches
        self.name = f"replica~{number}"
        self.agreement = Agreement(home / "agreed" / "0")
        self.folder = home / self.name
        self.folder.mkdir(exist_ok=True)
        self.ledger = Ledger(self.folder)

    def run(self) -> None:
        """Come in and go on until all batches are out, beginning again whenever the others are too far."""
        while True:
            entrance, whom = self.come_in()
            if entrance is Entrance.FOUND:
                self.agreement.found(Charter(0, {}))
            elif entrance is Entrance.COPY:
                self.copy(whom)
            elif entrance is Entrance.WAIT:
                time.sleep(PAUSE)
            else:
                try:
                    self.go_on()
                except OutdatedError:
                    continue
                return

    def come_in(self) -> tuple[Entrance, str]:
        """Decide how to come in."""
        others = {
            path.name: Ledger(path).latest_batch()
            for path in self.home.glob("replica~*")
            if path.name != self.name
        }
        own = self.ledger.latest_batch()
        return enter(self.number, own, self.agreement.shared(), others, new=True, far=FAR)

    def copy(self, whom: str) -> None:
        """Take over the newest entry of another replica."""
        newest = Ledger(self.home / whom).latest()
        if newest is None or newest.batch <= self.ledger.latest_batch():
            return
        self.ledger.commit(newest)

    def go_on(self) -> None:
        """Run batch after batch."""
        last = self.ledger.latest()
        if last is not None:
            self.publish(last)
        while last is None or last.batch + 1 < self.batches:
            last = self.one_batch(last)
            self.ledger.trim(3)
            self.agreement.stand(Standing(self.name, last.batch, time.time()))
            if (last.batch + 1) % FORGET_EVERY == 0:
                self.agreement.forget(last.batch + 1 - KEPT)

    def one_batch(self, before: Entry | None) -> Entry:
        """Plan or follow, run, commit or accept, publish."""
        batch = before.batch + 1 if before is not None else 0
        state = before.end["state"] if before is not None else 0
        move = before_batch(batch, self.agreement.see(batch), work=True)
        if move is Move.REBUILD:
            raise OutdatedError("to be copied")
        mine = Plan(batch, {"number": random.randrange(10**9)}, self.name, time.time())
        plan = self.agreement.propose(mine) if move is Move.PROPOSE else self.agreement.plan(batch)
        assert plan is not None, "seen before"
        number = plan.end["number"]
        end = {"number": number, "state": state_after(state, number)}
        attempt = uuid4().hex
        staged = self.home / "staged" / attempt
        staged.write_text(f"{number} {end['state']}")
        move = after_batch(batch, self.agreement.see(batch))
        if move is Move.REBUILD:
            raise OutdatedError("to be copied")
        if move is Move.COMMIT:
            commit = self.agreement.commit(Commit(batch, attempt, self.name, 1, end))
        else:
            commit = self.agreement.committed(batch)  # type: ignore[assignment]
        assert commit.end == end, f"{self.name} differs in batch {batch}: {commit.end} is not {end}"
        if commit.id != attempt:
            staged.unlink()
        entry = Entry(batch, end, {"sink": [commit.id]})
        self.ledger.commit(entry)
        self.publish(entry)
        return entry

    def publish(self, entry: Entry) -> None:
        """Put the output that counts where it belongs, if it is not there."""
        if not self.agreement.is_out(entry.batch):
            (attempt,) = entry.receipts["sink"]
            target = self.home / "sink" / f"{entry.batch:06d}.{attempt}"
            with suppress(FileExistsError):
                os.link(self.home / "staged" / attempt, target)
            self.agreement.mark_out(entry.batch)


if __name__ == "__main__":
    Replica(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])).run()
