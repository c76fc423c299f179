"""Schemas: how they are declared, what fits them, and what they say when something does not."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Optional, Required, TypedDict

import pytest
from tests.unit.graph.samples import NoSink, NoSource

from penstock.errors import SettingError
from penstock.graph.job import Job
from penstock.graph.validation import find_problems
from penstock.schema.record_schema import Schema


@dataclass
class Event:
    user: str
    amount: float
    at: datetime
    tags: list[str]
    more: Optional[Mapping[str, int]]  # noqa: UP045
    size: Annotated[int, "short"]


class Loose(TypedDict, total=False):
    user: Required[str]
    amount: float | None


@dataclass
class Node:
    children: list[Node]


@dataclass
class Computed:
    n: int = field(init=False)


@dataclass
class Anything:
    what: object


def test_all_types_have_a_name() -> None:
    given = (
        "a STRING, b boolean, c tinyint, d smallint, e integer, f bigint, g real, h double, i numeric(5),"
        " j binary, k date, l timestamp, m timestamp_ntz,"
        " `odd name` array<map<string, struct<x: int NOT NULL>>>"
    )
    assert Schema.of(given).ddl == (
        "a string, b boolean, c byte, d short, e int, f long, g float, h double, i decimal(5,0), j binary,"
        " k date, l timestamp, m timestamp_ntz, `odd name` array<map<string,struct<x: int not null>>>"
    )


def test_a_dataclass_is_a_schema() -> None:
    schema = Schema.of(Event)
    assert schema.ddl == (
        "user string not null, amount double not null, at timestamp not null, tags array<string> not null,"
        " more map<string,long>, size short not null"
    )
    event = Event("ada", 1, datetime.now(UTC), [], None, 3)
    assert schema.check(event) is None
    assert (
        schema.check({**vars(event), "size": 1 << 15}) == "field 'size': 32768 is out of the range of short"
    )


def test_a_typed_dict_is_a_schema() -> None:
    schema = Schema.of(Loose)
    assert [(f.name, f.nullable, f.optional) for f in schema.fields] == [
        ("user", False, False),
        ("amount", True, True),
    ]
    assert schema.check({"user": "ada"}) is None
    assert schema.check({"amount": 1.0}) == "field 'user': missing"


def test_a_schema_travels() -> None:
    schema = Schema.of(Event)
    assert schema.rebuild is not None
    again = pickle.loads(pickle.dumps(schema))
    assert again == schema
    assert hash(again) == hash(schema)
    assert Schema.of(schema) is schema


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("user strin", "at 'strin' (character 6): 'strin' is not a type"),
        ("user", "at its end: a type was expected"),
        ("", "at its end: the name of a field was expected"),
        ("a int b int", "at 'b' (character 7): ',' was expected"),
        ("a int, A int", "the field 'A' is declared twice"),
        ("a array<int", "'>' was expected"),
        ("a decimal(40,2)", "a decimal has 1 to 38 digits"),
        ("a int not", "NULL was expected after NOT"),
        ("a int; b", "at ';'"),
        ("_key string", "a schema has no field '_key'"),
        (3, "not 3"),
        (int, "not <class int>"),
        (Node, "schema Node: it contains itself"),
        (Computed, "schema Computed.n: a field with init=False"),
        (Anything, "schema Anything.what: columns cannot hold object"),
    ],
)
def test_what_cannot_be_read_is_named(given: Any, reason: str) -> None:
    with pytest.raises(SettingError) as caught:
        Schema.of(given)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("double", 3, None),
        ("long", 3.0, "3.0 is not a long"),
        ("long", True, "True is not a long"),
        ("double", False, "False is not a double"),
        ("string not null", None, "must not be None"),
        ("string", None, None),
        ("string", "\ud800", "'\\ud800' is not text that UTF-8 can encode"),
        ("decimal(4,2)", Decimal("12.340"), None),
        ("decimal(4,2)", Decimal("12.345"), "12.345 has more digits than decimal(4,2)"),
        ("decimal(4,2)", 99, None),
        ("decimal(4,2)", Decimal("Infinity"), "<Decimal> is not a decimal(4,2)"),
        ("array<int>", [1, None], None),
    ],
)
def test_what_fits(kind: str, value: Any, reason: str | None) -> None:
    expected = None if reason is None else f"field 'f': {reason}"
    assert Schema.of(f"f {kind}").check({"f": value}) == expected


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("text", "'text' is not a dict"),
        ({}, "field 'a': missing"),
        ({"a": {"b": [1, "x"]}}, "field 'a'.b[1]: 'x' is not a int"),
        ({"a": {"b": []}, "z": 1}, "value: has a field 'z' that is not declared"),
        ({"a": {"b": [], "z": 1}}, "field 'a': has a field 'z' that is not declared"),
    ],
)
def test_what_does_not_fit_is_named(value: Any, reason: str) -> None:
    assert Schema.of("a struct<b: array<int>>").check(value) == reason


@pytest.mark.parametrize(
    ("mine", "wanted", "reasons"),
    [
        ("a int", "a long", []),
        ("a long", "a int", ["field 'a' is long, not int"]),
        ("a int", "a double", []),
        ("a double", "a long", ["field 'a' is double, not long"]),
        ("a decimal(5,2)", "a decimal(6,3)", []),
        ("a decimal(5,2)", "a decimal(5,3)", ["field 'a' is decimal(5,2), not decimal(5,3)"]),
        ("a int", "a int not null", ["field 'a' may be None, and must not be"]),
        ("a int, b int", "a int", ["field 'b' is not declared there"]),
        ("a int", "a int, b int", ["field 'b' is missing"]),
        ("a array<struct<x: int>>", "a array<struct<x: long>>", []),
        (
            "a map<string,int>",
            "a map<string,string>",
            ["field 'a' is map<string,int>, not map<string,string>"],
        ),
    ],
)
def test_schemas_that_fit_one_another(mine: str, wanted: str, reasons: list[str]) -> None:
    assert Schema.of(mine).mismatches(Schema.of(wanted)) == reasons


def _job(schema: Any, input_schema: Any) -> Job:
    job = Job("typed")
    lines = job.source("lines", NoSource(), schema=schema)
    lines >> job.task("parse", lambda r: r, input_schema=input_schema) >> job.sink("out", NoSink())
    return job


def test_an_edge_between_schemas_that_do_not_fit_is_a_problem() -> None:
    (problem,) = find_problems(_job("n string, m int", "n long, m int"))
    assert problem.code == "schema-mismatch"
    assert problem.message == (
        "edge 'lines' -> 'parse': the schema of 'lines' does not fit input_schema of 'parse':"
        " field 'n' is string, not long"
    )
    assert find_problems(_job("n int, m int", "n long, m int")) == []
    assert find_problems(_job(None, "n long")) == []


def test_a_schema_that_cannot_be_read_is_a_problem() -> None:
    first, second = find_problems(_job("n strin", 7))
    assert (first.code, first.vertex) == ("bad-schema", "lines")
    assert "source 'lines': schema 'n strin', at 'strin'" in first.message
    assert (second.code, second.vertex) == ("bad-schema", "parse")
    assert "task 'parse': input_schema: a schema is text" in second.message


def test_the_document_has_the_schema() -> None:
    vertices = _job("n BIGINT", None).to_dict()["vertices"]
    assert [vertex["schema"] for vertex in vertices] == ["n long", None, None]
    assert _job(7, None).to_dict()["vertices"][0]["schema"] == 7
