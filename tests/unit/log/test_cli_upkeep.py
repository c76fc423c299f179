"""``penstock log``: settings, readers, retention, compaction and the list of logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.log import app
from penstock.log import Log, Retention, log_folder
from penstock.record import Record


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")


def run(*arguments: str, stdin: str = "", code: int = 0) -> Result:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def filled(name: str = "shop.orders", segments: int = 6, retain_consumed: bool = False) -> Log:
    log = Log.create(log_folder(name), upkeep=False, retain_consumed=retain_consumed)
    for number in range(segments):
        log.append([Record(None, number)])
    return log


def test_create_with_settings() -> None:
    run("create", "orders", "--fsync", "full", "--bytes", "1GB", "--age", "7d", "--consumed")
    log = Log.open(log_folder("orders"))
    assert (log.fsync, log.retention) == ("full", Retention(1_000_000_000, 604_800.0, True))
    text = run("stat", "orders").stdout
    assert f"id {log.id}, fsync full, keeps at most 1000000000 bytes, and nothing older than 604800" in text


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--fsync", "most"], "error: 'most' is not an fsync level: choose none, segment, full"),
        (["--bytes", "many"], "error: 'many' is not a size"),
        (["--age", "long"], "error: 'long' is not a duration"),
        (["--bytes", "0"], "error: retain_bytes must be a number of bytes, 1 or more"),
    ],
)
def test_settings_that_make_no_sense(options: list[str], complaint: str) -> None:
    assert run("create", "orders", *options, code=1).stderr.startswith(complaint)
    run("stat", "orders", code=1)


def test_retain_changes_what_it_is_given_and_deletes_at_once() -> None:
    filled()
    assert run("retain", "shop.orders").stderr == "log shop.orders keeps everything\n"
    assert "nothing older than 3600 seconds\n" in run("retain", "shop.orders", "--age", "1h").stderr
    stderr = run("retain", "shop.orders", "--bytes", "1").stderr
    assert "keeps at most 1 bytes, and nothing older than 3600 seconds\n" in stderr
    assert "partition 0: deleted 5 segments before position 5, " in stderr
    assert "bytes: the log is larger than 1 bytes\n" in stderr
    run("retain", "shop.orders", "--bytes", "off", "--age", "off", "--consumed")
    assert Log.open(log_folder("shop.orders")).retention == Retention(consumed=True)
    run("retain", "shop.orders", "--no-consumed")
    assert Log.open(log_folder("shop.orders")).retention == Retention()
    assert run("read", "shop.orders").stdout == "5\n"
    assert "positions before 5 are gone" in run("read", "shop.orders", "--from", "2", code=1).stderr


def test_compact() -> None:
    filled()
    before = run("read", "shop.orders", "-o", "json").stdout
    assert run("compact", "shop.orders").stderr == "partition 0: 6 segments before, 2 now\n"
    assert run("read", "shop.orders", "-o", "json").stdout == before


def test_readers_and_their_lag() -> None:
    log = filled(retain_consumed=True)
    assert run("readers", "shop.orders").stderr == "log shop.orders has no readers\n"
    assert json.loads(run("readers", "shop.orders", "-o", "json").stdout) == []
    log.note_reader("billing.orders", {0: 2}, now=5.0)
    log.note_reader("mail.orders", {0: 6})
    (billing, mail) = json.loads(run("readers", "shop.orders", "-o", "json").stdout)
    assert billing == {"name": "billing.orders", "positions": {"0": 2}, "lag": 4, "time": 5.0}
    assert (mail["name"], mail["lag"]) == ("mail.orders", 0)
    for command in ("readers", "stat"):
        text = run(command, "shop.orders").stdout
        assert "billing.orders" in text
        assert "0:2" in text
    found = json.loads(run("stat", "shop.orders", "-o", "json").stdout)
    assert [(reader["name"], reader["lag"]) for reader in found["readers"]] == [
        ("billing.orders", 4),
        ("mail.orders", 0),
    ]
    assert (found["id"], found["fsync"]) == (log.id, "none")
    assert found["retention"] == {"bytes": None, "seconds": None, "consumed": True}
    assert "removed reader billing.orders" in run("forget", "shop.orders", "billing.orders").stderr
    assert "no reader 'billing.orders'" in run("forget", "shop.orders", "billing.orders", code=1).stderr


def test_list() -> None:
    assert run("list").stderr == "there are no logs\n"
    assert json.loads(run("list", "-o", "json").stdout) == []
    log = filled()
    log.note_reader("billing.orders", {0: 2})
    filled("shop.errors", segments=1)
    (log_folder("shop.errors").parent / "not a log").mkdir()
    text = run("list").stdout
    assert "shop.errors" in text
    assert "shop.orders" in text
    (errors, orders) = json.loads(run("list", "-o", "json").stdout)
    assert orders.pop("bytes") > 0
    assert orders == {"name": "shop.orders", "partitions": 1, "records": 6, "segments": 6, "readers": 1}
    assert errors["name"] == "shop.errors"


@pytest.mark.parametrize("command", [["retain"], ["compact"], ["readers"], ["forget", "x"]])
def test_a_log_that_there_is_not(command: list[str]) -> None:
    name, *rest = command
    assert "there is no log 'orders'" in run(name, "orders", *rest, code=1).stderr


def test_a_log_is_deleted_with_yes_and_nothing_else_is(tmp_path: Path) -> None:
    filled("orders")
    filled("orders-2")
    assert (
        "has 6 records, which would be deleted permanently: confirm with --yes"
        in run("delete", "orders", code=1).stderr
    )
    assert run("read", "orders").stdout
    assert run("delete", "orders", "--yes").stderr == "deleted log orders with 6 records\n"
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["orders-2"]
    run("create", "orders")


def test_what_is_no_log_is_not_deleted(tmp_path: Path) -> None:
    other = tmp_path / "logs" / "other"
    other.mkdir(parents=True)
    (other / "file").touch()
    for name in ("other", "missing", "../jobs", "."):
        assert run("delete", name, "--yes", code=1).stderr.startswith("error: ")
    assert (other / "file").exists()
    filled("orders")
    (tmp_path / "logs" / "link").symlink_to("orders")
    assert "is a link" in run("delete", "link", "--yes", code=1).stderr
    assert run("read", "orders").stdout


@pytest.mark.parametrize("place", ["jobs/shop", "cluster-jobs/shop/000003-0001"])
def test_a_log_that_a_known_job_uses_is_not_deleted(tmp_path: Path, place: str) -> None:
    filled("orders")
    filled("unused")
    folder = tmp_path / place
    folder.mkdir(parents=True)
    structure = {"name": "shop", "vertices": [{"name": "in", "options": {"log": "orders"}}, {"name": "t"}]}
    (folder / "job.json").write_text(json.dumps(structure))
    assert "is used by job 'shop'" in run("delete", "orders", "--yes", code=1).stderr
    run("delete", "unused", "--yes")
    (folder / "job.json").write_text("torn")
    assert "whose structure cannot be read" in run("delete", "orders", "--yes", code=1).stderr
    (folder / "job.json").unlink()
    run("delete", "orders", "--yes")
