"""SQL and DataFrame vertices on real Spark: alone, beside each other, and between vertices in Python."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import penstock as ps
from support.left_staged import left_staged
from support.running import MASTER

pytestmark = pytest.mark.usefixtures("spark_says")

SALES = "user string, amount double"


def sale(user: str, amount: Any) -> ps.Record:
    return ps.Record(user, {"user": user, "amount": amount}, 10.0)


def feed() -> list[ps.Record]:
    return [sale("ada", 3.0), sale("bob", -1.0), sale("ada", 4.5)]


def as_sets(records: list[ps.Record]) -> list[tuple[Any, ...]]:
    return sorted((record.key, sorted(record.value.items()), record.ts) for record in records)


def sql_job(*tasks: Any, schema: Any = SALES, **options: Any) -> ps.Job:
    job = ps.Job("sql")
    vertex = job.source("sales", ps.MemorySource(), schema=schema)
    for number, task in enumerate(tasks):
        vertex = vertex >> job.task(f"task{number}", task, **(options if number == len(tasks) - 1 else {}))
    vertex >> job.sink("out", ps.MemorySink())
    return job


def test_a_query_between_lists() -> None:
    job = sql_job(
        ps.Sql("SELECT _key, _ts, upper(user) AS who, amount * 2 AS twice FROM input WHERE amount > 0")
    )
    result = ps.testing.run(job, {"sales": feed()}, partitions=2)
    assert as_sets(result["out"]) == [
        ("ada", [("twice", 6.0), ("who", "ADA")], 10.0),
        ("ada", [("twice", 9.0), ("who", "ADA")], 10.0),
    ]
    assert result.report.vertices["task0"].records_in == 3
    assert result.report.vertices["task0"].records_out == 2


def test_sql_and_frames_side_by_side_between_python() -> None:
    job = ps.Job("mixed")
    sales = job.source("sales", ps.MemorySource())
    parse = job.task(
        "parse", lambda r: (r.value.split()[0], {"user": r.value.split()[0], "n": int(r.value.split()[1])}),
        schema="user string, n int",
    )  # fmt: skip
    double = job.task("double", ps.Sql("SELECT *, n * 2 AS m FROM input"))
    positive = job.task("positive", ps.Sql("SELECT * FROM input WHERE m > 0"))
    add = job.task("add", ps.DataFrameTask(lambda frame: frame.selectExpr("_key", "m + 1 AS m")))
    show = job.task("show", lambda r: (r.key, r.value["m"]))
    sales >> parse >> double >> positive >> add >> show >> job.sink("out", ps.MemorySink())
    result = ps.testing.run(job, {"sales": ["a 1", "b -3", "c 5"]}, batch=2)
    assert sorted((r.key, r.value) for r in result["out"]) == [("a", 3), ("c", 11)]
    assert result.report.batches == 2


def test_count_behind_a_query_keeps_its_state() -> None:
    job = ps.Job("counts")
    sales = job.source("sales", ps.MemorySource(), schema=SALES)
    paid = job.task("paid", ps.Sql("SELECT user AS _key, amount FROM input WHERE amount > 0"))
    sales >> paid >> job.task("count", ps.Count()) >> job.sink("out", ps.MemorySink())
    result = ps.testing.run(job, {"sales": feed() * 3}, batch=3, partitions=2)
    assert max(r.value for r in result["out"] if r.key == "ada") == 6
    assert {r.key for r in result["out"]} == {"ada"}


def test_a_query_behind_a_count_runs_in_the_next_batch() -> None:
    job = ps.Job("feedback")
    words = job.source("words", ps.MemorySource())
    count = job.task("count", ps.Count())
    shape = job.task("shape", lambda r: (r.key, {"word": r.key, "n": r.value}), schema="word string, n long")
    often = job.task("often", ps.Sql("SELECT _key, word, n * 10 AS n FROM input WHERE n > 1"))
    words >> count >> shape >> often >> job.sink("out", ps.MemorySink())
    result = ps.testing.run(job, {"words": [("a", 1), ("b", 1), ("a", 1)]})
    assert [(r.key, r.value) for r in result["out"]] == [("a", {"word": "a", "n": 20})]
    assert result.report.batches == 2


def test_two_ports_are_two_views() -> None:
    job = ps.Job("ports")
    both = job.task(
        "both",
        ps.Sql(
            "SELECT n, 'l' AS side FROM left UNION ALL SELECT n, 'r' FROM right", inputs=("left", "right")
        ),
    )
    job.source("a", ps.MemorySource(), schema="n long") >> both["left"]
    job.source("b", ps.MemorySource(), schema="n long") >> both["right"]
    both >> job.sink("out", ps.MemorySink())
    result = ps.testing.run(job, {"a": [{"n": 1}], "b": [{"n": 2}]})
    assert sorted((r.value["n"], r.value["side"]) for r in result["out"]) == [(1, "l"), (2, "r")]


def test_a_result_goes_to_several_places_and_back_into_spark() -> None:
    job = ps.Job("diamond")
    rows = job.source("rows", ps.MemorySource(), schema="n long")
    first = job.task("first", ps.Sql("SELECT n + 1 AS n FROM input"))
    python = job.task("python", lambda r: {"n": r.value["n"] * 100}, schema="n long")
    second = job.task("second", ps.Sql("SELECT n + 5 AS n FROM input"))
    rows >> first >> python >> second
    first >> second >> job.sink("out", ps.MemorySink())
    first >> job.sink("beside", ps.MemorySink())
    rows >> job.sink("raw", ps.MemorySink())
    result = ps.testing.run(job, {"rows": [{"n": 1}, {"n": 2}]})
    assert sorted(r.value["n"] for r in result["out"]) == [7, 8, 205, 305]
    assert sorted(r.value["n"] for r in result["beside"]) == [2, 3]
    assert sorted(r.value["n"] for r in result["raw"]) == [1, 2]


@dataclass
class Sale:
    user: str
    amount: float


def test_dataclasses_go_in_and_come_out() -> None:
    job = ps.Job("classes")
    sales = job.source("sales", ps.MemorySource(), schema=Sale)
    more = job.task("more", ps.Sql("SELECT user, amount + 1 AS amount FROM input"), schema=Sale)
    (
        sales
        >> more
        >> job.task("name", lambda r: type(r.value).__name__ + r.value.user)
        >> job.sink("out", ps.MemorySink())
    )
    result = ps.testing.run(job, {"sales": [Sale("ada", 1.0), {"user": "bob", "amount": 2.0}]})
    assert sorted(r.value for r in result["out"]) == ["Saleada", "Salebob"]


def test_arrow_tasks_work_on_batches() -> None:
    def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(1, "amount", pc.multiply(batch["amount"], 2))

    def rich(batch: pa.RecordBatch) -> pa.RecordBatch:
        chosen = batch.filter(pc.greater(batch["amount"], 5.0))
        return chosen.append_column("n", pa.array([1] * len(chosen))) if len(chosen) else None

    job = sql_job(ps.ArrowTask(twice), ps.ArrowTask(rich))
    result = ps.testing.run(job, {"sales": feed()})
    assert as_sets(result["out"]) == [
        ("ada", [("amount", 6.0), ("n", 1), ("user", "ada")], 10.0),
        ("ada", [("amount", 9.0), ("n", 1), ("user", "ada")], 10.0),
    ]


def test_an_arrow_task_that_raises_is_named() -> None:
    job = sql_job(ps.ArrowTask(lambda batch: batch.column("absent")))
    with pytest.raises(ps.TaskError) as caught:
        ps.testing.run(job, {"sales": feed()})
    assert caught.value.vertex == "task0"
    assert "absent" in caught.value.cause


def refused(job: ps.Job, sales: list[Any] | None = None) -> list[tuple[str, str]]:
    with pytest.raises(ps.GraphError) as caught:
        ps.testing.run(job, {"sales": sales or []})
    return [(problem.code, problem.message) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELEC user FROM input", "Syntax error at or near 'SELEC'"),
        ("SELECT usr FROM input", "cannot be resolved"),
        ("SELECT * FROM inputs", "cannot be found"),
        ("SELECT user, user FROM input", "two columns 'user'"),
        ("SELECT _key FROM input", "no columns beside the key and the time"),
        ("SELECT user, user AS _ts FROM input", "_ts of its result must be a number of seconds"),
        ("SELECT user, count(*) AS n FROM input GROUP BY user", "it aggregates within a batch"),
        ("SELECT DISTINCT user FROM input", "it removes duplicates within a batch"),
        ("SELECT * FROM input ORDER BY amount", "it sorts within a batch"),
        ("SELECT * FROM input LIMIT 3", "it limits the number of rows within a batch"),
        ("SELECT a.user FROM input a JOIN input b ON a.user = b.user", "it joins its input"),
        ("SELECT user FROM input WHERE amount > (SELECT max(amount) FROM input)", "Invalid subquery"),
    ],
)  # fmt: skip
def test_a_query_that_cannot_be_right_is_refused_before_the_start(query: str, reason: str) -> None:
    (problem,) = refused(sql_job(ps.Sql(query)))
    assert problem[0] == "bad-sql"
    assert "task 'task0'" in problem[1]
    assert reason in problem[1]


def test_a_frame_function_that_cannot_be_right_is_refused_before_the_start() -> None:
    assert "must return a DataFrame" in refused(sql_job(ps.DataFrameTask(lambda frame: 3)))[0][1]
    assert "ZeroDivisionError" in refused(sql_job(ps.DataFrameTask(lambda frame: 1 // 0)))[0][1]
    (problem,) = refused(sql_job(ps.DataFrameTask(lambda frame: frame.groupBy("user").count())))
    assert problem[0] == "bad-task"
    assert "use ps.Count()" in problem[1]
    (problem,) = refused(sql_job(ps.DataFrameTask(lambda frame: frame.limit(frame.count()))))
    assert problem[0] == "bad-task"


def test_a_join_with_a_table_is_fine() -> None:
    def named(frame: Any) -> Any:
        names = frame.sparkSession.createDataFrame([("ada", "Ada L.")], "user string, name string")
        return frame.join(names.groupBy("user", "name").count(), "user").select("name", "amount")

    result = ps.testing.run(sql_job(ps.DataFrameTask(named)), {"sales": feed()})
    assert sorted(r.value["amount"] for r in result["out"]) == [3.0, 4.5]


def test_a_result_that_does_not_fit_its_schema_is_refused_before_the_start() -> None:
    (problem,) = refused(typed_job())
    assert problem[0] == "schema-mismatch"
    assert "field 'amount' is double, not long" in problem[1]


def typed_job() -> ps.Job:
    job = ps.Job("typed")
    sales = job.source("sales", ps.MemorySource(), schema=SALES)
    work = job.task("work", ps.Sql("SELECT user, amount FROM input"), schema="user string, amount long")
    sales >> work >> job.sink("out", ps.MemorySink())
    return job


def test_a_record_that_does_not_fit_goes_into_the_errors() -> None:
    for job in (sql_job(ps.Sql("SELECT * FROM input")), sql_job(lambda r: r)):
        result = ps.testing.run(job, {"sales": [sale("ada", 1.0), sale("bob", "much")]})
        assert [r.value["user"] for r in result["out"]] == ["ada"]
        [failed] = result.errors
        assert (failed.vertex, failed.error) == ("sales", "SchemaMismatch")
        assert "field 'amount': 'much' is not a double" in failed.message
        assert failed.value["user"] == "bob"


def test_a_key_of_another_type_goes_into_the_errors() -> None:
    records = [ps.Record(7, {"user": "ada", "amount": 1.0})]
    result = ps.testing.run(sql_job(ps.Sql("SELECT * FROM input")), {"sales": records})
    assert (list(result["out"]), [f.message for f in result.errors]) == ([], ["its key: 7 is not a string"])
    result = ps.testing.run(sql_job(ps.Sql("SELECT * FROM input", key="long")), {"sales": records})
    assert [r.key for r in result["out"]] == [7]


def test_a_null_where_none_may_be_goes_into_the_errors() -> None:
    job = ps.Job("nulls")
    sales = job.source("sales", ps.MemorySource(), schema=SALES)
    work = job.task(
        "work", ps.Sql("SELECT nullif(user, 'bob') AS user FROM input"), schema="user string not null"
    )
    sales >> work >> job.sink("out", ps.MemorySink())
    result = ps.testing.run(job, {"sales": feed()})
    assert {(f.vertex, f.message) for f in result.errors} == {("work", "field 'user': must not be None")}
    assert len(result["out"]) + len(result.errors) == len(feed())


def test_what_spark_cannot_compute_names_the_vertex() -> None:
    job = sql_job(ps.Sql("SELECT * FROM input"), ps.Sql("SELECT CAST(user AS int) AS n FROM input"))
    with pytest.raises(ps.TaskError) as caught:
        ps.testing.run(job, {"sales": feed()})
    assert caught.value.vertex == "task1"
    assert "CAST_INVALID_INPUT" in caught.value.cause
    assert "\n" not in caught.value.cause


def test_a_frame_function_that_fails_in_a_batch_is_named() -> None:
    calls = []

    def later(frame: Any) -> Any:
        calls.append(frame)
        return frame if len(calls) == 1 else frame[len(calls) // 0]

    with pytest.raises(ps.TaskError, match="ZeroDivisionError") as caught:
        ps.testing.run(sql_job(ps.DataFrameTask(later)), {"sales": feed()})
    assert caught.value.vertex == "task0"


def write_files(folder: Path, files: int, rows: int = 10, *, native: bool = True) -> None:
    folder.mkdir()
    for number in range(files):
        values = [{"id": n, "name": f"n{n % 3}"} for n in range(number * rows, (number + 1) * rows)]
        if native:
            pq.write_table(pa.Table.from_pylist(values), folder / f"{number:03d}.parquet")
        else:
            (folder / f"{number:03d}.jsonl").write_text("\n".join(map(json.dumps, values)))


def files_job(tmp_path: Path, *, native: bool = True) -> ps.Job:
    # A key that only Python can compute makes Python read the files.
    key: Any = "name" if native else (lambda value: value["name"])
    format = "parquet" if native else "json"
    source = ps.FileSource(
        tmp_path / "in", format, schema="id long, name string", key=key, max_files_per_batch=2
    )
    job = ps.Job("files")
    even = job.task("even", ps.Sql("SELECT id * 10 AS id, _key AS name FROM input WHERE id % 2 = 0"))
    job.source("rows", source) >> even >> job.sink("out", ps.FileSink(tmp_path / "out"))
    return job


def rows_of(tmp_path: Path) -> list[dict[str, Any]]:
    files = sorted((tmp_path / "out").glob("*.parquet"))
    return [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]


@pytest.mark.parametrize("native", [True, pytest.param(False, marks=pytest.mark.full)])
def test_files_go_through_spark_alone(tmp_path: Path, native: bool) -> None:
    write_files(tmp_path / "in", 5, native=native)
    job = files_job(tmp_path, native=native)
    report = ps.run(job, master=MASTER, folder=tmp_path / "job")
    assert sorted(row["id"] for row in rows_of(tmp_path)) == [n * 10 for n in range(0, 50, 2)]
    assert {row["name"] for row in rows_of(tmp_path)} == {"n0", "n1", "n2"}
    assert report.batches == 3
    assert (report.records_in, report.records_out) == (50, 25)
    assert (report.vertices["even"].records_in, report.vertices["even"].records_out) == (50, 25)
    assert left_staged(tmp_path / "out" / ".penstock-staging") == []
    write_files(tmp_path / "more", 1, rows=2, native=native)
    (file,) = (tmp_path / "more").iterdir()
    file.rename(tmp_path / "in" / f"900{file.suffix}")
    assert ps.run(job, master=MASTER, folder=tmp_path / "job").batches == 1
    assert len(rows_of(tmp_path)) == 26
    assert ps.run(job, master=MASTER, folder=tmp_path / "job").batches == 0


def test_a_batch_that_happened_is_not_written_again(tmp_path: Path) -> None:
    write_files(tmp_path / "in", 4)
    job = files_job(tmp_path)
    ps.run(job, master=MASTER, folder=tmp_path / "job")
    # Spark has forgotten its last batch, as after a crash between the ledger's entry and Spark's own.
    for name in ("commits/1", "commits/.1.crc"):
        (tmp_path / "job" / "checkpoint" / name).unlink(missing_ok=True)
    before = sorted(row["id"] for row in rows_of(tmp_path))
    ps.run(job, master=MASTER, folder=tmp_path / "job")
    assert sorted(row["id"] for row in rows_of(tmp_path)) == before
