"""Types the commands of a page, without a shell, and compares what they print with what the page shows.

What is different on each machine is not compared: times, sizes, process ids, ports, digests, which master
leads, which node a job gets. The order of records in a log is that of cores, so they are compared sorted.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from penstock.cli.command_errors import INTERRUPTED
from support.documents import Change, Command, NotTyped, SavedFile, Step
from support.waiting import DEADLINE, eventually

Run = Callable[[list[str]], list[str]]
"""Makes of the arguments of ``penstock`` or ``python`` the command that a test starts."""

DONE_BEFORE = {
    "make setup": "the virtual environment is there",
    "source .venv/bin/activate": "the virtual environment is active",
}
"""What a test need not type, and why."""

_FIGURES = (
    (re.compile(r"\b[0-9a-f]{12,}\b"), "DIGEST"),
    (re.compile(r"(127\.0\.0\.\d+):\d+"), r"\1:PORT"),
    (re.compile(r"\d[\d,]*/s\b"), "RATE"),
    (re.compile(r"\b\d[\d,]*(?:\.\d+)? ?(?:ms|s|m|h|d)\b"), "TIME"),
    (re.compile(r"\bnode-\d\b"), "NODE"),
    (re.compile(r"\bleader\s+master-\d\b"), "leader MASTER"),
    (re.compile(r"\bleads\b"), ""),
    (re.compile(r"\bpid \d+\b"), "pid NUMBER"),
    (re.compile(r"\b\d{4,}\b"), "NUMBER"),
)
_FRAME = re.compile(r"[─━│┃┏┓┗┛┡┩┳┻╇┴└┘├┤┬┼╋]")
_PROGRESS = re.compile(r"^\S+: (?:starting Spark …|in \d)")
_PID = re.compile(r"\b\d{4,}\b")
_PID_COLUMN = re.compile(r"\bpid\b(?=  |$)")
_SHORT_PID = re.compile(r"(?<!\S)\d{1,3}(?!\S)")
_LEADER = re.compile(r"^\s*leader\s+(\S+)", re.MULTILINE)
_ASKING = ("list", "status", "nodes", "alarms", "log")
"""Commands that change nothing: what they show may come a little later."""


@dataclass
class Session:
    """A reader with an empty home, who goes through one page."""

    folder: Path
    """Where files are saved and commands typed."""
    home: Path
    penstock: Run
    python: Run
    environment: dict[str, str]
    not_typed: list[str] = field(default_factory=list)
    """What was left out, each with its reason."""
    _homes: dict[str, str] = field(default_factory=dict)
    _pids: dict[str, int] = field(default_factory=dict)
    """By the process id that the page shows, the one here."""

    def do(self, step: Step) -> None:
        """Do what a step says; raises AssertionError when it does not come out as the page says."""
        if isinstance(step, SavedFile):
            (self.folder / step.name).write_text(step.content)
        elif isinstance(step, Change):
            file = self.folder / step.name
            assert step.old in file.read_text(), f"line {step.line}: {step.name} has no {step.old!r}"
            file.write_text(file.read_text().replace(step.old, step.new))
        elif isinstance(step, NotTyped):
            self.not_typed += [f"{command}: {step.reason}" for command in step.commands]
        elif step.text in DONE_BEFORE:
            self.not_typed.append(f"{step.text}: {DONE_BEFORE[step.text]}")
        else:
            self._type(step)

    def _type(self, command: Command) -> None:
        words, given, quiet = self._words(command.text)
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            assert name == "PENSTOCK_HOME", f"line {command.line}: {words} is not known here"
            self._homes[value] = str(self.home)
            return
        if words[0] == "kill":
            os.kill(self._pids[words[2]], signal.SIGKILL)
            return
        if "--watch" in words:
            self._watch(words)
            return
        where = f"line {command.line}: $ {command.text}"

        def attempt() -> tuple[bool, str]:
            code, printed = self._run(words, given, quiet=quiet)
            good = (code != 0) == command.fails
            return good and (not command.shown or self._same(words, command.shown, printed)), printed

        if words[0] == "penstock" and words[1] in _ASKING and "append" not in words and "create" not in words:
            last = ""

            def shown_now() -> bool:
                nonlocal last
                same, last = attempt()
                return same

            try:
                eventually(where, shown_now, every=0.5)
            except AssertionError:
                raise AssertionError(self._difference(where, words, command.shown, last)) from None
            printed = last
        else:
            same, printed = attempt()
            assert same, self._difference(where, words, command.shown, printed)
        self._learn(command.shown, printed)

    def _words(self, text: str) -> tuple[list[str], str, bool]:
        """Return a command's words, its input, and whether what it complains of is thrown away."""
        parser = shlex.shlex(text, posix=True, punctuation_chars="|<>")
        parser.whitespace_split = True
        words, given, quiet = list(parser), "", False
        if words[-3:] == ["2", ">", "/dev/null"]:
            words, quiet = words[:-3], True
        if "|" in words:
            place = words.index("|")
            given, words = _printed_by(words[:place]), words[place + 1 :]
        if "<" in words:
            place = words.index("<")
            given = (self.folder / words[place + 1]).read_text()
            words = words[:place]
        assert not {"|", "<", ">"} & set(words), f"no shell is here for {text!r}"
        return words, given, quiet

    def _run(self, words: list[str], given: str, *, quiet: bool) -> tuple[int, str]:
        done = subprocess.run(
            self._command(words),
            env=self.environment,
            cwd=self.folder,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else subprocess.STDOUT,
            text=True,
            check=False,
            timeout=2 * DEADLINE,
        )
        return done.returncode, done.stdout

    def _watch(self, words: list[str]) -> None:
        """Look on until the job runs, and press Ctrl-C."""
        process = subprocess.Popen(
            self._command(words), env=self.environment, cwd=self.folder, stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            # Who never sees it waits for ever: the limit of the whole test ends that.
            while "RUNNING" not in process.stdout.readline():
                assert process.poll() is None, f"{words} has ended"
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=DEADLINE)
        finally:
            process.kill()
        # Pressed while the first table is printed, it is an interruption as any other.
        assert process.returncode in (0, INTERRUPTED)

    def _command(self, words: list[str]) -> list[str]:
        makers: Mapping[str, Run] = {"penstock": self.penstock, "python": self.python}
        assert words[0] in makers, f"no test knows how to type {words}"
        return makers[words[0]](words[1:])

    def _same(self, words: list[str], shown: tuple[str, ...], printed: str) -> bool:
        wanted, found = self._comparable(words, "\n".join(shown)), self._comparable(words, printed)
        return len(wanted) == len(found) and all(
            re.fullmatch(".*".join(map(re.escape, line.split("…"))), other) is not None
            for line, other in zip(wanted, found, strict=True)
        )

    def _comparable(self, words: list[str], text: str) -> list[str]:
        """Return the lines of an output that are the same on every machine, each in a plain form."""
        for told, real in self._homes.items():
            text = text.replace(real, told)
        lines = _with_long_pids(text).splitlines()
        if words[:2] == ["penstock", "run"]:
            lines = [line for line in lines if not _PROGRESS.match(line)]
        for pattern, name in _FIGURES:
            lines = [pattern.sub(name, line) for line in lines]
        lines = [" ".join(_FRAME.sub(" ", line).split()) for line in lines]
        lines = [line for line in lines if line]
        if "--wait" in words:
            # It looks twice a second: between the first and the last line there may be others.
            lines = [*lines[:1], *lines[-1:]]
        return sorted(lines) if words[:3] == ["penstock", "log", "read"] else lines

    def _difference(self, where: str, words: list[str], shown: tuple[str, ...], printed: str) -> str:
        wanted = "\n".join(self._comparable(words, "\n".join(shown)))
        found = "\n".join(self._comparable(words, printed))
        return f"{where}\n--- the page shows\n{wanted}\n--- printed\n{found}\n--- as it was\n{printed}"

    def _learn(self, shown: tuple[str, ...], printed: str) -> None:
        """Note which process ids here those on the page stand for: rows of tables that begin alike have them.

        The master that leads on the page stands for the one that leads here.
        """
        rows = {line.split()[0]: line for line in _with_long_pids(printed).splitlines() if line.split()}
        leaders = _LEADER.findall("\n".join(shown)), _LEADER.findall(printed)
        for line in shown:
            begin = (line.split() or [""])[0]
            if all(leaders) and leaders[0] != leaders[1] and begin in (leaders[0][0], leaders[1][0]):
                begin = leaders[1][0] if begin == leaders[0][0] else leaders[0][0]
            told, real = _PID.findall(line), _PID.findall(rows.get(begin, ""))
            if len(told) == len(real):
                self._pids |= {known: int(pid) for known, pid in zip(told, real, strict=True)}


def _with_long_pids(text: str) -> str:
    """Write the process ids of tables with five digits: short ones could be any other figure."""
    lines: list[str] = []
    column = range(0)
    for line in text.splitlines():
        head = _PID_COLUMN.search(line)
        if head:
            column = range(*head.span())
        elif not line.strip():
            column = range(0)
        lines.append(_SHORT_PID.sub(partial(_padded_within, column), line))
    return "\n".join(lines)


def _padded_within(column: range, found: re.Match[str]) -> str:
    """Write a number with five digits if it is below the head of a column, which is at its left or right."""
    return f"{found[0]:0>5}" if set(column) & set(range(*found.span())) else found[0]


def _printed_by(words: list[str]) -> str:
    """Return what ``echo`` or ``printf`` with one text prints."""
    assert words[0] in ("echo", "printf"), f"no shell is here for {words}"
    return " ".join(words[1:]) + "\n" if words[0] == "echo" else words[1].replace("\\n", "\n")


def penstock_command(arguments: list[str]) -> list[str]:
    """Return the command ``penstock`` as it is."""
    return [sys.executable, "-m", "penstock.cli.main", *arguments]
