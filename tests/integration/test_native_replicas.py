"""Replicas of a job whose output Spark writes itself: its digests, made by Spark, tell when they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.engine.driver.job_handle import Handle
from penstock.errors import ReplicaDivergedError
from penstock.replicas.agreement.agreement_folder import AgreementFolder
from penstock.replicas.agreement.agreement_protocol import Charter, ReplicaSpec
from penstock.spark.native_frames import RowDigest
from penstock.spark.spark_runtime import start
from penstock.spark.spark_session import open_session
from support.left_staged import left_staged
from support.running import MASTER

pytestmark = pytest.mark.usefixtures("spark_says")


@pytest.fixture
def agreement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgreementFolder:
    """Return that of a job over four files, two a batch."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    (tmp_path / "in").mkdir()
    for number in range(4):
        rows = [{"id": n, "name": f"n{n % 3}"} for n in range(number * 10, number * 10 + 10)]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in" / f"{number}.parquet")
    found = AgreementFolder(tmp_path / "agreement")
    found.create(Charter(0, {}))
    return found


def begin(folder: Path, number: int, name: str = "upper(name)") -> Handle:
    """Start a replica; none of its rows pass through Python."""
    job = ps.Job("files", k=1)
    read = ps.FileSource(folder / "in", "parquet", schema="id long, name string", max_files_per_batch=2)
    query = ps.Sql(f"SELECT id, {name} AS name, map(id, name) AS both FROM input WHERE id % 2 = 0")
    job.source("in", read) >> job.task("even", query) >> job.sink("out", ps.FileSink(folder / "out"))
    replica_spec = ReplicaSpec(
        f"files~{number}" if number else "files", number, str(folder / "agreement"), scratch=str(folder / "x")
    )
    return start(job, master=MASTER, folder=folder / f"member-{number}", replica_spec=replica_spec)


def written(folder: Path) -> list[tuple[int, str]]:
    files = (folder / "out").glob("*.parquet")
    rows = [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]
    return sorted((row["id"], row["name"]) for row in rows)


EXPECTED = [(n, f"N{n % 3}") for n in range(0, 40, 2)]


def test_replicas_agree_on_what_spark_writes(tmp_path: Path, agreement: AgreementFolder) -> None:
    with begin(tmp_path, 0) as one, begin(tmp_path, 1) as other:
        assert one.wait(timeout=120)
        assert other.wait(timeout=120)
    assert written(tmp_path) == EXPECTED
    commits = [agreement.committed(batch) for batch in (0, 1)]
    assert all(commit is not None and commit.digests["out"] for commit in commits)


@pytest.mark.parametrize(
    "name", [pytest.param("lower(name)", marks=pytest.mark.full), "if(rand() < 2, concat(name, '?'), name)"]
)
def test_a_replica_that_writes_something_else_is_found(
    tmp_path: Path, agreement: AgreementFolder, name: str
) -> None:
    with begin(tmp_path, 0) as one:
        assert one.wait(timeout=120)
    other = begin(tmp_path, 1, name)
    with pytest.raises(ReplicaDivergedError) as caught:
        other.wait(timeout=120)
    other.stop()
    assert (caught.value.batch, caught.value.vertex, caught.value.by) == (0, "out", "files")
    assert written(tmp_path) == EXPECTED
    assert left_staged(tmp_path / "out" / ".penstock-staging") == []


def digest_of(frame: Any) -> int:
    digest = RowDigest()
    digest.watching(frame).write.format("noop").mode("append").save()
    return digest.value()


def test_the_digest_is_of_the_rows_whatever_their_order() -> None:
    session = open_session(MASTER)
    rows = session.range(100).selectExpr("id", "string(id) AS text", "map(id, named_struct('a', id)) AS map")
    whole = digest_of(rows.repartition(1))
    assert whole == digest_of(rows.repartition(5).orderBy(rows["id"].desc()))
    assert whole != digest_of(rows.where("id <> 7"))
    assert whole != digest_of(rows.selectExpr("id", "text", "map(id, named_struct('a', 7L)) AS map"))
    assert digest_of(rows.where("id < 0")) == 0
    twice = digest_of(rows.where("id = 7").union(rows.where("id = 7")))
    assert twice != 0, "two equal rows do not cancel each other out"
