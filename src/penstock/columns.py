"""Records with a schema, column by column: how typed records travel between vertices that can use columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import accumulate, chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from penstock.record import Record

if TYPE_CHECKING:
    from penstock.graph.schema import DataType, Field, Schema

_PYTHON: dict[str, set[type]] = {
    "string": {str},
    "boolean": {bool},
    "byte": {int},
    "short": {int},
    "int": {int},
    "long": {int},
    "float": {int, float},
    "double": {int, float},
    "binary": {bytes},
    "date": {date},
    "timestamp": {datetime},
    "timestamp_ntz": {datetime},
}
"""What Arrow may be given for a type: it would take more, and change it without a word."""

_KEYS = {str, int, float, bool, bytes}
_NONE = type(None)


class Columns:
    """Many records of one schema: an Arrow record batch of their values, and columns of keys and times."""

    __slots__ = ("_records", "keys", "schema", "times", "values")

    def __init__(
        self, values: Any, keys: Any = None, times: Any = None, schema: Schema | None = None
    ) -> None:
        self.values = values
        """A ``pyarrow.RecordBatch`` with a column for each field of the schema."""
        self.keys = keys
        """A ``pyarrow.Array``, a list where they are not of one plain type, or None where there are none."""
        self.times = times
        """A ``pyarrow.Array`` of float64 seconds, or None where no record has a time."""
        self.schema = schema
        """What the values were declared as, where they were."""
        self._records: list[Record] | None = None

    @classmethod
    def of(cls, records: list[Record], schema: Schema) -> tuple[Columns, list[tuple[Record, str]]]:
        """Return records as columns, and those that do not fit the schema with the reasons."""
        rejected: list[tuple[Record, str]] = []
        try:
            arrays = _top_arrays(schema, [record[1] for record in records], strict=True)
        except _FAULTS:
            # Somewhere is a value that does not fit, or one that does and is no plain one: look at each.
            records, arrays, rejected = _sort_out(records, schema)
        batch = _batch(arrays, len(records), schema)
        keys = _key_column([record[0] for record in records])
        return cls(batch, keys, _time_column([record[2] for record in records]), schema), rejected

    def __len__(self) -> int:
        return int(self.values.num_rows)

    def records(self) -> list[Record]:
        """Return the records, made once; the value of each is a dict of its fields, or its dataclass."""
        if self._records is None:
            count = len(self)
            keys = _listed(self.keys, count)
            times = _listed(self.times, count)
            self._records = list(map(Record, keys, self._values(), times))
        return self._records

    def _values(self) -> list[Any]:
        names = self.values.schema.names
        lists = [column.to_pylist() for column in self.values.columns]
        if self.schema is not None and self.schema.positional is not None:
            return list(map(self.schema.positional, *lists))
        rows: Any = zip(*lists, strict=True) if lists else ((),) * len(self)
        plain = [dict(zip(names, row, strict=True)) for row in rows]
        rebuild = self.schema.rebuild if self.schema is not None else None
        return plain if rebuild is None else list(map(rebuild, plain))


def arrow_schema(schema: Schema) -> Any:
    """Return the schema as Arrow has it."""
    import pyarrow as pa

    return pa.schema([_arrow_field(field) for field in schema.fields])


def arrow_type(kind: DataType) -> Any:
    """Return the Arrow type of a field's type."""
    import pyarrow as pa

    form = type(kind).__name__
    parts: Any = kind
    if form == "DecimalType":
        return pa.decimal128(parts.precision, parts.scale)
    if form == "ArrayType":
        return pa.list_(pa.field("element", arrow_type(parts.element)))
    if form == "MapType":
        return pa.map_(arrow_type(parts.key), arrow_type(parts.value))
    if form == "StructType":
        return pa.struct([_arrow_field(field) for field in parts.fields])
    types = {
        "string": pa.string(),
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    return types[parts.name]


class _UnfitError(ValueError):
    """Some value is not of exactly the type that Arrow must be given."""


# Arrow's own errors are subclasses of these; so is what Python raises for surrogates in text.
_FAULTS = (ValueError, TypeError, OverflowError, KeyError, NotImplementedError)


def _sort_out(
    records: list[Record], schema: Schema
) -> tuple[list[Record], list[Any], list[tuple[Record, str]]]:
    good: list[Record] = []
    rejected: list[tuple[Record, str]] = []
    for record in records:
        reason = schema.check(record[1])
        if reason is None:
            good.append(record)
        else:
            rejected.append((record, reason))
    try:
        return good, _top_arrays(schema, [record[1] for record in good], strict=False), rejected
    except _FAULTS:
        # The check knows no fault, and Arrow does: let it say of which record.
        kept = []
        for record in good:
            try:
                _top_arrays(schema, [record[1]], strict=False)
                kept.append(record)
            except _FAULTS as error:
                rejected.append((record, f"it has no form in columns ({error})"))
        return kept, _top_arrays(schema, [record[1] for record in kept], strict=False), rejected


def _batch(arrays: list[Any], count: int, schema: Schema) -> Any:
    import pyarrow as pa

    assert arrays or not count, "a schema has fields"
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema))


