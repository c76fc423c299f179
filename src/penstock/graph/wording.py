"""How a message shows a value that somebody gave, whatever that value is."""

from __future__ import annotations

from typing import Any

_LONGEST_SHOWN = 60
_PLAIN = (str, bytes, int, float, complex, bool, type(None), list, tuple, dict)


def shown(value: Any) -> str:
    """Return a short text for a value. It never raises and never holds a memory address.

    >>> shown("a b"), shown(-1), shown(object())
    ("'a b'", '-1', '<object>')
    """
    kind = f"<{type(value).__name__}>"
    if isinstance(value, type):
        return f"<class {value.__name__}>"
    if not isinstance(value, _PLAIN):
        return kind
    try:
        text = repr(value)
    except Exception:  # a value that cannot even show itself is shown by its type
        return kind
    if " at 0x" in text:
        return kind
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def label(name: Any) -> str:
    """Return a name as plain text, or a text for whatever was given in place of a name.

    >>> label("split"), label(None)
    ('split', 'None')
    """
    return str.__str__(name) if isinstance(name, str) else shown(name)


def choices(names: tuple[str, ...]) -> str:
    """List names to choose from.

    >>> choices(("left", "right")), choices(())
    ("'left', 'right'", 'none')
    """
    return ", ".join(repr(name) for name in names) or "none"
