"""The protocol of the coordination store: a small tree of versioned nodes.

It has sessions, watches and transactions. This module defines the operations, the errors, and the checks of
paths and sizes that every implementation makes before it sends a request. Every method may raise
``DisconnectedError``; whether a write has happened is then unknown. The protocol is independent of ZooKeeper
and of the documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock.errors import PenstockError


class StoreError(PenstockError):
    """The base class of the errors of a store."""


class MissingError(StoreError):
    """The node does not exist."""


class ExistsError(StoreError):
    """The node already exists."""


class ConflictError(StoreError):
    """A node does not have the expected version, or a transaction was rejected.

    ``operation`` is the rejected operation of the transaction.
    """

    def __init__(self, message: str, operation: Operation | None = None) -> None:
        super().__init__(message)
        self.operation = operation


class NotEmptyError(StoreError):
    """A node with children cannot be deleted."""


class DisconnectedError(StoreError):
    """The servers do not answer, or the session has just ended."""


LARGEST = 1_000_000
"""Maximum bytes of a node or of a whole transaction. ZooKeeper disconnects a client that sends more."""


class TooLargeError(StoreError):
    """The data exceeds the maximum size of a node or transaction."""


class Session(Enum):
    """The state of a store's session.

    CONNECTED → SUSPENDED when the connection breaks; SUSPENDED → CONNECTED when it is restored in time, with
    nothing lost; SUSPENDED → LOST when the servers report, after reconnection, that the session has expired
    and its ephemeral nodes are deleted. LOST → CONNECTED with a new session. CLOSED is final.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    CLOSED = "closed"


@dataclass(frozen=True)
class StoredNode:
    """A node's data, version and owner at the time of a read."""

    data: bytes
    version: int
    """0 when the node is created, incremented by each set."""
    owner: int = 0
    """The session that an ephemeral node belongs to; 0 for a persistent node."""


Watcher = Callable[[], None]
"""Called at most once, from any thread, when the read data may have changed.

It is called when the data has changed, and also when the connection breaks: changes are not reported then, so
all watchers of the session are called.

It must not block and must not call the store: let it wake another thread.
"""

Read = tuple[str, Watcher | None]
"""One read of several: a path, and the watcher to call when the node changes."""


@dataclass(frozen=True)
class Create:
    """Create a node; rejected when it exists. Its parent must exist."""

    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True)
class Put:
    """Set a node's data; rejected when it does not exist or has another version."""

    path: str
    data: bytes
    version: int | None = None


@dataclass(frozen=True)
class Delete:
    """Delete a node; rejected when it does not exist, has another version, or has children."""

    path: str
    version: int | None = None


@dataclass(frozen=True)
class Check:
    """Reject the transaction unless a node exists and has this version."""

    path: str
    version: int


Operation = Create | Put | Delete | Check


class Store(Protocol):
    """A session with the servers that hold the tree."""

    @property
    def session(self) -> Session:
        """The current state of the session."""
        ...

    @property
    def session_id(self) -> int:
        """The id that ephemeral nodes of this session have as ``owner``; 0 without a session."""
        ...

    def listen(self, listener: Callable[[Session], None]) -> None:
        """Register a function to be called, from any thread, on state changes. It must not block."""
        ...

    def get(self, path: str, watch: Watcher | None = None) -> StoredNode | None:
        """Return a node, None when there is none. ``watch`` fires when it is created, set or deleted."""
        ...

    def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """Return the names of a node's children, sorted; empty when the node does not exist.

        ``watch`` fires when a child or the node itself is created or deleted.
        """
        ...

    def get_many(self, reads: Sequence[Read]) -> Iterator[StoredNode | None]:
        """Yield the result of :meth:`get` for each path, in order; all requests are sent at once.

        An error is raised at the first result that cannot be read; the results before it are valid.
        """
        ...

    def children_many(self, reads: Sequence[Read]) -> Iterator[list[str]]:
        """Yield the result of :meth:`children` for each path, like :meth:`get_many`."""
        ...

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        """Create a node, and missing parents as empty persistent nodes. Raises ExistsError."""
        ...

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        """Set a node's data and return its new version. Raises MissingError, ConflictError."""
        ...

    def delete(self, path: str, *, version: int | None = None) -> None:
        """Delete a node. Raises MissingError, ConflictError, NotEmptyError."""
        ...

    def transact(self, operations: Sequence[Operation]) -> None:
        """Apply all operations or none. Raises ConflictError with the rejected operation and the reason."""
        ...

    def close(self) -> None:
        """End the session; its ephemeral nodes are deleted at once."""
        ...


def check_path(path: str) -> None:
    """Raise StoreError for an invalid path.

    >>> check_path("/jobs/wordcount")
    >>> check_path("/jobs/../x")
    Traceback (most recent call last):
    penstock.coord.coordination_store.StoreError: '/jobs/../x' is not a path such as /jobs/wordcount
    """
    if path == "/":
        return
    first, *names = path.split("/")
    if first or not names or any(name in ("", ".", "..") or not name.isprintable() for name in names):
        raise StoreError(f"{path!r} is not a path such as /jobs/wordcount")


def check_size(path: str, data: bytes) -> None:
    """Raise TooLargeError when the data is too large for a node."""
    if len(data) > LARGEST:
        raise TooLargeError(f"{path}: {len(data):,} bytes, but a node holds at most {LARGEST:,}")


def check_operations(operations: Sequence[Operation]) -> None:
    """Raise StoreError when a transaction has an invalid path or too much data."""
    size = 0
    for operation in operations:
        check_path(operation.path)
        if isinstance(operation, Create | Put):
            size += len(operation.data)
    if size > LARGEST:
        raise TooLargeError(f"the transaction has {size:,} bytes: at most {LARGEST:,} are allowed")


def parent_of(path: str) -> str:
    """Return the path of the parent node.

    >>> parent_of("/jobs/wordcount"), parent_of("/jobs")
    ('/jobs', '/')
    """
    return path.rpartition("/")[0] or "/"


def below(path: str, name: str) -> str:
    """Return the path of a child node.

    >>> below("/jobs", "wordcount"), below("/", "jobs")
    ('/jobs/wordcount', '/jobs')
    """
    return f"{path.rstrip('/')}/{name}"


def ancestors(path: str) -> Iterator[str]:
    """Yield the paths above a node from the top, without the root.

    >>> list(ancestors("/workers/wordcount/1-1"))
    ['/workers', '/workers/wordcount']
    """
    names = path.split("/")[1:-1]
    for end in range(1, len(names) + 1):
        yield "/" + "/".join(names[:end])


def describe(operation: Operation) -> str:
    """Describe an operation for an error message, without its data.

    >>> from penstock.coord.coordination_store import Check
    >>> describe(Check("/masters/epoch", 7))
    'check /masters/epoch at version 7'
    """
    verb = type(operation).__name__.lower()
    version = None if isinstance(operation, Create) else operation.version
    return f"{verb} {operation.path}" + ("" if version is None else f" at version {version}")


class Kind(Enum):
    """What a watch of a node refers to: its data or its children."""

    DATA = "data"
    CHILDREN = "children"


Change = tuple[Kind, str]
