"""The allocation matrix X: tasks by nodes, 1 where a task runs. It is sparse, so it is kept as a mapping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.errors import PenstockError


class MatrixError(PenstockError):
    """Something that was given as an allocation matrix is none."""


@dataclass(frozen=True)
class Matrix:
    """Which node each task is placed on. A task that is missing is placed nowhere.

    >>> Matrix({"count/driver": "n2"}).rows(["count/driver"], ["n1", "n2"])
    [[0, 1]]
    """

    places: Mapping[str, str] = field(default_factory=dict)

    def rows(self, tasks: Iterable[str], nodes: Iterable[str]) -> list[list[int]]:
        """Return X itself: a row for each task, a column for each node."""
        columns = list(nodes)
        return [[int(self.places.get(task) == node) for node in columns] for task in tasks]

    def of_node(self, node: str) -> list[str]:
        """Return the tasks on a node, sorted."""
        return sorted(task for task, place in self.places.items() if place == node)

    def moved_from(self, before: Mapping[str, str | None]) -> dict[str, tuple[str | None, str]]:
        """Return what this changes: for each task that changes its node, from where and to where."""
        return {
            task: (before.get(task), node)
            for task, node in sorted(self.places.items())
            if before.get(task) != node
        }

    def table(self, tasks: Iterable[str], nodes: Iterable[str]) -> str:
        """Return X for people: a line for each task, a mark below its node.

        >>> print(Matrix({"a": "n1", "b": "n2"}).table(["a", "b"], ["n1", "n2"]))
           n1  n2
        a   X   .
        b   .   X
        """
        names, columns = list(tasks), list(nodes)
        first = max((len(name) for name in names), default=0)
        widths = [max(len(node), 1) + 2 for node in columns]
        lines = [
            " " * first + "".join(node.rjust(width) for node, width in zip(columns, widths, strict=True))
        ]
        for name, row in zip(names, self.rows(names, columns), strict=True):
            marks = ("X" if mark else "." for mark in row)
            cells = "".join(mark.rjust(width) for mark, width in zip(marks, widths, strict=True))
            lines.append(name.ljust(first) + cells)
        return "\n".join(lines)

    def to_plain(self) -> dict[str, str]:
        """Return what JSON can hold."""
        return dict(sorted(self.places.items()))

    @classmethod
    def of_plain(cls, given: object) -> Matrix:
        """Read what JSON holds of a matrix; raises MatrixError.

        >>> Matrix.of_plain(["n1"])
        Traceback (most recent call last):
        penstock.schedule.matrix.MatrixError: expected an object from task to node, found list
        """
        if not isinstance(given, Mapping):
            raise MatrixError(f"expected an object from task to node, found {type(given).__name__}")
        for task, node in given.items():
            if not isinstance(task, str) or not isinstance(node, str):
                raise MatrixError(f"task {task!r} is given {node!r}: expected the name of a node")
        return cls(dict(given))
