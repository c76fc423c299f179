"""What may be in a path and in a node, checked before any server is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.coord.store import LARGEST, Create, Operation, Put, StoreError, TooLargeError


def check_path(path: str) -> None:
    """Raise StoreError unless a path is one that every store takes.

    >>> check_path("/jobs/wordcount")
    >>> check_path("/jobs/../masters")
    Traceback (most recent call last):
    penstock.coord.store.StoreError: '/jobs/../masters' is not a path: it looks like /jobs/wordcount
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

    >>> from penstock.coord.store import Check
    >>> describe(Check("/masters/epoch", 7))
    'check /masters/epoch at version 7'
    """
    verb = type(operation).__name__.lower()
    version = None if isinstance(operation, Create) else operation.version
    return f"{verb} {operation.path}" + ("" if version is None else f" at version {version}")
