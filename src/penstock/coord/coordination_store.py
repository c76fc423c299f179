"""The store protocol.

A small tree of versioned nodes with sessions, watches and transactions; its operations and errors; and the
checks of paths and sizes that every implementation makes before it asks a server. Every method may raise
``DisconnectedError``; a write may then have happened or not. It must not know ZooKeeper or any document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock.errors import PenstockError


class StoreError(PenstockError):
    """The root of what a store raises."""


class MissingError(StoreError):
    """There is no such node."""


class ExistsError(StoreError):
    """There is such a node already."""


class ConflictError(StoreError):
    """A node does not have the version that was expected, or a transaction was refused.

    ``operation`` is then the one that was refused.
    """

    def __init__(self, message: str, operation: Operation | None = None) -> None:
        super().__init__(message)
        self.operation = operation


class NotEmptyError(StoreError):
    """A node that has children cannot be deleted."""


class DisconnectedError(StoreError):
    """The servers do not answer, or the session has just ended."""


LARGEST = 1_000_000
"""The most bytes that a node, or all of a transaction, may hold. ZooKeeper drops a client that sends more."""


class TooLargeError(StoreError):
    """There is more data than a node or a transaction may hold."""


class Session(Enum):
    """How a store's session stands.

    CONNECTED → SUSPENDED when the connection breaks; SUSPENDED → CONNECTED when it comes back in time, and
    nothing was lost; SUSPENDED → LOST when the servers say, after it came back, that the session had expired:
    its ephemeral nodes are gone. LOST → CONNECTED with a new session. CLOSED is for ever.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    CLOSED = "closed"


@dataclass(frozen=True)
class StoredNode:
    """A node as it was read."""

    data: bytes
    version: int
    """0 when it was created, one more with each set."""
    owner: int = 0
    """The session that an ephemeral node belongs to; 0 for a lasting node."""


Watcher = Callable[[], None]
"""Called at most once, from any thread, after what was read may have changed.

That is the case when it did change, and also when the connection broke: nobody is told of changes then, so
all watchers of the session are called.

It must not block and must not call the store: it wakes another thread.
"""

Read = tuple[str, Watcher | None]
"""What is read of several nodes together: a path, and who is told when that changes."""


@dataclass(frozen=True)
class Create:
    """Create a node; refused when it exists. Its parent must exist."""

    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True)
class Put:
    """Set a node's data; refused when it does not exist or has another version."""

    path: str
    data: bytes
    version: int | None = None


@dataclass(frozen=True)
class Delete:
    """Delete a node; refused when it does not exist, has another version, or has children."""

    path: str
    version: int | None = None


@dataclass(frozen=True)
class Check:
    """Refuse the transaction unless a node exists and has this version."""

    path: str
    version: int


Operation = Create | Put | Delete | Check


class Store(Protocol):
    """A session with the servers that hold the tree."""

    @property
    def session(self) -> Session:
        """How the session stands now."""
        ...

    @property
    def session_id(self) -> int:
        """The id that ephemeral nodes of this session have as ``owner``; 0 while there is no session."""
        ...

    def listen(self, listener: Callable[[Session], None]) -> None:
        """Have a function called, from any thread, when the session stands otherwise. It must not block."""
        ...

    def get(self, path: str, watch: Watcher | None = None) -> StoredNode | None:
        """Return a node, None when there is none. ``watch`` fires when it is created, set or deleted."""
        ...

    def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """Return the names below a node, sorted; none when it is not there.

        ``watch`` fires when a name comes or goes, or when the node itself does.
        """
        ...

    def get_many(self, reads: Sequence[Read]) -> Iterator[StoredNode | None]:
        """Yield what :meth:`get` returns for each path, in that order, without a wait between the requests.

        An error is raised in the place of the first answer that is missing; the answers before it count.
        """
        ...

    def children_many(self, reads: Sequence[Read]) -> Iterator[list[str]]:
        """Yield what :meth:`children` returns for each path, likewise."""
        ...

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        """Create a node, and lasting empty ones above it as needed. Raises ExistsError."""
        ...

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        """Set a node's data and return its new version. Raises MissingError, ConflictError."""
        ...

    def delete(self, path: str, *, version: int | None = None) -> None:
        """Delete a node. Raises MissingError, ConflictError, NotEmptyError."""
        ...

    def transact(self, operations: Sequence[Operation]) -> None:
        """Do all of it or nothing. Raises ConflictError, which says which operation was refused and why."""
        ...

    def close(self) -> None:
        """End the session; its ephemeral nodes are gone at once."""
        ...


def check_path(path: str) -> None:
    """Raise StoreError unless a path is one that every store takes.

    >>> check_path("/jobs/wordcount")
    >>> check_path("/jobs/../x")
    Traceback (most recent call last):
    penstock.coord.coordination_store.StoreError: '/jobs/../x' is not a path: it looks like /jobs/wordcount
    """
    if path == "/":
        return
    first, *names = path.split("/")
    if first or not names or any(name in ("", ".", "..") or not name.isprintable() for name in names):
        raise StoreError(f"{path!r} is not a path: it looks like /jobs/wordcount")


def check_size(path: str, data: bytes) -> None:
    """Raise TooLargeError when a node cannot hold this."""
    if len(data) > LARGEST:
        raise TooLargeError(f"{path}: {len(data):,} bytes, and a node holds {LARGEST:,} at most")


def check_operations(operations: Sequence[Operation]) -> None:
    """Raise StoreError when a transaction has a path or an amount of data that no store takes."""
    size = 0
    for operation in operations:
        check_path(operation.path)
        if isinstance(operation, Create | Put):
            size += len(operation.data)
    if size > LARGEST:
        raise TooLargeError(f"a transaction of {size:,} bytes: {LARGEST:,} is the most")


def parent_of(path: str) -> str:
    """Return the path of the node above.

    >>> parent_of("/jobs/wordcount"), parent_of("/jobs")
    ('/jobs', '/')
    """
    return path.rpartition("/")[0] or "/"


def below(path: str, name: str) -> str:
    """Return the path of a node by the name that it has below another.

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
    """Return an operation in words for an error, without its data.

    >>> from penstock.coord.coordination_store import Check
    >>> describe(Check("/masters/epoch", 7))
    'check /masters/epoch at version 7'
    """
    verb = type(operation).__name__.lower()
    version = None if isinstance(operation, Create) else operation.version
    return f"{verb} {operation.path}" + ("" if version is None else f" at version {version}")


class Kind(Enum):
    """What of a node a watch is for."""

    DATA = "data"
    CHILDREN = "children"


Change = tuple[Kind, str]
