"""Wrong uses of ``penstock log``, and logs that are damaged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from bad_rows import Shell


@dataclass(frozen=True)
class Command:
    """A command that is wrong, or meets what is wrong."""

    name: str
    words: str
    says: str
    code: int = 1
    stdin: str | bytes = ""


MISSING = "error: there is no log 'none' at "

TABLE = [
    Command("read-a-missing-log", "read none", MISSING),
    Command("append-to-a-missing-log", "append none", MISSING),
    Command("stat-of-a-missing-log", "stat none", MISSING),
    Command("retain-a-missing-log", "retain none", MISSING),
    Command("compact-a-missing-log", "compact none", MISSING),
    Command("readers-of-a-missing-log", "readers none", MISSING),
    Command("bad-name", "create ../escape", "error: '../escape' cannot name a log: use 1 to 200 letters"),
    Command("no-partitions", "create new --partitions 0", "Invalid value for '--partitions': ", 2),
    Command(
        "too-many-partitions",
        "create new --partitions 100000",
        "error: a log has 1 to 99999 partitions, not 100000",
    ),
    Command("log-twice", "create orders", "error: there is already a log at "),
    Command(
        "fsync",
        "create new --fsync perhaps",
        "error: 'perhaps' is not an fsync level: choose none, segment, full",
    ),
    Command("retention-size", "create new --bytes much", "error: 'much' is not a size"),
    Command("retention-age", "retain orders --age forever", "error: 'forever' is not a duration"),
    Command("retention-below-0", "retain orders --bytes -5", "error: '-5' is not a size"),
    Command("unknown-reader", "forget orders nobody", "error: log 'orders' has no reader 'nobody'"),
    Command(
        "partition-that-is-not-there", "read orders --partition 9", "error: log 'orders' has no partition 9"
    ),
    Command("negative-partition", "read orders --partition -1", "Invalid value for '--partition': ", 2),
    Command("negative-position", "read orders --from -1", "Invalid value for '--from': ", 2),
    Command("position-behind-the-end", "read orders --from 99", "no position 99"),
    Command("output", "read orders -o xml", "'xml' is not one of 'text', 'json'", 2),
    Command("not-json", "append orders --json", "error: line 2: not JSON", stdin='{"value": 1}\n{oops\n'),
    Command("nan", "append orders --json", "error: line 1: ", stdin="NaN\n"),
    Command(
        "bad-ts",
        "append orders --json",
        "error: line 1: ts must be a number",
        stdin='{"value": 1, "ts": "noon"}\n',
    ),
    Command("no-value", "append orders --json", "error: line 1: ", stdin='{"key": 1, "valeu": 1}\n'),
    Command(
        "unhashable-key",
        "append orders --json",
        "error: ",
        stdin='{"key": {"a": {}}, "value": 1, "ts": 1e999}\n',
    ),
    Command("too-deep", "append orders --json", "a log stores values up to 100", stdin="[" * 150 + "]" * 150),
    Command("much-too-deep", "append orders --json", "error: line 1: ", stdin="[" * 100_000),
    Command("not-utf-8", "append orders", "error: line 2: 'utf-8' codec can't decode", stdin=b"ok\n\xff\n"),
    Command(
        "no-separator",
        "append orders --key-separator =",
        "error: line 1: there is no separator '='",
        stdin="a\n",
    ),
    Command(
        "separator-of-json",
        "append orders --json --key-separator =",
        "it needs at least one character and cannot be combined with --json",
        2,
    ),
    Command("batch-of-0", "append orders --batch 0", "Invalid value for '--batch': ", 2),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_wrong_command(shell: Shell, row: Command) -> None:
    shell.fill("orders", ["first"])
    said = shell.run("log", *row.words.split(), stdin=row.stdin)
    assert said.code == row.code, said.err
    assert row.says in said.one_line()
    assert shell.values("orders") == ["first"], "nothing of what was wrong was appended"


def _segment(shell: Shell) -> Path:
    [segment] = (shell.home / "logs" / "orders").glob("p00000/*.seg")
    return segment


@pytest.mark.parametrize(
    ("damage", "cause"), [("cut", "torn: "), ("altered", "checksum"), ("emptied", "torn: ")]
)
def test_a_damaged_segment_is_never_read(shell: Shell, damage: str, cause: str) -> None:
    shell.fill("orders", ["first", "second"])
    segment = _segment(shell)
    sound = segment.read_bytes()
    broken = {"cut": sound[:-1], "emptied": b"", "altered": sound[:-3] + bytes([sound[-3] ^ 1]) + sound[-2:]}[
        damage
    ]
    segment.chmod(0o600)
    segment.write_bytes(broken)
    said = shell.run("log", "read", "orders")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("error: log 'orders', partition 0, position 0: segment ")
    assert cause in said.err
    verified = shell.run("log", "stat", "orders", "--verify")
    assert verified.code == 1
    assert "damaged: partition 0, position 0: " in verified.out


def test_a_description_that_describes_nothing(shell: Shell) -> None:
    shell.fill("orders", ["first"])
    (shell.home / "logs" / "orders" / "log.json").write_text("{}")
    said = shell.run("log", "read", "orders")
    assert said.code == 1
    assert said.err.startswith("error: ")
    assert "log.json is not a valid log description: " in said.err
    listed = shell.run("log", "list")
    assert listed.code == 1
    assert "log.json is not a valid log description: " in listed.err


def test_a_home_that_is_a_file(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", shell.write("file", ""))
    said = shell.run("log", "create", "orders")
    assert said.code == 1
    assert "is not a folder" in said.err
