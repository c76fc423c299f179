"""Schemas as text, and values that fit them or do not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.connect.value_conversion import (
    arrow_schema,
    convert_value,
    read_schema,
    seconds_of,
    write_schema,
)
from penstock.errors import SettingError
from penstock.schema.arrow_arrays import arrow_type
from penstock.schema.ddl_parser import read_type
from penstock.schema.record_schema import Schema


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("-128", "byte", -128),
        (7, "long", 7),
        ("1e3", "double", 1000.0),
        (2, "float", 2.0),
        ("TRUE", "boolean", True),
        ("0", "boolean", False),
        (False, "boolean", False),
        ("", "string", ""),
        ("", "double", None),
        (None, "long", None),
        ("é", "binary", "é".encode()),
        ("2020-02-03", "date", date(2020, 2, 3)),
        ("2020-02-03T04:05:06Z", "timestamp", datetime(2020, 2, 3, 4, 5, 6, tzinfo=UTC)),
        ("2020-02-03 04:05", "timestamp", datetime(2020, 2, 3, 4, 5, tzinfo=UTC)),
        (60, "timestamp", datetime(1970, 1, 1, 0, 1, tzinfo=UTC)),
        ("2020-02-03T04:05:06+01:00", "timestamp_ntz", datetime(2020, 2, 3, 3, 5, 6)),
        ("1.10", "decimal(8,2)", Decimal("1.10")),
        (["1", None], "array<int>", [1, None]),
        ({"a": "1"}, "map<string,int>", {"a": 1}),
        ({"a": 1, "more": 2}, "struct<a: double, b: string>", {"a": 1.0, "b": None}),
    ],
)
def test_values_that_fit(value: Any, kind: str, expected: Any) -> None:
    found = convert_value(value, read_type(kind))
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("128", "byte"),
        (1 << 63, "long"),
        (1.5, "long"),
        (True, "long"),
        (True, "double"),
        ("x", "double"),
        (1, "boolean"),
        ("yes", "boolean"),
        (1, "string"),
        ("2020-13-01", "date"),
        ("soon", "timestamp"),
        ("x", "decimal(8,2)"),
        ("[1]", "array<int>"),
        (["x"], "array<int>"),
        ({}, "string"),
        ([], "map<string,int>"),
        ({"a": "x"}, "struct<a: double>"),
    ],
)
def test_values_that_do_not(value: Any, kind: str) -> None:
    with pytest.raises(ValueError, match="is not a "):
        convert_value(value, read_type(kind))


@pytest.mark.parametrize("value", [True, float("nan"), float("inf"), "inf", "", "x", [], 10**400])
def test_what_is_not_a_time(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        seconds_of(value)


def test_schemas_are_read_and_written() -> None:
    text = "`odd name` string not null, n long, d decimal(8,2), a array<array<int>>, t timestamp"
    columns = read_schema("FileSource", text)
    assert write_schema(columns) == text
    assert read_schema("FileSource", write_schema(columns)) == columns
    schema = arrow_schema(columns)
    assert schema.field("odd name") == pa.field("odd name", pa.string(), nullable=False)
    assert schema.field("a").type == arrow_type(read_type("array<array<int>>"))
    assert schema.field("d").type == pa.decimal128(8, 2)

    assert read_schema("FileSource", Schema.of(text)) == columns


def test_a_dataclass_is_a_schema_too() -> None:
    @dataclass
    class Order:
        user: str
        amount: float | None

    assert write_schema(read_schema("FileSource", Order)) == "user string not null, amount double"


@pytest.mark.parametrize("schema", ["", "n", "n int,", 3, None])
def test_what_is_not_a_schema(schema: Any) -> None:
    with pytest.raises(SettingError, match=r"^FileSource: "):
        read_schema("FileSource", schema)
