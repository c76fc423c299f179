"""An address of a file system that Penstock does not know is refused, wherever a path is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.cli.main import command_line
from penstock.errors import SettingError
from penstock.local_files import local_path

ADDRESSES = ["s3a://b/out", "S3A://b", "dbfs:/x", "file:///x", "my_fs://b/x", " s3a://b", Path("gs://b/x")]

OPTIONS: dict[str, Callable[[Any], object]] = {
    "FileSink folder": ps.FileSink,
    "FileSource folder": ps.FileSource,
    "FileSource index": lambda given: ps.FileSource("data", index=given),
    "LogSink root": lambda given: ps.LogSink("log", root=given),
    "LogSource root": lambda given: ps.LogSource("log", root=given),
    "ForeachBatchSink folder": lambda given: ps.ForeachBatchSink(print, folder=given),
    "HttpSink folder": lambda given: ps.HttpSink("http://127.0.0.1/", folder=given),
    "DatabaseSink folder": lambda given: ps.DatabaseSink(print, "INSERT INTO t VALUES (?)", folder=given),
}


@pytest.mark.parametrize("address", ADDRESSES, ids=str)
@pytest.mark.parametrize("option", OPTIONS)
def test_an_address_is_no_folder(option: str, address: str | Path) -> None:
    with pytest.raises(SettingError, match="takes a path"):
        OPTIONS[option](address)


@pytest.mark.parametrize("given", ["out", "./s3a:/out", "/data/a:b/c", "a:/b", "out/my_fs://x"])
def test_a_path_is_a_path(given: str) -> None:
    assert local_path("folder", given) == Path(given).absolute()


@pytest.mark.parametrize("host", ["tcp://h", "http://localhost:99", "h/x"])
def test_an_address_is_no_host(host: str) -> None:
    with pytest.raises(SettingError, match="SocketSource: host takes the name"):
        ps.SocketSource(host, 1)


@pytest.mark.parametrize("pattern", ["s3a://b/*.csv", "2024/*.csv"])
def test_a_pattern_is_one_of_names(pattern: str) -> None:
    with pytest.raises(SettingError, match="FileSource: pattern takes a pattern of names"):
        ps.FileSource("data", pattern=pattern)


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "--plots"),
        ("zookeeper", "--folder"),
        ("master", "--cluster-folder"),
        ("supervisor", "--cluster-folder"),
        ("key", "--cluster-folder"),
    ],
    ids=" ".join,
)
def test_an_address_is_no_folder_on_the_command_line(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(command_line(words), [*words, "s3a://bucket/x"], env={"COLUMNS": "400"})
    assert result.exit_code == 2
    assert "takes a path of a mounted file system, not s3a://bucket/x" in result.output
    assert list(tmp_path.iterdir()) == []