def _top_arrays(schema: Schema, values: list[Any], *, strict: bool) -> list[Any]:
    return _struct_arrays(schema.fields, schema.cls, values, strict)


def _struct_arrays(fields: Sequence[Field], cls: type | None, values: list[Any], strict: bool) -> list[Any]:
    """Build a column for each field of values that are there, none of them None."""
    kinds = set(map(type, values))
    read: Callable[[str], list[Any]]
    if cls is not None and kinds == {cls}:
        read = lambda name: list(map(attrgetter(name), values))  # noqa: E731
    elif kinds <= {dict}:
        optional = any(field.optional for field in fields)
        names = {field.name for field in fields}
        if strict and (not names.issuperset(*values) if optional else set(map(len, values)) - {len(fields)}):
            raise _UnfitError("a field is missing or not declared")
        if optional:
            read = lambda name: [value.get(name) for value in values]  # noqa: E731
        else:
            read = lambda name: [value[name] for value in values]  # noqa: E731
    elif strict:
        raise _UnfitError("not a dict")
    else:
        read = lambda name: [_get(value, name) for value in values]  # noqa: E731
    arrays = []
    for field in fields:
        column = read(field.name)
        if strict and not (field.nullable or field.optional) and _NONE in set(map(type, column)):
            raise _UnfitError(f"{field.name} is None")
        # None and left out look the same in a column, and only one of them may be allowed.
        if strict and field.optional and not field.nullable and _has_none(values, field.name):
            raise _UnfitError(f"{field.name} is None")
        arrays.append(_array(field.type, column, strict))
    return arrays


def _has_none(values: list[dict[str, Any]], name: str) -> bool:
    return any(value.get(name, name) is None for value in values)


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name)


def _array(kind: DataType, values: list[Any], strict: bool) -> Any:
    import pyarrow as pa

    form = type(kind).__name__
    parts: Any = kind
    if form == "StructType":
        present = [value for value in values if value is not None]
        arrays = _struct_arrays(parts.fields, parts.cls, present, strict)
        whole = pa.StructArray.from_arrays(arrays, fields=[_arrow_field(field) for field in parts.fields])
        if len(present) == len(values):
            return whole
        where = accumulate((value is not None for value in values), initial=0)
        places = [None if value is None else place for value, place in zip(values, where, strict=False)]
        return whole.take(pa.array(places, pa.int64()))
    if form in ("ArrayType", "MapType"):
        wanted = {list} if form == "ArrayType" else {dict}
        if strict and set(map(type, values)) - wanted - {_NONE}:
            raise _UnfitError(f"not {kind.ddl}")
        offsets: list[int | None] = list(accumulate((len(value or ()) for value in values), initial=0))
        for index, value in enumerate(values):
            if value is None:
                offsets[index] = None
        starts = pa.array(offsets, pa.int32())
        if form == "ArrayType":
            flat = list(chain.from_iterable(value or () for value in values))
            return pa.ListArray.from_arrays(
                starts, _array(parts.element, flat, strict), type=arrow_type(kind)
            )
        keys = list(chain.from_iterable(value or () for value in values))
        items = list(chain.from_iterable((value or {}).values() for value in values))
        return pa.MapArray.from_arrays(
            starts, _array(parts.key, keys, strict), _array(parts.value, items, strict), type=arrow_type(kind)
        )
    if strict:
        name = getattr(kind, "name", "")
        found = set(map(type, values)) - {_NONE}
        if found - (_PYTHON[name] if name else {int, Decimal}):
            raise _UnfitError(f"not {kind.ddl}")
        if datetime in found:
            aware = name == "timestamp"
            if any(value is not None and (value.tzinfo is not None) is not aware for value in values):
                raise _UnfitError("a time zone is missing or too much")
    return pa.array(values, arrow_type(kind))


def _arrow_field(field: Field) -> Any:
    import pyarrow as pa

    return pa.field(field.name, arrow_type(field.type), field.nullable or field.optional)


def _key_column(keys: list[Any]) -> Any:
    found = set(map(type, keys)) - {_NONE}
    if not found:
        return None
    if len(found) == 1 and found <= _KEYS:
        import pyarrow as pa

        try:
            return pa.array(keys)
        except _FAULTS:  # Whole numbers too large for a column, text that UTF-8 cannot hold.
            return keys
    return keys


def _time_column(times: list[float | None]) -> Any:
    if set(map(type, times)) <= {_NONE}:
        return None
    import pyarrow as pa

    return pa.array(times, pa.float64())


def _listed(column: Any, count: int) -> list[Any]:
    if column is None:
        return [None] * count
    return column if isinstance(column, list) else column.to_pylist()
