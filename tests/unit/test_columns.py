"""Typed columns: nothing is lost on the way, and nothing that does not fit gets in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NotRequired, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns import Columns
from penstock.record import Record
from penstock.schema.arrow_arrays import arrow_schema
from penstock.schema.data_types import ArrayType, DataType, DecimalType, Field, MapType, PlainType, StructType
from penstock.schema.record_schema import Schema

zones = st.sampled_from([UTC, timezone(timedelta(hours=5))])
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
whole = {name: st.integers(-(1 << bits), (1 << bits) - 1) for name, bits in
         {"byte": 7, "short": 15, "int": 31, "long": 63}.items()}  # fmt: skip
plain: dict[str, st.SearchStrategy[Any]] = {
    "string": text,
    "boolean": st.booleans(),
    **whole,
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "binary": st.binary(max_size=5),
    "date": st.dates(),
    "timestamp": st.datetimes(
        datetime(2, 1, 1),
        datetime(9998, 1, 1),
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=5))]),
    ),
    "timestamp_ntz": st.datetimes(),
}


def types() -> st.SearchStrategy[DataType]:
    simple = st.sampled_from(sorted(plain)).map(PlainType) | st.just(DecimalType(12, 3))
    return st.recursive(
        simple,
        lambda inner: (
            inner.map(ArrayType)
            | st.builds(MapType, st.sampled_from(["string", "long"]).map(PlainType), inner)
            | fields(inner).map(StructType)
        ),
        max_leaves=4,
    )


def fields(kinds: st.SearchStrategy[DataType]) -> st.SearchStrategy[tuple[Field, ...]]:
    names = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True)
    return names.flatmap(
        lambda chosen: st.tuples(*(st.builds(Field, st.just(name), kinds, st.booleans()) for name in chosen))
    )


def values(kind: DataType) -> st.SearchStrategy[Any]:
    if isinstance(kind, PlainType):
        return plain[kind.name]
    if isinstance(kind, DecimalType):
        return st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-kind.scale))
    if isinstance(kind, ArrayType):
        return st.lists(st.none() | values(kind.element), max_size=3)
    if isinstance(kind, MapType):
        return st.dictionaries(values(kind.key), st.none() | values(kind.value), max_size=3)
    return st.fixed_dictionaries(
        {f.name: (st.none() | values(f.type)) if f.nullable else values(f.type) for f in kind.fields}
    )


@st.composite
def schemas_with_records(draw: st.DrawFn) -> tuple[Schema, list[Record]]:
    schema = Schema(StructType(draw(fields(types()))))
    keys = draw(st.sampled_from([st.none(), st.none() | text, st.integers(), st.tuples(text, st.integers())]))
    times = draw(st.sampled_from([st.none(), st.none() | st.floats(0, 1e9)]))
    return schema, draw(st.lists(st.builds(Record, keys, values(schema.struct), times), max_size=6))


@settings(deadline=None)
@given(schemas_with_records())
def test_records_come_out_as_they_went_in(drawn: tuple[Schema, list[Record]]) -> None:
    schema, records = drawn
    columns, rejected = Columns.of(records, schema)
    assert rejected == []
    assert columns.records() == records
    assert columns.values.schema == arrow_schema(schema)


@settings(deadline=None)
@given(schemas_with_records(), st.data())
def test_what_fits_one_by_one_fits_together(drawn: tuple[Schema, list[Record]], data: st.DataObject) -> None:
    schema, records = drawn
    strange = (
        st.none()
        | st.integers()
        | text
        # What a column of 32 bits would round is not given back as it was.
        | st.floats(allow_nan=False, width=32)
        | st.booleans()
        | st.lists(st.integers())
    )
    spoilt = []
    for record in records:
        value = dict(record.value)
        name = data.draw(st.sampled_from([*value, "other"]))
        value[name] = data.draw(strange)
        spoilt.append(Record(record.key, value, record.ts))
    columns, rejected = Columns.of([*records, *spoilt], schema)
    wrong = [(record, schema.check(record.value)) for record in spoilt]
    assert rejected == [(record, reason) for record, reason in wrong if reason is not None]
    assert columns.records() == [*records, *(record for record, reason in wrong if reason is None)]


@settings(deadline=None)
@given(fields(types()))
def test_the_text_of_a_schema_is_the_schema(drawn: tuple[Field, ...]) -> None:
    schema = Schema(StructType(drawn))
    assert Schema.of(schema.ddl) == schema


@dataclass(frozen=True)
class Price:
    amount: Decimal
    currency: str


@dataclass(frozen=True)
class Order:
    user: str
    prices: list[Price]
    note: str | None = None


class Seen(TypedDict):
    user: str
    note: NotRequired[str]


def test_dataclasses_come_back_as_dataclasses() -> None:
    orders = [
        Record("a", Order("ada", [Price(Decimal(3), "EUR"), Price(Decimal("2.5"), "CHF")])),
        Record("b", Order("bob", [], "none")),
    ]
    columns, rejected = Columns.of(orders, Schema.of(Order))
    assert not rejected
    assert columns.records() == orders


@dataclass(kw_only=True)
class Named:
    user: str
    n: int


def test_plain_dataclasses_come_back_however_they_are_made() -> None:
    for cls in (Named, Price):
        given_fields: dict[str, Any] = {"user": "ada", "n": 1}
        if cls is Price:
            given_fields = {"amount": Decimal(1), "currency": "EUR"}
        records = [Record(None, cls(**given_fields))]
        assert Columns.of(records, Schema.of(cls))[0].records() == records


def test_a_dict_of_the_fields_becomes_the_dataclass() -> None:
    given_dict = Record(None, {"user": "ada", "prices": [], "note": None})
    columns, rejected = Columns.of([given_dict, Record(None, Order("bob", []))], Schema.of(Order))
    assert not rejected
    assert [record.value for record in columns.records()] == [Order("ada", []), Order("bob", [])]


def test_a_field_that_may_be_left_out_is_left_out_again() -> None:
    records = [Record(None, {"user": "ada"}), Record(None, {"user": "bob", "note": "x"})]
    columns, rejected = Columns.of(records, Schema.of(Seen))
    assert not rejected
    assert columns.records() == records


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", 1), ("string", b"a"), ("binary", "a"), ("long", 1.0), ("long", True), ("boolean", 1),
        ("date", datetime(2026, 1, 1)), ("timestamp", date(2026, 1, 1)), ("timestamp", datetime(2026, 1, 1)),
        ("timestamp_ntz", datetime(2026, 1, 1, tzinfo=UTC)), ("double", "1"), ("double", Decimal(1)),
        ("double", 2**53 + 1), ("byte", 128), ("decimal(4,2)", 1.5), ("decimal(4,2)", Decimal("100")),
        ("array<long>", (1, "a")), ("map<string,long>", {"a": "b"}), ("struct<a: int>", {}),
        ("struct<a: int>", {"a": 1, "b": 2}),
    ],
)  # fmt: skip
def test_arrow_is_not_let_to_change_a_value(kind: str, value: Any) -> None:
    record = Record("k", {"f": value})
    columns, rejected = Columns.of([record], Schema.of(f"f {kind}"))
    assert len(columns) == 0
    assert [found for found, _ in rejected] == [record]
    assert "f" in rejected[0][1]


def test_values_of_subclasses_fit() -> None:
    class Name(str):
        __slots__ = ()

    columns, rejected = Columns.of(
        [Record(None, {"n": Name("ada"), "t": (1, 2)})], Schema.of("n string, t array<int>")
    )
    assert not rejected
    assert columns.records() == [Record(None, {"n": "ada", "t": [1, 2]})]


def test_keys_of_several_types_stay_as_they_are() -> None:
    records = [Record(key, {"n": 1}) for key in ("a", 1, ("a", 1), None, 2**70)]
    columns, _ = Columns.of(records, Schema.of("n int"))
    assert columns.records() == records
