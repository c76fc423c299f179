"""A part of a source that gives fewer records than were planned must not pass for the whole of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import FolderError, SettingError, ShortReadError
from penstock.graph.connector_api import Source
from penstock.log import Log
from support.engines import LOCAL
from support.running import Engine


class Stale(ps.LogSource):
    """Sees of a log what a process saw of it a moment ago."""

    def read(self, split: Any) -> Iterator[Any]:
        partition, start, end = split
        return super().read((partition, start, min(end, 5)))


class Forgetful(ps.MemorySource):
    """Leaves the last record out."""

    def read(self, split: Any) -> Iterator[Any]:
        for records in super().read(split):
            yield records[:-1]

    def on_worker(self) -> ps.MemorySource:
        return Forgetful()


def _copied(source: Source) -> ps.Job:
    job = ps.Job("copied")
    job.source("in", source) >> job.sink("out", ps.MemorySink())
    return job


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    made = Log.create(tmp_path / "logs" / "in", partitions=1)
    made.append([ps.Record(None, number) for number in range(8)])
    return made


@pytest.mark.usefixtures("log")
def test_a_view_of_a_log_that_is_not_up_to_date_ends_the_job(tmp_path: Path) -> None:
    with pytest.raises(ShortReadError, match=r"(?s)it returned 5 of 8 records.*in job 'copied', vertex 'in'"):
        Engine(LOCAL).run(_copied(Stale("in")), folder=tmp_path / "job")


def test_so_does_any_source_that_knows_how_much_it_has(tmp_path: Path) -> None:
    with pytest.raises(ShortReadError, match="it returned 2 of 3 records"):
        Engine(LOCAL).run(_copied(Forgetful([1, 2, 3])), folder=tmp_path / "job")


@pytest.mark.parametrize(
    "source",
    [
        ps.MemorySource(range(7), partitions=3),
        ps.RateSource(1000.0, partitions=3, limit=7, clock=lambda: 1000.0),
        ps.LogSource("in"),
    ],
    ids=["memory", "rate", "log"],
)
@pytest.mark.usefixtures("log")
def test_what_a_part_has_is_what_it_gives(source: Source) -> None:
    begin = source.begin()
    for split in source.splits(begin, source.latest(begin)):
        given = sum(len(chunk) for chunk in source.on_worker().read(split) if isinstance(chunk, list))
        assert given == source.records_in(split)


def test_a_file_that_cannot_be_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lines").write_bytes(b"one\ntwo\nthree\n")
    source = ps.FileSource(tmp_path)
    begin = source.begin()
    [split] = source.splits(begin, source.latest(begin))
    # Its size is known, and not all of its content is there yet.
    monkeypatch.setattr(source, "_check_unchanged", lambda *_: None)
    os.truncate(tmp_path / "lines", 8)
    with pytest.raises(FolderError, match="has 14 bytes, but only 8 could be read"):
        list(source.read(split))


def test_lines_of_a_socket_are_not_read_where_they_are_not(tmp_path: Path) -> None:
    """A worker on another machine has no such folder: it must not make an empty one and read that."""
    there = ps.SocketSource(port=9).on_worker()
    there._folder = str(tmp_path / "elsewhere")
    with pytest.raises(SettingError, match="on the machine that plans the batches"):
        list(there.read((0, 5)))
    assert not (tmp_path / "elsewhere").exists()
