"""Job files that cannot be used, options that cannot be read, connectors that were asked for nonsense."""

from __future__ import annotations

from bad_rows import IMPORT, Row, Shell, line, rows

GOOD = line()

FILES = [
    Row("syntax-error", "x = (", (".py, line 1: '(' was never closed",)),
    Row("indentation", "if True:\nx = 1", (".py, line 2: expected an indented block",)),
    Row(
        "import-error",
        "import nowhere_to_be_found",
        (".py, line 1: ModuleNotFoundError: No module named 'nowhere_to_be_found'",),
    ),
    Row("no-job", "x = 1", (".py defines no job: create one with ps.Job(...) at the top level",)),
    Row(
        "two-jobs",
        f'{IMPORT}a = ps.Job("one")\nb = ps.Job("two")',
        (".py defines several jobs: choose one with ", ":NAME, of a, b"),
    ),
    Row("raises", f"{IMPORT}\nprices = {{}}\nprices['tea']", (".py, line 4: KeyError: 'tea'",)),
    Row(
        "raises-what-cannot-be-shown",
        "class Odd(Exception):\n    def __str__(self): raise ValueError('no')\nraise Odd",
        (".py, line 3: Odd (whose message cannot be shown)",),
    ),
    Row(
        "endless-recursion",
        "def f(): return f()\nf()",
        (".py, line 1: RecursionError: maximum recursion depth exceeded",),
    ),
    Row("exits", "import sys\nsys.exit(3)", (".py ends the program (exit code 3) when it is imported",)),
    Row("null-byte", "x = 1\0", (".py", "source code string cannot contain null bytes")),
    Row("edge-to-a-number", line(after="source >> 5"), (".py, line 9: TypeError: ", "not 5")),
    Row(
        "syntax-error-in-a-module-beside",
        "import beside_broken",
        ("beside_broken.py, line 1: '(' was never closed",),
    ),
]


@rows(FILES)
def test_a_file_that_is_not_a_job(shell: Shell, row: Row) -> None:
    shell.write("beside_broken.py", "def broken(")
    file = shell.write(f"bad_{row.name.replace('-', '_')}.py", row.file)
    for command in ("explain", "run"):
        said = shell.run(command, file)
        assert said.code == 1
        assert said.err.startswith("error: ")
        assert said.err.count("\n") == 1
        for words in row.says:
            assert words in said.err


def test_a_file_that_is_not_there(shell: Shell) -> None:
    for target in ("missing.py", "missing.py:job"):
        said = shell.run("run", target)
        assert (said.code, said.err) == (1, "error: there is no file missing.py\n")
    assert "there is no file" in shell.run("run", str(shell.home)).err


def test_a_job_that_is_not_in_the_file(shell: Shell) -> None:
    file = shell.write("good_job.py", GOOD)
    said = shell.run("run", f"{file}:nope")
    assert (said.code, said.err) == (1, f"error: {file} has no job 'nope': it has job\n")


def test_a_file_that_is_not_python(shell: Shell) -> None:
    said = shell.run("run", shell.write("data.csv", "a,b\n1,2\n"))
    assert (said.code, said.err) == (1, f"error: {shell.home / 'data.csv'} is not a Python file\n")


def test_a_file_that_is_not_text(shell: Shell) -> None:
    (shell.home / "binary.py").write_bytes(b"\x80\x81\x82")
    said = shell.run("run", str(shell.home / "binary.py"))
    assert said.code == 1
    assert said.err.startswith(f"error: {shell.home / 'binary.py'}, line 1: (unicode error)")


OPTIONS = [
    Row(
        "for-nonsense",
        GOOD,
        ("'soon' is not a duration: write 250ms, 30s, 5m, 1h or 7d",),
        command=("--for", "soon"),
    ),
    Row("for-below-0", GOOD, ("'-5s' is not a duration",), command=("--for", "-5s")),
    Row("until-nonsense", GOOD, ("--until takes 'drained', not 'later'",), command=("--until", "later")),
    Row(
        "for-and-until",
        GOOD,
        ("--for and --until exclude each other",),
        command=("--for", "1s", "--until", "drained"),
    ),
    Row(
        "conf-without-a-value",
        GOOD,
        ("--conf takes spark.NAME=VALUE, not 'nonsense'",),
        command=("--conf", "nonsense"),
    ),
    Row(
        "conf-of-somebody-else",
        GOOD,
        ("--conf takes spark.NAME=VALUE, not 'x=1'",),
        command=("--conf", "x=1"),
    ),
    Row("output-nonsense", GOOD, ("'xml' is not one of 'text', 'json'",), command=("-o", "xml")),
    Row("unknown-option", GOOD, ("No such option: --sometimes",), command=("--sometimes",)),
]


