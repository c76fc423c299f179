"""Collections that grow by merging and are never changed in place.

A set or a list that is copied for each value that joins it costs the square of its size. So a collection is
held in parts, each at least twice as large as the one after it: a value is copied only when its part is
merged into one of twice the size, which happens a few times, and there are few parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Parts = tuple[Any, ...]
"""Sets or tuples, the largest first."""


def merge_parts(left: Parts, right: Parts, unite: Callable[[Any, Any], Any]) -> Parts:
    """Return the parts of both, with those united that have become too much alike in size.

    >>> joined(((1, 2, 3, 4), (5,)), ((6,),), tuple.__add__)
    ((1, 2, 3, 4), (5, 6))
    """
    kept = []
    *larger, part = sorted((*left, *right), key=len, reverse=True)
    for following in reversed(larger):
        if len(following) < 2 * len(part):
            part = unite(following, part)
        else:
            kept.append(part)
            part = following
    kept.append(part)
    return tuple(reversed(kept))
