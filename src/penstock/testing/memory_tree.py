"""A tree of versioned nodes in memory with atomic transactions, without sessions or a clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.coord.coordination_store import (
    Change,
    Check,
    ConflictError,
    Create,
    ExistsError,
    Kind,
    MissingError,
    NotEmptyError,
    Operation,
    Put,
    StoredNode,
    StoreError,
    ancestors,
    describe,
    parent_of,
)

Undo = Callable[[], None]


@dataclass
class _Entry:
    data: bytes
    version: int = 0
    owner: int = 0
    names: set[str] = field(default_factory=set)


class Tree:
    """A tree of nodes. Methods that change it return the kind and the path of each change.

    >>> tree = Tree()
    >>> tree.apply(Put("/", b"hello"), owner=1)
    [(<Kind.DATA: 'data'>, '/')]
    """

    def __init__(self) -> None:
        self._entries = {"/": _Entry(b"")}

    def get(self, path: str) -> StoredNode | None:
        """Return a node; None if it does not exist."""
        entry = self._entries.get(path)
        return None if entry is None else StoredNode(entry.data, entry.version, entry.owner)

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children, sorted."""
        entry = self._entries.get(path)
        return [] if entry is None else sorted(entry.names)

    def owned(self, owner: int) -> list[str]:
        """Return the nodes that a session owns, sorted."""
        return sorted(path for path, entry in self._entries.items() if entry.owner == owner)

    def missing_above(self, path: str) -> list[str]:
        """Return the missing parents of a node, from the top."""
        return [above for above in ancestors(path) if above not in self._entries]

    def apply(self, operation: Operation, *, owner: int) -> list[Change]:
        """Execute an operation for a session. Raises StoreError if it is refused."""
        changes: list[Change] = []
        self._execute(operation, owner, changes)
        return changes

    def transact(self, operations: Sequence[Operation], *, owner: int) -> list[Change]:
        """Execute all operations for a session, or none. Raises ConflictError with the refused operation."""
        changes: list[Change] = []
        undos: list[Undo] = []
        for operation in operations:
            try:
                undos.append(self._execute(operation, owner, changes))
            except StoreError as error:
                for undo in reversed(undos):
                    undo()
                raise ConflictError(f"refused to {describe(operation)}: {error}", operation) from None
        return changes

    def _execute(self, operation: Operation, owner: int, changes: list[Change]) -> Undo:
        if isinstance(operation, Create):
            return self._create(operation, owner if operation.ephemeral else 0, changes)
        entry = self._entries.get(operation.path)
        if entry is None:
            raise MissingError(f"there is no node {operation.path}")
        if operation.version is not None and operation.version != entry.version:
            raise ConflictError(
                f"{operation.path} has version {entry.version}, not {operation.version}", operation
            )
        if isinstance(operation, Check):
            return lambda: None
        if isinstance(operation, Put):
            return self._put(operation.path, entry, operation.data, changes)
        return self._delete(operation.path, entry, changes)

    def _create(self, operation: Create, owner: int, changes: list[Change]) -> Undo:
        path, above = operation.path, parent_of(operation.path)
        if path in self._entries:
            raise ExistsError(f"node {path} exists already")
        parent = self._entries.get(above)
        if parent is None:
            raise MissingError(f"there is no node {above} to create {path} below")
        if parent.owner:
            raise StoreError(f"{above} is ephemeral: there can be no node below it")
        name = path.rpartition("/")[2]
        self._entries[path] = _Entry(operation.data, owner=owner)
        parent.names.add(name)
        changes += [(Kind.DATA, path), (Kind.CHILDREN, path), (Kind.CHILDREN, above)]

        def undo() -> None:
            del self._entries[path]
            parent.names.discard(name)

        return undo

    @staticmethod
    def _put(path: str, entry: _Entry, data: bytes, changes: list[Change]) -> Undo:
        old, entry.data = entry.data, data
        entry.version += 1
        changes.append((Kind.DATA, path))

        def undo() -> None:
            entry.data = old
            entry.version -= 1

        return undo

    def _delete(self, path: str, entry: _Entry, changes: list[Change]) -> Undo:
        if path == "/":
            raise StoreError("the root cannot be deleted")
        if entry.names:
            raise NotEmptyError(f"{path} cannot be deleted: there are nodes below it")
        above, name = parent_of(path), path.rpartition("/")[2]
        del self._entries[path]
        self._entries[above].names.discard(name)
        changes += [(Kind.DATA, path), (Kind.CHILDREN, path), (Kind.CHILDREN, above)]

        def undo() -> None:
            self._entries[path] = entry
            self._entries[above].names.add(name)

        return undo
