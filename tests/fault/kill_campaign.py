"""Workers of one job, killed again and again while its input grows, and what is found afterwards."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from doomed_worker import (
    AGREED,
    CHANGING_BUCKETS,
    COMING_IN,
    COPYING,
    PHASES,
    SETTLING,
    STARTING,
    TAKING_OVER,
    Doom,
    read_phase,
    start_request,
)
from kill_expectation import ROUNDS, Expectation
from killing import read
from unpacked_code import unpack_code

from penstock.cluster.assignment_documents import ReplicaAssignment
from penstock.daemon.worker_folder import LOG_FILE, OUTPUT_FILE, WorkerConfig
from penstock.engine.storage.job_folder import current_claim
from penstock.engine.storage.ledger import Ledger
from penstock.keyring import open_keyring
from penstock.log import Log, log_folder
from penstock.record import Record
from penstock.replicas.agreement.replica_catch_up import last_batch
from penstock.replicas.replica_id import ReplicaId
from support.settings import make_assignment
from support.waiting import eventually
from support.worker_files import write_worker_config

HERE = Path(__file__).parent
JOB = "killed"
KEYS, ENDLESS, BATCH = 7, 31, 12
FED = 30
"""How many numbers are added to the input for each worker that is started."""
SHORT, LONGEST = 0.5, 4.0
"""Seconds after which a worker is killed: at the latest if that is left to chance; if it has not come to the
phase in which it is to kill itself."""
ONCE = (STARTING, TAKING_OVER, COMING_IN, COPYING, SETTLING, CHANGING_BUCKETS)
"""The phases to which a worker comes once."""
OF_REPLICAS = {COMING_IN, COPYING, AGREED}
"""The phases that only workers have which are replicas."""


class ForkServer:
    """A process that has imported everything, and forks workers."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "doomed_worker.py")],
            env={**os.environ, "PENSTOCK_HOME": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stdin.close()
        self._process.wait()
        self._stdout.close()

    @property
    def _stdin(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _stdout(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _ask(self, request: str) -> int | None:
        self._stdin.write(f"{request}\n")
        self._stdin.flush()
        answer = self._stdout.readline()
        assert answer, "the server of the workers has died"
        found: int | None = json.loads(answer)
        return found

    def start(self, folder: Path, environment: dict[str, str], doom: Doom) -> int:
        """Start a worker, and return its process id."""
        pid = self._ask(start_request(folder, environment, doom))
        assert pid is not None
        return pid

    def poll(self, pid: int) -> int | None:
        """Return how a worker has ended, None while it runs."""
        return self._ask(json.dumps({"pid": pid, "kill": False}))

    def kill(self, pid: int) -> int | None:
        """Kill a worker, and return how it has ended."""
        return self._ask(json.dumps({"pid": pid, "kill": True}))


@dataclass
class Member:
    """One replica of the job, or the only worker of a job without replicas."""

    number: int
    attempt: int = 0
    pid: int = 0
    """0 while it does not run."""
    due: float = 0.0
    """When it is killed, by the monotonic clock."""


@dataclass
class Campaign:
    """One job, its workers and the kills so far."""

    server: ForkServer
    folder: Path
    dice: random.Random
    guarantee: str = "exactly-once"
    k: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    """By the phase that they came in."""
    lost_folders: int = 0
    """How often a replica came back to nothing, and had to copy another."""
    fed: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    """By batch, up to where it has read."""
    given_up: set[int] = field(default_factory=set)
    """The batches that were begun and never ended."""

    def __post_init__(self) -> None:
        self.storage = self.folder / "storage"
        self.storage.mkdir(parents=True)
        self.keys = self.folder / "keys"
        open_keyring(self.keys, create=True)
        self.bundle = self.folder / "bundle"
        unpack_code(self.bundle, "kill_job.py")
        # At most once it is asked which numbers a batch has read: in one partition they are in order.
        partitions = 1 if self.guarantee == "at-most-once" else 2
        self._input = Log.create(log_folder("input", self.storage), partitions=partitions)
        self.members = [Member(number) for number in range(self.k + 1)]
        self._feed()

    def _feed(self) -> None:
        self._input.append([Record(None, number) for number in range(self.fed, self.fed + FED)])
        self.fed += FED
        self._fed_at = time.monotonic()

    def _instance(self, member: Member) -> Path:
        return self.folder / "instances" / f"{member.number}-{member.attempt}"

    def _base(self, member: Member) -> Path:
        return self.storage / "cluster-jobs" / str(ReplicaId(JOB, member.number))

    def start(self, member: Member, doom: Doom, *, buckets: int = 2, until: str | None = None) -> None:
        """Start a worker."""
        member.attempt += 1
        folder = self._instance(member)
        folder.mkdir(mode=0o700, parents=True)
        name = str(ReplicaId(JOB, member.number))
        replica = ReplicaAssignment(member.number) if self.k else None
        assignment = make_assignment(
            name, 1, 1, 1, "", "kill_job.py", "n1", 2, 1 << 30, until=until, membership=replica
        )
        instance = WorkerConfig(
            name,
            "n1",
            "127.0.0.1",
            1,
            member.attempt,
            "",
            "/",
            str(self.keys),
            str(self.storage),
            str(self.bundle),
            assignment,
        )
        write_worker_config(folder, instance)
        settings = {
            "KILL_GUARANTEE": self.guarantee,
            "KILL_BATCH": str(BATCH),
            "KILL_KEYS": str(KEYS),
            "KILL_ENDLESS": str(ENDLESS),
            "KILL_BUCKETS": str(buckets),
        }
        member.pid = self.server.start(folder, settings, doom)

    def _start_doomed(self, member: Member) -> None:
        """Start a worker that dies: in a phase, at a change of a file, or whenever its time has come."""
        self._feed()
        doom, buckets, seconds = Doom(), 2, LONGEST
        kind = self.dice.choice(["phase", "change", "time"])
        if kind == "phase":
            # The phase in which the fewest have died: none is left out.
            phase = min(sorted(self.phases), key=lambda phase: (self.kills[phase], self.dice.random()))
            buckets = 3 if phase == CHANGING_BUCKETS else 2
            doom = Doom(phase=phase, entrance=1 if phase in ONCE else self.dice.randint(1, 4))
        elif kind == "change":
            doom = Doom(change=self.dice.randint(1, 200), after=self.dice.random() < 0.5)
        else:
            seconds = self.dice.uniform(0.0, SHORT)
        self.start(member, doom, buckets=buckets)
        member.due = time.monotonic() + seconds

    def step(self) -> None:
        """Start who does not run, kill whose time has come, count who has died."""
        now = time.monotonic()
        if now - self._fed_at > SHORT:
            self._feed()  # Whoever shall die in a certain phase must come to it.
        for member in self.members:
            if not member.pid:
                self._start_doomed(member)
            elif now >= member.due:
                alone = self.dice.random() < 0.7
                for victim in [member] if alone else self.members:
                    if victim.pid:
                        self._count(victim, self.server.kill(victim.pid))
            elif (code := self.server.poll(member.pid)) is not None:
                self._count(member, code)

    @property
    def phases(self) -> set[str]:
        """The phases in which a worker of this job can die."""
        return set(PHASES) - (set() if self.k else OF_REPLICAS)

    @property
    def spared(self) -> list[str]:
        """The phases in which none has died yet."""
        return sorted(self.phases - set(self.kills))

    def _count(self, member: Member, code: int | None) -> None:
        assert code == -signal.SIGKILL, f"a worker ended by itself with {code}: {self._said(member)}"
        member.pid = 0
        self.kills[read_phase(self._instance(member))] += 1
        if self.guarantee == "at-most-once":
            self._look_at_ledger(member)
        elif self.k and self.dice.random() < 0.1:
            self._lose(member)
        shutil.rmtree(self._instance(member))

    def _lose(self, member: Member) -> None:
        """Remove all that a replica has, if another has something."""
        others = [self._base(one) for one in self.members if one is not member]
        if self._base(member).exists() and max(map(last_batch, others)) >= 0:
            shutil.rmtree(self._base(member))
            self.lost_folders += 1

    def _look_at_ledger(self, member: Member) -> None:
        """Note what the batches have read, and which one will be given up if one will be."""
        holder = current_claim(self._base(member))
        if holder is None:
            return
        ledger = Ledger(self._base(member) / holder.name / "ledger")
        last = ledger.latest_batch()
        for batch in range(max(0, last - ROUNDS - 1), last + 1):
            entry = ledger.read(batch)
            assert entry is not None, batch
            self.ends[batch] = _read_up_to(entry.end)
        intent = ledger.intent()
        if intent is not None and intent.batch == last + 1:
            self.given_up.add(intent.batch)
            self.ends[intent.batch] = _read_up_to(intent.end)

    def _said(self, member: Member) -> str:
        texts = [self._instance(member) / name for name in (LOG_FILE, OUTPUT_FILE)]
        return "\n".join(path.read_text()[-4000:] for path in texts if path.exists())

    def finish(self) -> None:
        """Let the job come to its end."""
        for member in self.members:
            if member.pid:
                self._count(member, self.server.kill(member.pid))
        for member in self.members:
            self.start(member, Doom(), until="drained")
        for member in self.members:
            eventually("the end of a worker", lambda member=member: self._has_ended(member))  # type: ignore[misc]

    def _has_ended(self, member: Member) -> bool:
        code = self.server.poll(member.pid)
        assert code in (None, 0), self._said(member)
        if code is not None:
            member.pid = 0
        return code is not None

    @property
    def expected(self) -> Expectation:
        """What the output must be."""
        return Expectation(self.fed, KEYS, ENDLESS)

    def log(self, name: str) -> Counter[tuple[int, int]]:
        """Return what is in a log."""
        return Counter((r.key, r.value) for r in read(self.storage, name))

    def discarded(self) -> Counter[int]:
        """Return the numbers that the loop gave up."""
        return Counter(r.value["value"][0] for r in read(self.storage, f"{JOB}.discarded"))

    def files(self) -> Counter[int]:
        """Return what is in the files."""
        found = (self.storage / "files").glob("*.jsonl")
        return Counter(int(line) for path in found for line in path.read_text().splitlines())

    @staticmethod
    def numbers_of(pairs: Counter[tuple[int, int]]) -> Counter[int]:
        """Return the numbers of pairs of key and number."""
        return Counter({number: count for (_, number), count in pairs.items()})

    def read_by(self, first: int, last: int) -> set[int]:
        """Return the numbers that some batches have read."""
        return set(range(self.ends[first - 1] if first > 0 else 0, self.ends[last]))


def _read_up_to(end: dict[str, Any]) -> int:
    """Return how many records have been read of an input that has one partition."""
    return int(end["sources"]["source"]["0"])


def seed_of(name: str) -> int:
    """Return the seed of a campaign, drawn unless ``PENSTOCK_KILL_SEED`` gives it."""
    given = os.environ.get("PENSTOCK_KILL_SEED")
    seed = int(given) if given else random.SystemRandom().randrange(10**6)
    print(f"PENSTOCK_KILL_SEED={seed} repeats what was drawn for {name}")
    return seed
