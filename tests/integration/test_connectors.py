"""Files, rates, sockets and calls as the ends of jobs."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from support.engines import each_on
from support.left_staged import left_staged
from support.running import Engine
from support.waiting import DEADLINE, eventually


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def _publish(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f".{name}").write_bytes(data)
    (folder / f".{name}").rename(folder / name)


def _file(format: str, numbers: range) -> bytes:
    rows = [{"user": f"u{n % 7}", "n": n} for n in numbers]
    if format == "lines":
        return "".join(f"u{n % 7} {n}\n" for n in numbers).encode()
    if format == "csv":
        return gzip.compress(("user,n\n" + "".join(f"{r['user']},{r['n']}\n" for r in rows)).encode())
    if format == "json":
        return "".join(json.dumps(row) + "\n" for row in rows).encode()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return bytes(sink.getvalue())


def _written(folder: Path) -> Counter[tuple[str, int]]:
    rows: list[Any] = []
    for path in sorted(folder.glob("part-*")):
        if path.suffix == ".parquet":
            rows += pq.ParquetFile(path).read().to_pylist()
        else:
            rows += [json.loads(line) for line in path.read_text().splitlines()]
    return Counter((row["user"], row["double"]) for row in rows)


def _job(name: str, source: ps.FileSource, out: Path, to: str) -> ps.Job:
    def double(record: ps.Record) -> Any:
        if isinstance(record.value, str):
            user, n = record.value.split()
        else:
            user, n = record.value["user"], record.value["n"]
        assert record.key == user
        return {"user": user, "double": 2 * int(n)}

    job = ps.Job(name)
    schema = "user string, double long" if to == "parquet" else None
    sink = ps.FileSink(out, to, schema=schema, max_records_per_file=300)
    job.source("in", source) >> job.task("double", double) >> job.sink("out", sink)
    return job


FORMATS = {
    "lines": ("txt", "json"),
    "csv": ("csv.gz", "parquet"),
    "json": ("json", "parquet"),
    "parquet": ("parquet", "json"),
}


@pytest.mark.parametrize(
    ("format", "engine"), each_on(((name, name) for name in FORMATS), on_spark=["csv"]), indirect=["engine"]
)
def test_files_to_files(tmp_path: Path, format: str, engine: Engine) -> None:
    ending, to = FORMATS[format]
    folder, out = tmp_path / "in", tmp_path / "out"
    key: Any = (lambda line: line.split()[0]) if format == "lines" else "user"

    def job() -> ps.Job:
        return _job("files", ps.FileSource(folder, format, key=key, max_files_per_batch=3), out, to)

    for n in range(5):
        _publish(folder, f"{9 - n}.{ending}", _file(format, range(n * 100, n * 100 + 100)))
    assert engine.run(job(), until="drained").records_in == 500
    assert _written(out) == Counter((f"u{n % 7}", 2 * n) for n in range(500))
    assert engine.run(job(), until="drained").batches == 0, "nothing new"
    _publish(folder, f"new.{ending}", _file(format, range(500, 1500)))
    report = engine.run(job(), until="drained")
    assert report.records_in == 1000
    assert _written(out) == Counter((f"u{n % 7}", 2 * n) for n in range(1500))
    assert left_staged(out / ".penstock-staging") == []


def test_what_cannot_be_read_or_written_goes_to_the_errors(tmp_path: Path, engine: Engine) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    _publish(folder, "a", b'{"user": "ada", "n": 1}\n{oops\n{"user": "bob", "n": "x"}\n')

    def job(on_error: str) -> ps.Job:
        made = ps.Job("rejecting")
        sink = ps.FileSink(out, schema="user string, n long")
        source = made.source("in", ps.FileSource(folder, "json", key="user"), on_error=on_error)
        source >> made.sink("out", sink, on_error=on_error)
        return made

    with pytest.raises(ps.ConnectorError, match="vertex 'in': a, line 2: not JSON"):
        engine.run(job("fail"))
    report = engine.run(job("discard"))
    assert report.errors_by_vertex == {"in": 1, "out": 1}
    assert [pq.ParquetFile(path).read().to_pylist() for path in out.glob("part-*")] == [
        [{"user": "ada", "n": 1}]
    ]


def test_a_folder_that_is_not_there_is_told_before_spark_starts(tmp_path: Path, engine: Engine) -> None:
    job = _job("nowhere", ps.FileSource(tmp_path / "nowhere"), tmp_path / "out", "json")
    with pytest.raises(ps.SettingError, match="there is no folder"):
        engine.run(job)


def test_a_rate_with_a_limit_is_drained_when_all_have_come(tmp_path: Path, engine: Engine) -> None:
    got: list[tuple[int, list[ps.Record]]] = []
    job = ps.Job("rate")
    source = ps.RateSource(100, limit=150, partitions=2, value=lambda i: i * i, key=lambda i: i % 3)
    job.source("in", source) >> job.sink("out", ps.ForeachBatchSink(lambda b, r: got.append((b, r))))
    engine.run(job, until="drained")
    assert Counter((r.key, r.value) for _, records in got for r in records) == Counter(
        (i % 3, i * i) for i in range(150)
    )
    batches = [batch for batch, _ in got]
    assert batches == sorted(set(batches)), "one call a batch"


def test_a_batch_whose_call_failed_is_called_again_by_the_next_run(tmp_path: Path, engine: Engine) -> None:
    folder = tmp_path / "in"
    _publish(folder, "a", b"1\n2\n")
    calls: list[tuple[int, list[str]]] = []

    def job(fail: bool) -> ps.Job:
        def function(batch: int, records: list[ps.Record]) -> None:
            calls.append((batch, sorted(r.value for r in records)))
            if fail:
                raise OSError("the database is away")

        made = ps.Job("calls")
        made.source("in", ps.FileSource(folder)) >> made.sink("out", ps.ForeachBatchSink(function))
        return made

    with pytest.raises(ps.ConnectorError, match=r"'out': OSError: the database is away"):
        engine.run(job(True))
    _publish(folder, "b", b"3\n")
    engine.run(job(False))
    engine.run(job(False))
    assert calls == [(0, ["1", "2"]), (0, ["1", "2"]), (1, ["3"])]


def test_records_posted_by_a_job(tmp_path: Path, spark: Engine) -> None:
    applied: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            applied.setdefault(self.headers["Idempotency-Key"], body)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        job = ps.Job("posting")
        sink = ps.HttpSink(
            f"http://127.0.0.1:{server.server_port}/", batch_size=3, headers={"X-Token": "hush"}
        )
        job.source("in", ps.MemorySource(range(10), partitions=2)) >> job.sink("out", sink)
        spark.run(job)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
    assert Counter(r["value"] for chunk in applied.values() for r in chunk) == Counter(range(10))
    assert max(len(chunk) for chunk in applied.values()) == 3
    assert "hush" not in job.to_json()


def test_lines_from_a_socket_until_the_run_is_stopped(spark: Engine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(DEADLINE)
        closed: list[bytes] = []

        def serve() -> None:
            for text in (b"a\nb\n", b"c\n"):
                peer, _ = listening.accept()
                with peer:
                    peer.sendall(text)
                    if text == b"c\n":
                        peer.settimeout(DEADLINE)
                        closed.append(peer.recv(1))  # returns when the job's process has gone

        server = threading.Thread(target=serve)
        server.start()
        got: list[str] = []
        job = ps.Job("socket")
        sink = ps.ForeachBatchSink(lambda batch, records: got.extend(r.value for r in records))
        source = ps.SocketSource(port=listening.getsockname()[1])
        job.source("in", source) >> job.sink("out", sink)
        with spark.start(job) as handle:
            eventually("three lines", lambda: len(got) >= 3, meanwhile=handle.check)
        assert got == ["a", "b", "c"]
        server.join(DEADLINE)
        assert closed == [b""], "nobody holds the connection when the job has ended"
