"""Runs the two halves of a benchmark side by side, in turns, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.timing import Measured, Outcome

ROOT = Path(__file__).resolve().parent.parent


class HalfFailedError(Exception):
    """One half of a benchmark did not do what it should."""


class Half:
    """A process that runs one function as often as it is asked to."""

    def __init__(self, target: str, log: Path) -> None:
        self.target = target
        self.log = log
        answers, writing = os.pipe()
        path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.child", target, str(writing)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=[writing],
                start_new_session=True,
            )
        os.close(writing)
        self._answers = os.fdopen(answers)

    def __call__(self, **arguments: Any) -> Measured:
        """Run the function once and wait for what it measured."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(arguments).encode() + b"\n")
        self.process.stdin.flush()
        line = self._answers.readline()
        if not line:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise HalfFailedError(f"{self.target} ended without an answer:\n{tail}")
        answer = json.loads(line)
        if "failure" in answer:
            raise HalfFailedError(f"{self.target} failed:\n{answer['failure']}")
        return Measured.from_json(answer["measured"])

    def close(self) -> None:
        """End the process and everything that it has started."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(timeout=30)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            pass
        finally:
            self._answers.close()
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextmanager
def open_halves(targets: Sequence[str], work: Path) -> Iterator[list[Half]]:
    """Start one process for each target, and end all of them whatever happens."""
    with ExitStack() as stack:
        halves = []
        for target in targets:
            half = Half(target, work / f"{target.replace(':', '.')}.log")
            stack.callback(half.close)
            halves.append(half)
        yield halves


def warm_up(half: Half, expected: Outcome, **arguments: Any) -> None:
    """Run a half over a small input, which loads all its code, and compare what it made of it."""
    outcome = half(check=True, **arguments).outcome
    if outcome != expected:
        raise HalfFailedError(f"{half.target} is wrong: it made {outcome} where {expected} was expected")


@dataclass(frozen=True)
class Comparison:
    """The figures of two competitors that took turns."""

    ours: tuple[float, ...]
    other: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of the ratios of neighbouring runs, which a slow hour of the machine hits alike."""
        return median(mine / theirs for mine, theirs in zip(self.ours, self.other, strict=True))


def alternate(rounds: int, *runs: Callable[[], float]) -> list[tuple[float, ...]]:
    """Run every competitor once a round, in turns; return each one's figures."""
    figures: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for taken, run in zip(figures, runs, strict=True):
            taken.append(run())
    return [tuple(taken) for taken in figures]
