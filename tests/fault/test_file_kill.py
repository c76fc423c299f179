"""Files that Spark writes itself, and files that Python writes: exactly once, whenever the job is killed."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from killing import batches, finish, kill_in_batch, kill_within, start_job

JOB = Path(__file__).with_name("file_job.py")
FILES, ROWS = 16, 5_000


@pytest.mark.full
@pytest.mark.parametrize("kills", [1, 3, 12])
@pytest.mark.timeout(1800)
def test_files_are_written_once_whenever_the_job_is_killed(tmp_path: Path, kills: int) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for number in range(FILES):
        table = pa.table({"n": range(number * ROWS, (number + 1) * ROWS)})
        pq.write_table(table, source / f"{number:03d}.parquet")
    dice = random.Random(kills)
    where = {"FILES_IN": source, "FILES_OUT": out}
    killed = 0
    for number in range(kills):
        process = start_job(JOB, tmp_path, **where)
        if number == 0:
            kill_in_batch(tmp_path, "files", process)
        else:
            kill_within(tmp_path, "files", process, dice)
        killed += process.returncode == -9
    process = start_job(JOB, tmp_path, **where)
    said = finish(process)
    assert process.returncode == 0, said
    assert killed, "no kill came while the job ran"

    assert batches(tmp_path, "files") == FILES // 2
    found = [pq.read_table(path) for path in (out / "native").glob("*.parquet")]
    pairs = [pair for table in found for pair in zip(*(c.to_pylist() for c in table.columns), strict=True)]
    assert Counter(pairs) == Counter((n, 2 * n) for n in range(FILES * ROWS))
    lines = [line for path in (out / "python").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert Counter(json.loads(line)["text"] for line in lines) == Counter(
        str(2 * n) for n in range(FILES * ROWS)
    )
