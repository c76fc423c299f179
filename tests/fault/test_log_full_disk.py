"""A disk without room: the producer is told, readers go on, nothing is damaged, nothing is left behind."""

from __future__ import annotations

import multiprocessing
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.connect.log_connectors import LogSink, LogSource
from penstock.errors import LogError
from penstock.graph.connector_api import WriteContext
from penstock.log import Log, Retention
from penstock.record import Record

BALLAST = 200_000


def large(number: int) -> list[Record]:
    """About 200 kB that do not get smaller by compression."""
    import random

    return [Record("k", random.Random(number).randbytes(BALLAST))]


@dataclass
class Disk:
    """A place that gets full."""

    folder: Path
    real: bool
    """A file system of three megabytes; else a limit on the size of this process's files."""

    def fill(self) -> None:
        if self.real:
            with (self.folder / "ballast").open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    pass
        else:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    def make_room(self) -> None:
        if self.real:
            (self.folder / "ballast").unlink()
        else:
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@pytest.fixture(params=["small file system", "limit"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """Who may not mount a file system has the limit twice."""
    folder = tmp_path / "disk"
    folder.mkdir()
    wanted = request.param == "small file system"
    mounted = wanted and _run("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder))
    before = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    try:
        yield Disk(folder, mounted)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before[0])
        signal.signal(signal.SIGXFSZ, before[1])
        if mounted:
            assert _run("umount", "-l", str(folder))


def _run(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0
    except FileNotFoundError:
        return False


def values(log: Log) -> list[object]:
    return [record.value for chunk in log.read(0, log.begin(0)) for record in chunk]


def in_a_process(work: Callable[[Path], None], folder: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=work, args=(folder,))
    process.start()
    process.join(60)
    assert process.exitcode == 0


def _append_under_a_limit(folder: Path) -> None:
    log = Log.open(folder)
    small = Disk(folder, real=False)
    small.fill()
    with pytest.raises(LogError, match="no space left"):
        log.append(large(9))
    small.make_room()
    log.append([Record("k", "after")])


def test_a_limit_on_the_size_of_files_is_as_good_as_a_full_disk(tmp_path: Path) -> None:
    log = Log.create(tmp_path / "orders")
    log.append([Record("k", "before")])
    in_a_process(_append_under_a_limit, log.path)
    assert values(log) == ["before", "after"]
    assert list((log.path / "staging").iterdir()) == []


def test_a_producer_is_told_and_goes_on_when_there_is_room(disk: Disk) -> None:
    log = Log.create(disk.folder / "logs" / "orders")
    for number in range(3):
        log.append(large(number))
    before = values(log)
    staged = log.stage(0, [Record("k", "staged")])
    since = log.ends()
    disk.fill()
    for attempt in range(5):
        with pytest.raises(LogError, match=r"log 'orders': no space left.*try again"):
            log.append(large(100 + attempt))
        with pytest.raises(LogError, match="no space left"):
            log.stage(0, large(200 + attempt))
    assert [path.name for path in (log.path / "staging").iterdir()] == [staged.file]
    reader = Log.open(log.path)
    assert values(reader) == before
    assert not reader.stat(verify=True).damaged
    # To publish what is on the disk needs no room for records.
    log.publish([staged], since)
    disk.make_room()
    log.append(large(7))
    assert values(log) == [*before, "staged", large(7)[0].value]
    assert not Log.open(log.path).stat(verify=True).damaged
    assert list((log.path / "staging").iterdir()) == []


def test_a_job_reads_on_and_its_sink_leaves_nothing_behind(disk: Disk) -> None:
    log = Log.create(disk.folder / "logs" / "orders")
    for number in range(3):
        log.append(large(number))
    sink = LogSink("out", root=disk.folder, partitions=2)
    sink.prepare()
    disk.fill()
    source = LogSource("orders", root=disk.folder)
    begin = source.begin()
    end = source.latest(begin)
    read = [record for split in source.splits(begin, end) for chunk in source.read(split) for record in chunk]
    assert len(read) == 3
    source.committed(end, "job.orders")
    writer = sink.writer(WriteContext("job", "out", 0, "task"))
    writer.write([Record("k", 1), Record("l", 2)])
    with pytest.raises(LogError, match="no space left"):  # noqa: PT012 - whichever of the two notices
        for number in range(10):
            writer.write(large(number))
        writer.finish()
    assert list((disk.folder / "logs" / "out" / "staging").iterdir()) == []
    assert list((log.path / "staging").iterdir()) == []
    disk.make_room()
    source.committed(end, "job.orders")
    assert [reader.lag for reader in log.stat().readers] == [0]


def test_upkeep_on_a_full_disk(disk: Disk) -> None:
    log = Log.create(disk.folder / "logs" / "orders", retain_consumed=True, upkeep=False)
    for number in range(8):
        log.append(large(number))
    log.note_reader("job.orders", {0: 4})
    before = values(log)
    disk.fill()
    with pytest.raises(LogError, match=r"no space left.*: some small segments were not merged"):
        log.compact()
    if disk.real:  # a limit lets a file as short as this one through
        with pytest.raises(LogError, match=r"no space left.*: its settings were not changed"):
            log.set_retention(Retention(bytes=BALLAST))
    assert log.retention == Retention(consumed=True)
    assert values(log) == before
    assert not log.stat(verify=True).damaged
    assert list((log.path / "staging").iterdir()) == []
    assert not [path for path in log.path.iterdir() if path.name.startswith(".")]
    # Deleting needs no room, and makes some.
    assert len(log.retain()) == 1
    assert log.begin(0) == 4
    if not disk.real:
        disk.make_room()
    log.append(large(50))
    assert values(log) == [*before[4:], large(50)[0].value]
    assert not Log.open(log.path).stat(verify=True).damaged
