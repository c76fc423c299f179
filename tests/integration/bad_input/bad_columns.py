"""Wrong schemas, and vertices that work on columns and do not know which."""

from __future__ import annotations

from bad_rows import Row, line

COLUMNS = [
    Row(
        "schema-of-an-unknown-type",
        line(task_options='schema="user text"'),
        ("task 'work': schema 'user text', at 'text' (character 6): 'text' i",),
        "bad-schema",
    ),
    Row(
        "schema-is-a-number",
        line(task_options="input_schema=5"),
        ("task 'work': input_schema: a schema is text such as ", "not 5"),
        "bad-schema",
    ),
    Row(
        "schemas-that-do-not-fit",
        line(
            task_options='input_schema="user string, n long"',
            flow='source >> job.task("typed", lambda r: r, schema="user string") >> task >> sink',
        ),
        ("edge 'typed' -> 'work': the schema of 'typed' does not fit input_schema of 'work': ",),
        "schema-mismatch",
    ),
    Row(
        "columns-of-nobody-knows-what",
        line(task="ps.ArrowTask(lambda batch: batch)"),
        (
            "edge 'in' -> 'work': ArrowTask works on columns, and their schema is not declared: ",
            "declare schema= on 'in' or input_schema= on 'work'",
        ),
        "no-schema",
    ),
    Row(
        "empty-query",
        line(task='ps.Sql(" ")', task_options='input_schema="n long"'),
        ("task 'work': the query is empty",),
        "bad-sql",
    ),
    Row(
        "query-is-a-number",
        line(task="ps.Sql(7)", task_options='input_schema="n long"'),
        ("task 'work': the query must be text, not 7",),
        "bad-sql",
    ),
    Row(
        "arrow-function-of-two",
        line(task="ps.ArrowTask(lambda a, b: a)", task_options='input_schema="n long"'),
        ("task 'work': the function of ArrowTask must take one argument: missing a required argument: 'b'",),
        "bad-task",
    ),
    Row(
        "sql-in-a-loop",
        line(
            options="max_iterations=2",
            task='ps.Sql("select * from input")',
            task_options='input_schema="n long", schema="n long"',
            after="task >> task",
        ),
        ("task 'work': Spark runs it for a whole batch at a time, so it cannot be part of a loop",),
        "unsupported",
    ),
]
