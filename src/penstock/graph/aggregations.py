"""Aggregations of the values of each key.

``Count``, ``Sum``, ``Reduce``, ``Min``, ``Max``, ``Mean``, ``Distinct``, ``TopN`` and ``Quantiles``, and
how they select what they aggregate (the value, a field, or a function of it). Partial results merge in any
order; for floats the result is exact up to the last digits. This module does not depend on windows, state
files or parcels.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from math import floor
from typing import Any

from penstock.errors import shown
from penstock.graph.tasks import CombiningTask

FieldSelector = str | Callable[[Any], Any] | None
"""A field name of dicts or objects, a function of the value, or None for the value itself."""


class FieldReader:
    """Reads one field of values: a key of a dict, an attribute of anything else.

    >>> FieldReader("price")({"price": 3})
    3
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, value: Any) -> Any:
        """Return the field; raises an error that names the field if it is missing."""
        name = self.name
        if isinstance(value, dict | Mapping):
            try:
                return value[name]
            except KeyError:
                fields = ", ".join(map(shown, value)) or "none"
                raise KeyError(f"the value has no field {name!r}: its fields are {fields}") from None
        try:
            return getattr(value, name)
        except AttributeError:
            raise AttributeError(f"the value {shown(value)} has no field {name!r}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return FieldReader, (self.name,)


def identity(value: Any) -> Any:
    """Return the value."""
    return value


def field_reader(of: FieldSelector) -> Callable[[Any], Any]:
    """Return the function that reads the selected part of a value."""
    if of is None:
        return identity
    return FieldReader(of) if isinstance(of, str) else of


def selector_faults(of: Any) -> tuple[str, ...]:
    """Return what is wrong with the selector of an aggregation; empty if it is valid.

    >>> selector_faults("price"), selector_faults(3)
    ((), ('of must be a field name, a function or None, not 3',))
    """
    if of is None or callable(of) or (isinstance(of, str) and of):
        return ()
    return (f"of must be a field name, a function or None, not {shown(of)}",)


Parts = tuple[Any, ...]
"""Sets or tuples, largest first."""


def merge_parts(left: Parts, right: Parts, unite: Callable[[Any, Any], Any]) -> Parts:
    """Return the parts of both; parts of similar size are united.

    >>> merge_parts(((1, 2, 3, 4), (5,)), ((6,),), tuple.__add__)
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


class Count(CombiningTask):
    """The number of records of each key."""

    def lift(self, value: Any) -> int:  # noqa: ARG002
        """Count a record as one."""
        return 1

    # A plain function of the operator module costs a third of what a method does.
    merge = staticmethod(operator.add)  # type: ignore[assignment]


class Sum(CombiningTask):
    """The sum of the values of each key, or of a field of them.

    Whole numbers are summed exactly. The last digits of a sum of floats depend on the order of addition, and
    therefore on how the input was divided into batches.
    """

    of: FieldSelector = None
    read: Callable[[Any], Any] = staticmethod(identity)

    def __init__(self, of: FieldSelector = None) -> None:
        self.of = of
        self.faults = selector_faults(of)
        self.read = field_reader(of)

    def lift(self, value: Any) -> Any:
        """Return the summand of a value."""
        return self.read(value)

    # A plain function of the operator module costs a third of what a method does.
    merge = staticmethod(operator.add)  # type: ignore[assignment]


class Reduce(CombiningTask):
    """Any associative and commutative function of two values, over all values of each key.

    >>> longest = Reduce(lambda left, right: max(left, right, key=len))
    """

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    def lift(self, value: Any) -> Any:
        """Return the value."""
        return value

    def merge(self, left: Any, right: Any) -> Any:
        """Call the function."""
        return self.function(left, right)


class Aggregation(CombiningTask):
    """A combining task over the value, a field of it, or a function of it.

    The constructor never raises: validation reports invalid arguments, which are stored in ``faults``.
    """

    def __init__(self, of: FieldSelector = None) -> None:
        self.of = of
        self.faults = selector_faults(of)
        self._of = field_reader(of)

    def read(self, value: Any) -> Any:
        """Return the part of a value that is aggregated. Raises TypeError for None."""
        found = self._of(value)
        if found is None:
            where = f"the field {self.of!r} is" if isinstance(self.of, str) else "the value is"
            raise TypeError(f"{type(self).__name__}: {where} None: filter out such records before this task")
        return found

    def lift(self, value: Any) -> Any:
        """Return the part of a value that is aggregated."""
        return self.read(value)


class Min(Aggregation):
    """The smallest value of each key. NaN is the result only if there is no other value.

    >>> Min("price").merge(3, 2)
    2
    """

    def merge(self, left: Any, right: Any) -> Any:
        """Return the smaller value."""
        return right if right < left or left != left else left  # noqa: PLR0124


class Max(Aggregation):
    """The largest value of each key. NaN is the result only if there is no other value.

    >>> Max("price").merge(3, 2)
    3
    """

    def merge(self, left: Any, right: Any) -> Any:
        """Return the larger value."""
        return right if right > left or left != left else left  # noqa: PLR0124


class Mean(Aggregation):
    """The mean of the values of each key: exact for whole numbers, rounded once.

    >>> mean = Mean()
    >>> mean.result(mean.merge(mean.lift(1), mean.lift(2)))
    1.5
    """

    def lift(self, value: Any) -> tuple[Any, int]:
        """Return the sum and the count of one value."""
        return self.read(value), 1

    def merge(self, left: tuple[Any, int], right: tuple[Any, int]) -> tuple[Any, int]:
        """Add sums and counts."""
        return left[0] + right[0], left[1] + right[1]

    def result(self, state: tuple[Any, int]) -> Any:
        """Return the quotient of sum and count."""
        return state[0] / state[1]


class Distinct(Aggregation):
    """The exact number of different values of each key; with ``values=True`` the values, sorted.

    Values must be hashable. Values that are equal in Python, such as 1 and 1.0, count as one value, and so do
    all NaN. The state of a key holds all of its different values.

    >>> users = Distinct("user", values=True)
    >>> users.result(users.merge(users.lift({"user": "b"}), users.lift({"user": "a"})))
    ['a', 'b']
    """

    def __init__(self, of: FieldSelector = None, values: bool = False) -> None:
        super().__init__(of)
        self.values = values

    def lift(self, value: Any) -> Parts:
        """Return a set of one value."""
        found = self._of(value)
        try:
            return (frozenset((found,)),)
        except TypeError:
            raise TypeError(
                f"Distinct: a {type(found).__name__} is not hashable: give a field or a function"
            ) from None

    def merge(self, left: Parts, right: Parts) -> Parts:
        """Return the union of the sets."""
        if len(right) == 1 and right[0] <= left[0]:
            return left
        return merge_parts(left, right, frozenset.union)

    def result(self, state: Parts) -> Any:
        """Return the number of values, or their list."""
        united = frozenset().union(*state)
        # A set can contain several NaN.
        proper = [value for value in united if value == value]  # noqa: PLR0124
        nan = [value for value in united if value != value][:1]  # noqa: PLR0124
        return _in_order(proper) + nan if self.values else len(proper) + len(nan)


class TopN(Aggregation):
    """The ``n`` largest values of each key, largest first; ``of`` selects what is compared.

    Equal values are ordered by their text (``repr``), so that the result does not depend on the order of
    arrival. NaN is smaller than all other values.

    >>> best = TopN(2, of="score")
    >>> entries = [{"name": "a", "score": 5}, {"name": "b", "score": 9}, {"name": "c", "score": 5}]
    >>> state = best.lift(entries[2])
    >>> for entry in entries[:2]:
    ...     state = best.merge(state, best.lift(entry))
    >>> [entry["name"] for entry in best.result(state)]
    ['b', 'a']
    """

    def __init__(self, n: int, of: FieldSelector = None) -> None:
        super().__init__(of)
        self.n = n
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            self.faults = (f"n must be a whole number from 1 on, not {shown(n)}", *self.faults)

    def lift(self, value: Any) -> tuple[Any, ...]:
        """Return a list of one value, with its rank."""
        return ((self.read(value), value),)

    def merge(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the largest values of both, in order."""
        n = self.n
        if len(left) >= n and not _before(right[0], left[-1]):
            return left
        merged: list[Any] = []
        i = j = 0
        while len(merged) < n and (i < len(left) or j < len(right)):
            if j == len(right) or (i < len(left) and not _before(right[j], left[i])):
                merged.append(left[i])
                i += 1
            else:
                merged.append(right[j])
                j += 1
        return tuple(merged)

    def result(self, state: tuple[Any, ...]) -> list[Any]:
        """Return the list of values."""
        return [value for _, value in state]


class Quantiles(Aggregation):
    """Exact quantiles of the values of each key, as a list in the order of the argument.

    A quantile between two values is interpolated linearly: of n sorted values the quantile q is at the index
    ``q * (n - 1)``, as in NumPy. A quantile at a value is that value. The state of a key holds all of its
    values.

    >>> quantiles = Quantiles((0.5, 1))
    >>> state = quantiles.lift(10)
    >>> for value in (20, 40, 30):
    ...     state = quantiles.merge(state, quantiles.lift(value))
    >>> quantiles.result(state)
    [25.0, 40]
    """

    def __init__(self, quantiles: float | Iterable[float] = (0.5,), of: FieldSelector = None) -> None:
        super().__init__(of)
        several = isinstance(quantiles, Iterable) and not isinstance(quantiles, str)
        wanted: tuple[Any, ...] = tuple(quantiles) if several else (quantiles,)  # type: ignore[arg-type]
        self.quantiles = wanted
        wrong = [f"a quantile must be from 0 to 1, not {shown(q)}" for q in wanted if not _is_part(q)]
        if not wanted:
            wrong = ["at least one quantile is required"]
        self.faults = (*wrong, *self.faults)

    def lift(self, value: Any) -> Parts:
        """Return a list of one value; raises ValueError for NaN, which has no order."""
        found = self.read(value)
        if found != found:  # noqa: PLR0124
            raise ValueError("Quantiles: the value is NaN: filter out such records before this task")
        return ((found,),)

    def merge(self, left: Parts, right: Parts) -> Parts:
        """Return the values of both."""
        return merge_parts(left, right, _concatenate)

    def result(self, state: Parts) -> list[Any]:
        """Return the quantiles of the sorted values."""
        ordered = sorted(value for part in state for value in part)
        return [_at(ordered, q) for q in self.quantiles]


_concatenate: Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]] = tuple.__add__


def _at(ordered: list[Any], q: float) -> Any:
    place = q * (len(ordered) - 1)
    low = floor(place)
    if low == place:
        return ordered[low]
    return ordered[low] + (ordered[low + 1] - ordered[low]) * (place - low)


def _is_part(q: Any) -> bool:
    return isinstance(q, int | float) and not isinstance(q, bool) and 0 <= q <= 1


def _before(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Return whether one ranked value comes before another."""
    rank, against = one[0], other[0]
    if rank > against:
        return True
    if rank < against:
        return False
    is_nan, against_nan = rank != rank, against != against  # noqa: PLR0124
    if is_nan != against_nan:
        return bool(against_nan)
    return repr(one[1]) < repr(other[1])


def _in_order(values: list[Any]) -> list[Any]:
    """Return sorted values; values that cannot be compared are sorted by their text."""
    kinds = set(map(type, values))
    if kinds <= {int, float, bool} or kinds in ({str}, {bytes}):
        return sorted(values)
    return sorted(values, key=lambda value: (type(value).__name__, repr(value)))
