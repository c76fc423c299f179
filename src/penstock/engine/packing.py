"""Python objects to bytes, inside one job: between its own workers and in its own folder, never beyond."""

from __future__ import annotations

import io
import pickle
from typing import Any, cast

_PLAIN = {str, int, float, bool, bytes, type(None)}


def pack(columns: tuple[Any, ...], *, lasting: bool = False) -> bytes:
    """Pickle a tuple of columns.

    What is ``lasting`` is read again by another process, in which a class of the user's script would be
    another class: it is refused, because a key of it would never be found again.

    Pickle remembers every string in case it comes again, which costs eight times the writing itself;
    lists of plain values cannot contain themselves, so for them the memory is switched off.
    """
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=5)
    pickler.fast = all(_is_plain(column) for column in columns)
    try:
        pickler.dump(columns)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
        # An instance of a class that only the user's script knows: its class must travel with it.
        if lasting:
            raise TypeError(
                "keys and states that are kept must be of classes that can be imported: move the class from"
                " the script that is run into a module beside it"
            ) from None
        import cloudpickle

        return cast(bytes, cloudpickle.dumps(columns, protocol=5))
    return buffer.getvalue()


def unpack(data: bytes | memoryview) -> Any:
    """Read what :func:`pack` wrote."""
    return pickle.loads(data)  # noqa: S301 - written by this job's own workers


def _is_plain(column: Any) -> bool:
    if type(column) in _PLAIN:
        return True
    return type(column) in (list, tuple) and set(map(type, column)) <= _PLAIN
