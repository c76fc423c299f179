"""Python objects to bytes, inside one job: between its own workers and in its own folder, never beyond."""

from __future__ import annotations

import io
import pickle
from typing import Any, cast

_PLAIN = {str, int, float, bool, bytes, type(None)}


def pack(columns: tuple[Any, ...]) -> bytes:
    """Pickle a tuple of columns.

    Pickle remembers every string in case it comes again, which costs eight times the writing itself;
    lists of plain values cannot contain themselves, so for them the memory is switched off.
    """
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=5)
    pickler.fast = all(_is_plain(column) for column in columns)
    try:
        pickler.dump(columns)
    except (pickle.PicklingError, AttributeError, TypeError):
        # An instance of a class that only the user's script knows: its class must travel with it.
        import cloudpickle

        return cast(bytes, cloudpickle.dumps(columns, protocol=5))
    return buffer.getvalue()


def unpack(data: bytes) -> Any:
    """Read what :func:`pack` wrote."""
    return pickle.loads(data)  # noqa: S301 - written by this job's own workers


def _is_plain(column: Any) -> bool:
    if type(column) in _PLAIN:
        return True
    return type(column) in (list, tuple) and set(map(type, column)) <= _PLAIN
