"""Sources and sinks that meet something bad: corrupt files, services that are away."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bad_rows import Shell, line

from support.engines import each_on

FOLDER = 'ps.FileSource("{folder}", {options})'


@dataclass(frozen=True)
class BadFile:
    """A file of which something cannot be read, and what is read all the same."""

    name: str
    file: str
    content: bytes
    options: str
    good: tuple[object, ...]
    says: str
    piece: object = None


def _parquet(folder: Path) -> bytes:
    pq.write_table(pa.table({"n": [1, 2]}), folder / "table")
    return (folder / "table").read_bytes()


FILES = [
    BadFile(
        "json-line",
        "a.json",
        b'{"n": 1}\n{"n": \n{"n": 3}\n',
        '"json"',
        ({"n": 1}, {"n": 3}),
        "a.json, line 2: not JSON: Expecting value at column 7",
    ),
    BadFile("json-constant", "a.json", b"1\nNaN\n3\n", '"json"', (1, 3), "a.json, line 2: NaN is not JSON"),
    BadFile(
        "json-field",
        "a.json",
        b'{"n": 1}\n{"n": "one"}\n',
        '"json", schema="n long"',
        ({"n": 1},),
        "a.json, line 2: field 'n': 'one' is not a long",
    ),
    BadFile(
        "csv-fields",
        "a.csv",
        b"a,b\n1,2\n3\n4,5\n",
        '"csv"',
        ({"a": "1", "b": "2"}, {"a": "4", "b": "5"}),
        "a.csv, line 3: 1 fields, not 2",
    ),
    BadFile(
        "csv-header",
        "a.csv",
        b"a,a\n1,2\n",
        '"csv"',
        (),
        "a.csv, line 1: two columns have the same name, so this file is not read",
    ),
    BadFile(
        "not-utf-8", "a.txt", b"one\n\xff\nthree\n", '"lines"', ("one", "three"), "a.txt, line 2: not UTF-8"
    ),
    BadFile(
        "torn-gzip",
        "a.txt.gz",
        gzip.compress(b"".join(b"line %d\n" % n for n in range(3)))[:-9],
        '"lines"',
        (),
        "a.txt.gz cannot be read to its end: EOFError: ",
    ),
    BadFile(
        "no-gzip-at-all",
        "a.txt.gz",
        b"plain text",
        '"lines"',
        (),
        "a.txt.gz cannot be read to its end: BadGzipFile: Not a gzipped file",
    ),
    BadFile(
        "no-parquet-at-all", "a.parquet", b"PAR1 nonsense", '"parquet"', (), "a.parquet cannot be read: Arrow"
    ),
    BadFile("torn-parquet", "a.parquet", b"", '"parquet"', (), "a.parquet cannot be read: Arrow"),
    BadFile(
        "parquet-column",
        "a.parquet",
        b"PARQUET",
        '"parquet", key="user"',
        (),
        "a.parquet: there is no column 'user'",
    ),
]


@pytest.mark.parametrize(
    ("row", "jobs"),
    each_on(((row.name, row) for row in FILES), on_spark=["torn-parquet"]),
    indirect=["jobs"],
)
def test_a_corrupt_file(jobs: Shell, row: BadFile) -> None:
    folder = jobs.home / "files"
    folder.mkdir()
    sound = _parquet(jobs.home)
    content = sound if row.content == b"PARQUET" else row.content or sound[: len(sound) // 2]
    (folder / row.file).write_bytes(content)
    source = f'ps.FileSource("{folder}", {row.options})'

    fails = jobs.drain(jobs.write(f"fails_{row.name}.py".replace("-", "_"), line("strict", source=source)))
    assert fails.code == 1
    assert f"error: job 'strict', vertex 'in': {row.says}" in fails.err
    assert jobs.values("out") == []

    lenient = line("lenient", source=source, options='on_error="discard"')
    goes_on = jobs.drain(jobs.write(f"goes_on_{row.name}.py".replace("-", "_"), lenient))
    assert goes_on.code == 0, goes_on.err
    assert jobs.values("out") == sorted(row.good, key=repr)
    [(vertex, error, message, _)] = jobs.errors("lenient")
    assert (vertex, error) == ("in", "ValueError")
    assert message.startswith(row.says)


def test_a_folder_that_is_not_there(jobs: Shell) -> None:
    source = f'ps.FileSource("{jobs.home / "nowhere"}")'
    said = jobs.drain(jobs.write("nowhere.py", line("nowhere", source=source)))
    assert said.code == 1
    assert f"{jobs.home / 'nowhere'}" in said.err
    assert "in job 'nowhere', vertex 'in'" in said.err


def test_a_file_that_vanishes(jobs: Shell) -> None:
    folder = jobs.home / "files"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.txt").write_text(f"{name}\n")
    task = f"lambda r: __import__('pathlib').Path('{folder}/b.txt').unlink(missing_ok=True) or r"
    options = '"lines", partitions=1, max_files_per_batch=1'
    source = FOLDER.format(folder=folder, options=options)
    file = jobs.write("vanishes.py", line("vanishes", source=source, task=task))
    said = jobs.drain(file)
    assert said.code == 1
    assert f"{folder / 'b.txt'} was removed before it was read. Restore it, or skip missing files" in said.err
    assert "in job 'vanishes', vertex 'in'" in said.err
    (folder / "b.txt").write_text("other\n")
    said = jobs.drain(file)
    assert said.code == 1
    assert f"{folder / 'b.txt'} has changed since it was found" in said.err
    (folder / "b.txt").unlink()
    source = FOLDER.format(folder=folder, options=f"{options}, ignore_missing=True")
    assert jobs.drain(jobs.write("vanishes2.py", line("vanishes", source=source))).code == 0
    assert jobs.values("out") == ["a"]


OWN = """
class Broken(ps.Source):
    def begin(self): return {"0": 0}
    def latest(self, after): {latest}
    def splits(self, start, end): return [1]
    def read(self, split): {read}

