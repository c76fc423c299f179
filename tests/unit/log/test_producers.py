"""Many processes append at once: every record is there once, and each producer's order is kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.log import Log

PRODUCER = Path(__file__).with_name("producer.py")
BATCHES = 50


@pytest.mark.parametrize(("producers", "partitions"), [(2, 1), (4, 1), (4, 3)])
def test_every_record_once_and_in_order(tmp_path: Path, producers: int, partitions: int) -> None:
    log = Log.create(tmp_path / "orders", partitions)
    names = [f"producer-{number}" for number in range(producers)]
    processes = [
        subprocess.Popen(
            [sys.executable, str(PRODUCER), str(log.path), name, str(BATCHES)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    try:
        for process in processes:
            _, complaint = process.communicate(timeout=60)
            assert process.returncode == 0, complaint
    finally:
        for process in processes:
            process.kill()
            process.wait()
    got: dict[str, list[list[int]]] = {name: [] for name in names}
    for partition in range(partitions):
        for chunk in log.read(partition, 0):
            for record in chunk:
                got[record.key].append(record.value)
    sizes = [1_000 if batch % 7 == 6 else batch % 5 + 1 for batch in range(BATCHES)]
    expected = [[batch, index] for batch, size in enumerate(sizes) for index in range(size)]
    for name in names:
        assert got[name] == expected
    found = log.stat(verify=True)
    assert not found.damaged
    assert list((log.path / "staging").iterdir()) == []
