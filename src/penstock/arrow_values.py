"""Python values to Arrow arrays and back, without pandas.

pyarrow imports pandas when it converts the first Python values, in order to recognise a Series among them.
That takes 0.4 s of processor time, more than all else that a Python worker does until its first record. Small
arrays of plain values are built from their buffers instead, which takes about as long as pyarrow does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import pyarrow as pa

_SMALL = 10_000
"""pyarrow is up to four times as fast with text that is not ASCII: larger arrays are worth the import."""
_NONE = type(None)


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return what ``pyarrow.array(values, kind)`` does, and raise what it raises.

    >>> import pyarrow as pa
    >>> array_of(["a", None, "b"], pa.large_utf8()).to_pylist()
    ['a', None, 'b']
    """
    import pyarrow as pa

    array = None
    if len(values) <= _SMALL and "pandas" not in sys.modules:
        array = built(values, kind)
    return pa.array(values, kind) if array is None else array


def built(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """Return an array made of its buffers; None if the type or a value is not one of the plain ones."""
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
    """Return the numbers of an array of 64-bit ones without nulls.

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
    """Return by type what values have to be, what stands for a null, and what builds the other buffers."""
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