class BrokenSink(ps.Sink):
    transactional = True
    def writer(self, context): {writer}
    def commit(self, batch, receipts): {commit}

class Writer(ps.SinkWriter):
    def write(self, records): {write}
    def finish(self): return 1
"""


def _own(**broken: str) -> str:
    sound = {
        "latest": "return {'0': 1}",
        "read": "yield [ps.Record(None, 1)]",
        "writer": "return Writer()",
        "write": "pass",
        "commit": "pass",
    }
    text = OWN
    for name, code in {**sound, **broken}.items():
        text = text.replace(f"{{{name}}}", code)
    return text


BROKEN = {
    "latest": ("raise OSError('the broker is away')", "in", "OSError: the broker is away"),
    "read": ("raise RuntimeError('cannot read')", "in", "RuntimeError: cannot read"),
    "writer": ("raise PermissionError('not for you')", "out", "PermissionError: not for you"),
    "write": ("raise ValueError('no such table')", "out", "ValueError: no such table"),
    "commit": ("raise TimeoutError('no answer')", "out", "TimeoutError: no answer"),
}


@pytest.mark.parametrize(
    ("broken", "jobs"),
    each_on(((name, name) for name in BROKEN), on_spark=["latest", "write"]),
    indirect=["jobs"],
)
def test_a_connector_of_ones_own_that_raises(jobs: Shell, broken: str) -> None:
    code, vertex, says = BROKEN[broken]
    name = f"own-{broken}"
    text = line(name, before=_own(**{broken: code}), source="Broken()", sink="BrokenSink()")
    file = jobs.write(f"own_{broken}.py", text)
    said = jobs.drain(file)
    assert said.code == 1
    assert f"error: job '{name}', vertex '{vertex}': {says}" in said.err
    assert f"in {file}, line " in said.err


def test_a_service_that_is_not_there(jobs: Shell) -> None:
    jobs.fill("in", [1])
    sink = 'ps.HttpSink("http://127.0.0.1:1/x?token=secret", retries=0)'
    said = jobs.drain(jobs.write("posts.py", line("posts", sink=sink)))
    assert said.code == 1
    assert (
        "error: job 'posts', vertex 'out': POST http://127.0.0.1:1/x failed: ConnectionRefusedError"
        in said.err
    )
    assert "The records are kept: check the service and start the job again" in said.err
    assert "secret" not in said.err


def test_a_server_that_is_not_there(spark: Shell) -> None:
    source = "ps.SocketSource(port=1, patience=0.1)"
    file = spark.write("listens.py", line("listens", source=source))
    said = spark.run("run", file, "--for", "300s", "--master", "local[2]")
    assert said.code == 1
    assert "127.0.0.1:1" in said.err
    assert "in job 'listens', vertex 'in'" in said.err


def test_a_sink_whose_folder_is_a_file(jobs: Shell) -> None:
    jobs.fill("in", [1])
    sink = f'ps.FileSink("{jobs.write("taken", "")}")'
    said = jobs.drain(jobs.write("folder_is_file.py", line("taken", sink=sink)))
    assert said.code == 1
    assert f"FileSink: {jobs.home / 'taken'} cannot be written: " in said.err
    assert "in job 'taken', vertex 'out'" in said.err


def test_a_value_that_does_not_fit_a_parquet_schema(jobs: Shell) -> None:
    jobs.fill("in", [{"n": 1}, {"n": "one"}, {"n": 3}])
    folder = jobs.home / "table"
    sink = f'ps.FileSink("{folder}", schema="n long")'
    said = jobs.drain(jobs.write("fits_not.py", line("fits-not", sink=sink)))
    assert said.code == 1
    assert "error: job 'fits-not', vertex 'out': " in said.err
    assert list(folder.glob("*.parquet")) == []
    said = jobs.drain(jobs.write("fits.py", line("fits", sink=sink, options='on_error="discard"')))
    assert said.code == 0, said.err
    assert sorted(pq.read_table(folder).column("n").to_pylist()) == [1, 3]
    [(vertex, _, _, value)] = jobs.errors("fits")
    assert (vertex, value) == ("out", {"n": "one"})
