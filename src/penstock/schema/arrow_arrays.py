"""Conversion of Python values to Arrow arrays.

``array_of`` builds small arrays of plain values without importing pandas (0.4 s); ``build_arrays`` builds
the columns of a schema and rejects values that Arrow would convert silently.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import accumulate, chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.schema.record_schema import DataType, Field, Schema


_SMALL = 10_000
"""Above this size pyarrow is worth its import: it converts non-ASCII text up to four times as fast."""
_NONE = type(None)


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return the same array, or raise the same error, as ``pyarrow.array(values, kind)``.

    >>> import pyarrow as pa
    >>> array_of(["a", None, "b"], pa.large_utf8()).to_pylist()
    ['a', None, 'b']
    """
    import pyarrow as pa

    array = None
    if len(values) <= _SMALL and "pandas" not in sys.modules:
        array = array_from_buffers(values, kind)
    return pa.array(values, kind) if array is None else array


def array_from_buffers(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """Build an array from its buffers; return None if the type or a value is not a plain one."""
    import pyarrow as pa

    python, empty, build = _forms().get(kind, (_NONE, None, None))
    found = set(map(type, values))
    if build is None or not found <= {python, _NONE}:
        return None
    validity = None
    if _NONE in found:
        validity = _bits([value is not None for value in values])
        values = [empty if value is None else value for value in values]
    return pa.Array.from_buffers(kind, len(values), [validity, *build(values)])


def numbers_in(array: pa.Array) -> list[Any]:
    """Return the numbers in an array of 64-bit numbers without nulls.

    >>> import pyarrow as pa
    >>> numbers_in(pa.array([1, 2, 3]).slice(1)), numbers_in(pa.array([0.5]))
    ([2, 3], [0.5])
    """
    import numpy as np

    if not len(array):
        return []
    kind = np.int64 if str(array.type) == "int64" else np.float64
    found = np.frombuffer(array.buffers()[1], kind, count=len(array), offset=array.offset * 8)
    return cast("list[Any]", found.tolist())


def _forms() -> dict[pa.DataType, tuple[type, Any, Any]]:
    """Return by Arrow type the Python type of values, the filler for nulls, and the builder of buffers."""
    if not _known:
        import numpy as np
        import pyarrow as pa

        _known.update(
            {
                pa.int32(): (int, 0, lambda values: [_numbers(values, np.int32)]),
                pa.int64(): (int, 0, lambda values: [_numbers(values, np.int64)]),
                pa.float64(): (float, 0.0, lambda values: [_numbers(values, np.float64)]),
                pa.bool_(): (bool, False, lambda values: [_bits(values)]),
                pa.binary(): (bytes, b"", lambda values: _parts(values, np.int32)),
                pa.large_binary(): (bytes, b"", lambda values: _parts(values, np.int64)),
                pa.large_utf8(): (str, "", _text),
            }
        )
    return _known


_known: dict[pa.DataType, tuple[type, Any, Any]] = {}


def _numbers(values: Sequence[Any], kind: Any) -> pa.Buffer:
    import numpy as np
    import pyarrow as pa

    return pa.py_buffer(np.array(values, dtype=kind))


def _bits(values: Sequence[bool]) -> pa.Buffer:
    import numpy as np
    import pyarrow as pa

    return pa.py_buffer(np.packbits(np.array(values, dtype=bool), bitorder="little"))


def _parts(values: Sequence[bytes], kind: Any) -> list[pa.Buffer]:
    import pyarrow as pa

    return [_offsets(values, kind), pa.py_buffer(b"".join(values))]


def _text(values: Sequence[str]) -> list[pa.Buffer]:
    import numpy as np
    import pyarrow as pa

    whole = "".join(values)
    if not whole.isascii():
        return _parts(list(map(str.encode, values)), np.int64)
    return [_offsets(values, np.int64), pa.py_buffer(whole.encode())]


def _offsets(values: Sequence[Any], kind: Any) -> pa.Buffer:
    import numpy as np
    import pyarrow as pa

    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, values), dtype=np.int64, count=len(values)), out=offsets[1:])
    if offsets[-1] > np.iinfo(kind).max:
        raise pa.ArrowCapacityError(f"an array of this type holds {np.iinfo(kind).max} bytes at most")
    return pa.py_buffer(offsets.astype(kind, copy=False))


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
"""The Python types permitted for each field type. Arrow would accept more and convert them silently."""

_NONE_TYPE = type(None)


class UnfitError(ValueError):
    """A value is not of exactly the Python type that its field requires."""


FAULTS = (ValueError, TypeError, OverflowError, KeyError, NotImplementedError)
"""Exceptions of building an array. Arrow's errors and that for surrogates in text are subclasses."""


def arrow_schema(schema: Schema) -> Any:
    """Return the Arrow schema of a schema."""
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


def build_arrays(schema: Schema, values: list[Any], *, strict: bool) -> list[Any]:
    return _struct_arrays(schema.fields, schema.cls, values, strict)


def _struct_arrays(fields: Sequence[Field], cls: type | None, values: list[Any], strict: bool) -> list[Any]:
    """Build a column for each field from values that are not None."""
    kinds = set(map(type, values))
    read: Callable[[str], list[Any]]
    if cls is not None and kinds == {cls}:
        read = lambda name: list(map(attrgetter(name), values))  # noqa: E731
    elif kinds <= {dict}:
        optional = any(field.optional for field in fields)
        names = {field.name for field in fields}
        if strict and (not names.issuperset(*values) if optional else set(map(len, values)) - {len(fields)}):
            raise UnfitError("a field is missing or not declared")
        if optional:
            read = lambda name: [value.get(name) for value in values]  # noqa: E731
        else:
            read = lambda name: [value[name] for value in values]  # noqa: E731
    elif strict:
        raise UnfitError("not a dict")
    else:
        read = lambda name: [_get(value, name) for value in values]  # noqa: E731
    arrays = []
    for field in fields:
        column = read(field.name)
        if strict and not (field.nullable or field.optional) and _NONE_TYPE in set(map(type, column)):
            raise UnfitError(f"{field.name} is None")
        # A column cannot tell None from a missing field, and perhaps only one of them is permitted.
        if strict and field.optional and not field.nullable and _has_none(values, field.name):
            raise UnfitError(f"{field.name} is None")
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
        if strict and set(map(type, values)) - wanted - {_NONE_TYPE}:
            raise UnfitError(f"not {kind.ddl}")
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
        found = set(map(type, values)) - {_NONE_TYPE}
        if found - (_PYTHON[name] if name else {int, Decimal}):
            raise UnfitError(f"not {kind.ddl}")
        if datetime in found:
            aware = name == "timestamp"
            if any(value is not None and (value.tzinfo is not None) is not aware for value in values):
                raise UnfitError("a time zone is missing or too much")
    return pa.array(values, arrow_type(kind))


def _arrow_field(field: Field) -> Any:
    import pyarrow as pa

    return pa.field(field.name, arrow_type(field.type), field.nullable or field.optional)
