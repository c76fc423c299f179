"""Reads from a page of the documentation what its reader is told to do: type commands, save and change files.

- A block ``console`` holds commands, each behind ``$ ``, and what they show. Of a command that shows nothing
  there, only the exit code is looked at.
- Another block whose first line is a comment with the name of a file, or before which a paragraph says "Save
  this as `NAME`", is a file.
- ``<!-- not typed: REASON -->`` before a block ``console`` leaves it out.
- ``<!-- change NAME: OLD => NEW -->`` is a change of a file that the text describes in words.
- ``<!-- expected to fail -->`` before a block: its last command has another exit code than 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAVE = re.compile(r"Save this as `([\w.]+)`")
_FIRST_LINE = re.compile(r"# ([\w.]+\.py)\n")
_NOT_TYPED = re.compile(r"<!-- not typed: (.+?) -->")
_CHANGE = re.compile(r"<!-- change (\S+): (.+?) => (.+?) -->")
_FAILS = "<!-- expected to fail -->"


@dataclass(frozen=True)
class Command:
    """Something to type."""

    line: int
    text: str
    shown: tuple[str, ...]
    """What the page shows of its output."""
    fails: bool = False


@dataclass(frozen=True)
class SavedFile:
    """A file to save."""

    line: int
    name: str
    content: str


@dataclass(frozen=True)
class Change:
    """A file to change."""

    line: int
    name: str
    old: str
    new: str


@dataclass(frozen=True)
class NotTyped:
    """Commands that are left out, and why."""

    line: int
    commands: tuple[str, ...]
    reason: str


Step = Command | SavedFile | Change | NotTyped


def steps_of(page: str) -> list[Step]:
    """Return what the reader of a page does, from top to bottom.

    >>> steps_of("Look:\\n\\n```console\\n$ penstock list\\nnothing runs\\n```\\n")
    [Command(line=4, text='penstock list', shown=('nothing runs',), fails=False)]
    """
    return list(_steps(page))


def _steps(page: str) -> Iterator[Step]:
    end = 0
    for fence in _FENCE.finditer(page):
        before, end = page[end : fence.start()], fence.end()
        line = page.count("\n", 0, fence.start(2)) + 1
        for name, old, new in _CHANGE.findall(before):
            yield Change(line, name, old, new)
        kind, content = fence[1], fence[2]
        if kind == "console":
            commands = list(_commands(content, line))
            skipped = _NOT_TYPED.search(before)
            if skipped is not None:
                yield NotTyped(line, tuple(command.text for command in commands), skipped[1])
                continue
            for number, command in enumerate(commands):
                fails = _FAILS in before and number == len(commands) - 1
                yield Command(command.line, command.text, command.shown, fails)
            continue
        saved = _FIRST_LINE.match(content) or _SAVE.search(before.strip().rpartition("\n\n")[2])
        if saved is not None:
            yield SavedFile(line, saved[1], content)


def _commands(content: str, line: int) -> Iterator[Command]:
    lines = content.splitlines()
    starts = [number for number, text in enumerate(lines) if text.startswith("$ ")]
    assert starts[:1] == [0], f"line {line}: a block begins with a command"
    for start, after in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield Command(line + start, lines[start][2:], tuple(lines[start + 1 : after]))
