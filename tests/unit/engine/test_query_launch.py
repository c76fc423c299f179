"""What a start makes of what is left in a job's folder: Spark's checkpoint, and damaged files."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from v0_1_0 import jobs

from penstock.engine.driver.query_launch import launch
from penstock.engine.storage.job_folder import JobFolders
from penstock.engine.storage.ledger import Ledger, LedgerEntry
from penstock.engine.storage.serialization import read_sealed, write_sealed
from penstock.errors import JobFailedError

ARCHIVE = Path(jobs.__file__).with_name("home.tar.gz")


class _Query:
    """A query that is not run."""

    def __init__(self, folders: JobFolders, buckets: int) -> None:
        self.blueprint = self
        self.folders, self.buckets = folders, buckets
        self.job, self.vertices = "loop", ()

    def start(self, last: object) -> None:
        pass


def _damage(checkpoint: Path, damage: str) -> None:
    """Do to Spark's own files what a power cut does to files that nobody has brought to the disk."""
    name, _, content = damage.partition(": ")
    folder = checkpoint / name
    newest = max(folder.glob("[0-9]*"), key=lambda file: int(file.name)) if folder.is_dir() else folder
    if content == "gone":
        newest.unlink()
    else:
        newest.write_text({"empty": "", "cut": newest.read_text()[:5], "zeros": "\0" * 40}[content])


@pytest.mark.parametrize(
    ("damage", "kept"),
    [
        ("metadata: gone", True),
        ("metadata: empty", False),
        ("metadata: cut", False),
        ("commits: gone", True),
        ("commits: empty", False),
        ("commits: cut", False),
        ("commits: zeros", False),
        ("offsets: empty", False),
    ],
)
def test_a_checkpoint_that_spark_cannot_read_is_made_anew(damage: str, kept: bool, tmp_path: Path) -> None:
    """The ledger says all that it does. Without ``commits/N`` Spark runs batch N again, which is harmless."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    folders = JobFolders(str(tmp_path / "jobs" / "loop"))
    _damage(folders.checkpoint, damage)
    last = Ledger(folders.ledger).latest()
    assert last is not None
    launch(jobs.loop(), _Query(folders, last.buckets), last)  # type: ignore[arg-type]
    assert folders.checkpoint.exists() == kept


@pytest.mark.parametrize("content", [b"", b"PENST", b"\0" * 100, None], ids=["empty", "cut", "zeros", "gone"])
@pytest.mark.parametrize("kind", ["ledger", "sealed"])
def test_of_a_damaged_file_it_is_said_what_to_do(kind: str, content: bytes | None, tmp_path: Path) -> None:
    """A sealed file holds state, or records on their way to the next batch."""
    if kind == "ledger":
        Ledger(tmp_path).commit(LedgerEntry(0, {"batch": 1}))
    else:
        write_sealed(tmp_path / "sealed", b"state")
    [file] = tmp_path.iterdir()
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    told = r"is (damaged|missing): .*Restore it from a copy of the job's folder, or start from scratch"
    if kind == "ledger" and content is None:
        assert Ledger(tmp_path).latest() is None, "the batch has not happened"
        return
    with pytest.raises(JobFailedError, match=told):
        Ledger(tmp_path).latest() if kind == "ledger" else read_sealed(file)


def test_what_a_job_was_is_noted_before_any_batch(tmp_path: Path) -> None:
    folders = JobFolders(str(tmp_path))
    launch(jobs.loop(), _Query(folders, 1), None)  # type: ignore[arg-type]
    assert json.loads(folders.structure.read_text())["name"] == "loop"