@rows(OPTIONS)
def test_an_option_that_cannot_be_read(shell: Shell, row: Row) -> None:
    said = shell.run("run", shell.write("good_job.py", row.file), *row.command)
    assert said.code == 2
    for words in row.says:
        assert words in said.one_line()


CONNECTORS = [
    Row(
        "file-source-format",
        'ps.FileSource("x", "xml")',
        ("FileSource: format is one of 'lines', 'csv', 'json', 'parquet', not 'xml'",),
    ),
    Row(
        "csv-without-header-and-schema",
        'ps.FileSource("x", "csv", header=False)',
        ("FileSource: CSV files without a header need schema= for the names of the columns",),
    ),
    Row(
        "file-source-schema",
        'ps.FileSource("x", "csv", schema="user text")',
        ("FileSource: schema 'user text', at 'text' (character 6): 'text' is not a type: use one of ",),
    ),
    Row("file-source-folder", 'ps.FileSource("")', ("FileSource: folder takes a path, not ''",)),
    Row(
        "file-source-key",
        'ps.FileSource("x", key="user")',
        ("FileSource: a line has no fields, so key takes a function of the line",),
    ),
    Row(
        "file-source-separator",
        'ps.FileSource("x", "csv", separator=";;")',
        ("FileSource: separator takes one character, not ';;'",),
    ),
    Row("rate-of-0", "ps.RateSource(0)", ("RateSource: per_second takes a number above 0, not 0",)),
    Row(
        "socket-port",
        "ps.SocketSource(port=70000)",
        ("SocketSource: port takes a number up to 65535, not 70000",),
    ),
    Row(
        "memory-partitions",
        "ps.MemorySource([], partitions=0)",
        ("MemorySource: partitions takes a whole number of at least 1, not 0",),
    ),
    Row("memory-items", "ps.MemorySource(5)", ("MemorySource: items takes",)),
    Row("log-source-name", 'ps.LogSource("../x")', ("'../x' cannot name a log: use 1 to 200 letters",)),
    Row(
        "log-source-limit",
        'ps.LogSource("in", max_records_per_batch=0)',
        ("LogSource: max_records_per_batch takes a whole number of at least 1, or None, not 0",),
    ),
    Row(
        "file-sink-format",
        'ps.FileSink("x", "csv")',
        ("FileSink: format is one of 'parquet', 'json', not 'csv'",),
    ),
    Row(
        "file-sink-compression",
        'ps.FileSink("x", compression="rar")',
        ("FileSink: compression is one of 'zstd', 'snappy', 'gzip', 'none', not 'rar'",),
    ),
    Row(
        "file-sink-address",
        'ps.FileSink("s3a://bucket/out")',
        ("FileSink: folder takes a path of a mounted file system, not s3a://bucket/out",),
    ),
    Row(
        "file-source-address",
        'ps.FileSource("hdfs://host/in")',
        ("FileSource: folder takes a path of a mounted file system, not hdfs://host/in",),
    ),
    Row(
        "log-root-address",
        'ps.LogSource("in", root="gs://bucket")',
        ("root takes a path of a mounted file system, not gs://bucket",),
    ),
    Row(
        "staging-address",
        'ps.ForeachBatchSink(print, folder="abfss://box@host/dir")',
        ("folder takes a path of a mounted file system, not abfss://box@host/dir",),
    ),
    Row(
        "http-sink-scheme",
        'ps.HttpSink("file:///etc/passwd")',
        ("HttpSink: url takes an address that begins with http:// or https://",),
    ),
    Row(
        "http-sink-password",
        'ps.HttpSink("http://a:secret@b/")',
        ("HttpSink: url contains a user or a password",),
    ),
    Row("foreach-batch", "ps.ForeachBatchSink(3)", ("ForeachBatchSink: function takes a function, not 3",)),
    Row(
        "log-sink-partitions",
        'ps.LogSink("out", partitions=0)',
        ("LogSink: partitions takes a whole number of at least 1, or None, not 0",),
    ),
    Row("log-sink-name", "ps.LogSink(7)", ("7 cannot name a log",)),
]


@rows(CONNECTORS)
def test_a_connector_that_is_asked_for_nonsense(shell: Shell, row: Row) -> None:
    text = line(sink=row.file) if "Sink(" in row.file else line(source=row.file)
    number = 1 + text.splitlines().index(next(one for one in text.splitlines() if row.file in one))
    file = shell.write(f"bad_{row.name.replace('-', '_')}.py", text)
    said = shell.run("run", file)
    assert said.code == 1
    assert said.err.startswith(f"error: {file}, line {number}: SettingError: "), said.err
    assert "secret" not in said.err
    for words in row.says:
        assert words in said.err
