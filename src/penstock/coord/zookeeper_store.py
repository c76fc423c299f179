"""The store on ZooKeeper through kazoo.

A separate thread calls watchers and listeners, so that kazoo's threads never run callbacks of the caller.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import ACL, make_digest_acl

from penstock.coord.coordination_store import (
    Check,
    Create,
    DisconnectedError,
    ExistsError,
    MissingError,
    Operation,
    Put,
    Read,
    Session,
    StoredNode,
    StoreError,
    Watcher,
    ancestors,
    check_operations,
    check_path,
    check_size,
)
from penstock.coord.zookeeper_errors import transaction_error, translated
from penstock.errors import SettingError

_log = logging.getLogger(__name__)


class Notifier:
    """Calls posted functions in order, in its own thread."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def post(self, call: Callable[[], None]) -> None:
        """Queue a function to be called; returns at once."""
        self._calls.put(call)

    def close(self, timeout: float) -> None:
        """End the thread after all queued calls; wait for that at most ``timeout`` seconds."""
        self._calls.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except Exception:
                _log.exception("a watcher or a listener of the store raised")


IDENTITY = "penstock"
"""The user name with which clients authenticate."""


# kazoo logs each request with password and data at level DEBUG, and each connection attempt as a warning.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.addFilter(lambda record: record.levelno >= logging.ERROR)

Request = Callable[[], Any]
T = TypeVar("T")


class _Once:
    """A watcher for kazoo that fires only once, even if it is set in two requests."""

    def __init__(self, watcher: Watcher, notifier: Notifier) -> None:
        self._watcher: Watcher | None = watcher
        self._notifier = notifier

    def __call__(self, _event: object) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            self._notifier.post(watcher)


class ZooKeeperStore:
    """A session with ZooKeeper, created by :meth:`connect`.

    kazoo reconnects without limit, and starts a new session when the old one has expired. Whenever the
    connection breaks, it drops all watches and calls their watchers. No operation takes longer than
    ``timeout``: without a connection, it waits for one that long and then raises DisconnectedError.
    """

    def __init__(self, client: KazooClient, acl: list[ACL], root: str, timeout: float) -> None:
        self._client = client
        self._acl = acl
        self._root = "" if root == "/" else root
        self._timeout = timeout
        self._session = Session.LOST
        self._session_id = 0
        self._connected = threading.Event()
        self._closing = False
        self._listeners: list[Callable[[Session], None]] = []
        self._notifier = Notifier("penstock-store")
        client.add_listener(self._state_changed)

    @classmethod
    def connect(
        cls,
        hosts: str,
        password: str,
        *,
        root: str = "/penstock",
        session_seconds: float = 6.0,
        timeout: float = 10.0,
    ) -> ZooKeeperStore:
        """Connect to ``host:port,host:port,…`` and create the root if it does not exist.

        Only clients with the password can read and change the created nodes.
        Raises DisconnectedError when no server answers, SettingError when the root belongs to another client.
        """
        check_path(root)
        acl = [make_digest_acl(IDENTITY, password, all=True)]
        if "/" in hosts:
            raise SettingError(f"{hosts!r} must be host:port,host:port, without a path: set that as the root")
        try:
            client = KazooClient(
                hosts=hosts,
                timeout=session_seconds,
                auth_data=[("digest", f"{IDENTITY}:{password}")],
                default_acl=acl,
                connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0},
                logger=_kazoo_log,
            )
        except (ValueError, KazooException) as error:
            raise SettingError(f"{hosts!r} is not a list of ZooKeeper addresses: {error}") from None
        store = cls(client, acl, root, timeout)
        try:
            client.start_async()
            if not store._connected.wait(timeout):
                raise DisconnectedError(f"no ZooKeeper server at {hosts} answered within {timeout:g} seconds")
            store._prepare_root()
        except BaseException:
            store.close()
            raise
        return store

    @property
    def session(self) -> Session:
        """The current state of the session."""
        return self._session

    @property
    def session_id(self) -> int:
        """The id that ephemeral nodes of this session have as ``owner``; 0 without a session."""
        return self._session_id

    def listen(self, listener: Callable[[Session], None]) -> None:
        """Register a function to be called, in a thread of the store, on state changes of the session."""
        self._listeners.append(listener)

    def get(self, path: str, watch: Watcher | None = None) -> StoredNode | None:
        """Return a node, None when there is none. ``watch`` fires when it is created, set or deleted."""
        return self._get(path, self._once(watch), self._deadline())

    def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """Return the names of a node's children, sorted; empty when the node does not exist."""
        return self._children(path, self._once(watch), self._deadline())

    def get_many(self, reads: Sequence[Read]) -> Iterator[StoredNode | None]:
        """Yield several nodes; all requests are sent before waiting for the first answer."""
        return self._many(reads, self._client.get_async, _node_or_none, self._get)

    def children_many(self, reads: Sequence[Read]) -> Iterator[list[str]]:
        """Yield the names of the children of several nodes, like :meth:`get_many`."""
        return self._many(reads, self._client.get_children_async, _names, self._children)

    def _get(self, path: str, once: _Once | None, deadline: float) -> StoredNode | None:
        full_path = self._full_path(path)
        while True:
            try:
                return _node(self._read(partial(self._client.get_async, full_path, once), path, deadline))
            except MissingError:
                if once is None or not self._watch_creation(full_path, once, path, deadline):
                    return None

    def _children(self, path: str, once: _Once | None, deadline: float) -> list[str]:
        full_path = self._full_path(path)
        while True:
            try:
                return sorted(
                    self._read(partial(self._client.get_children_async, full_path, once), path, deadline)
                )
            except MissingError:
                if once is None or not self._watch_creation(full_path, once, path, deadline):
                    return []

    def _many(
        self,
        reads: Sequence[Read],
        send: Callable[..., Any],
        convert: Callable[[Any], T],
        read_one: Callable[[str, _Once | None, float], T],
    ) -> Iterator[T]:
        """Send all requests, then yield the results; ``read_one`` repeats a request without an answer.

        ``convert`` makes a result from an answer, or from None for a missing node.
        """
        if not reads:
            return
        wanted = [(path, self._full_path(path), self._once(watch)) for path, watch in reads]
        self._await_connection(reads[0][0], self._deadline())
        answers = [send(full_path, once) for _, full_path, once in wanted]
        for (path, full_path, once), answer in zip(wanted, answers, strict=True):
            deadline = self._deadline()
            try:
                found = answer.get(timeout=self._timeout)
            except NoNodeError:
                exists = once is not None and self._watch_creation(full_path, once, path, deadline)
                yield read_one(path, once, deadline) if exists else convert(None)
            except ConnectionLoss:
                yield read_one(path, once, deadline)  # The connection may be restored; reads can be repeated.
            except (KazooException, KazooTimeoutError) as error:
                raise translated(error, path) from error
            else:
                yield convert(found)

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        """Create a node, and missing parents as empty persistent nodes."""
        full_path, deadline = self._full_path(path), self._deadline()
        check_size(path, data)
        request = partial(self._client.create_async, full_path, data, acl=self._acl, ephemeral=ephemeral)
        while True:
            try:
                self._request(request, path, deadline)
                return
            except MissingError:
                for above in ancestors(path):
                    self._ensure(self._full_path(above), deadline)

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        """Set a node's data and return its new version."""
        check_size(path, data)
        request = partial(self._client.set_async, self._full_path(path), data, _or_any(version))
        return int(self._request(request, path, self._deadline()).version)

    def delete(self, path: str, *, version: int | None = None) -> None:
        """Delete a node."""
        request = partial(self._client.delete_async, self._full_path(path), _or_any(version))
        self._request(request, path, self._deadline())

    def transact(self, operations: Sequence[Operation]) -> None:
        """Apply all operations or none."""
        check_operations(operations)
        transaction = self._client.transaction()
        for operation in operations:
            full_path = self._full_path(operation.path)
            if isinstance(operation, Create):
                transaction.create(full_path, operation.data, acl=self._acl, ephemeral=operation.ephemeral)
            elif isinstance(operation, Put):
                transaction.set_data(full_path, operation.data, _or_any(operation.version))
            elif isinstance(operation, Check):
                transaction.check(full_path, operation.version)
            else:
                transaction.delete(full_path, _or_any(operation.version))
        results = self._request(transaction.commit_async, "a transaction", self._deadline())
        error = transaction_error(operations, results)
        if error is not None:
            raise error

    def close(self) -> None:
        """End the session; its ephemeral nodes are deleted at once if a server can be reached."""
        if self._closing:
            return
        self._closing = True
        # Stopping the client waits for a connection attempt in progress, however long it takes.
        ending = threading.Thread(target=self._end, name="penstock-store-end", daemon=True)
        ending.start()
        ending.join(self._timeout)
        self._set_session(Session.CLOSED)
        self._notifier.close(1.0)

    def _end(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:
            _log.warning("the ZooKeeper client did not stop properly: %s", error)

    def _prepare_root(self) -> None:
        """Create the root if it does not exist, and check that only this key has access to it."""
        if not self._root:
            return
        root, deadline = self._root, self._deadline()
        try:
            for path in [*ancestors(root), root]:
                if self._read(partial(self._client.exists_async, path), path, deadline) is None:
                    self._ensure(path, deadline)
            acl, _ = self._read(partial(self._client.get_acls_async, root), root, deadline)
        except DisconnectedError:
            raise
        except StoreError as error:
            raise SettingError(
                f"this key cannot open {root} in ZooKeeper: use the key it was created with, or another root"
                f" ({error})"
            ) from None
        if acl != self._acl:
            raise SettingError(f"{root} in ZooKeeper is open to others than this cluster: use another root")

    def _ensure(self, full_path: str, deadline: float) -> None:
        """Create a node unless it exists."""
        try:
            self._request(
                partial(self._client.create_async, full_path, b"", acl=self._acl), full_path, deadline
            )
        except ExistsError:
            return

    def _watch_creation(self, full_path: str, once: _Once, path: str, deadline: float) -> bool:
        """Set a watch on a node that did not exist; return whether it exists now."""
        return self._read(partial(self._client.exists_async, full_path, once), path, deadline) is not None

    def _read(self, request: Request, path: str, deadline: float) -> Any:
        """Send a read request, and repeat it when the connection breaks."""
        while True:
            try:
                return self._request(request, path, deadline)
            except DisconnectedError as error:
                if not isinstance(error.__cause__, ConnectionLoss):
                    raise

    def _request(self, request: Request, path: str, deadline: float) -> Any:
        self._await_connection(path, deadline)
        try:
            return request().get(timeout=max(0.0, deadline - time.monotonic()))
        except (KazooException, KazooTimeoutError) as error:
            raise translated(error, path) from error

    def _await_connection(self, path: str, deadline: float) -> None:
        # Without a connection, kazoo queues a request and sends it on reconnection, possibly long after the
        # caller got an error. When a connection breaks, kazoo first clears its connected flag, then fails the
        # requests in progress, and calls listeners last: so check the flag too.
        while not self._closing:
            if not self._connected.wait(max(0.0, deadline - time.monotonic())):
                break
            if self._client.connected:
                return
            time.sleep(0.001)
        self._restart_if_closed()
        raise DisconnectedError(
            f"no connection to ZooKeeper ({self._session.value}) for the request for {path}"
        )

    def _restart_if_closed(self) -> None:
        """Restart kazoo if its thread was ended by an internal error."""
        if not self._closing and self._client.client_state == KeeperState.CLOSED:
            self._notifier.post(self._restart)

    def _restart(self) -> None:
        if not self._closing and self._client.client_state == KeeperState.CLOSED:
            self._client.start_async()
            self._connected.wait(1.0)

    def _full_path(self, path: str) -> str:
        check_path(path)
        return (self._root or "/") if path == "/" else self._root + path

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout

    def _once(self, watch: Watcher | None) -> _Once | None:
        return None if watch is None else _Once(watch, self._notifier)

    def _state_changed(self, state: str) -> None:
        """Called by kazoo's connection thread."""
        if state == KazooState.CONNECTED:
            self._session_id = self._client.client_id[0]
            self._set_session(Session.CONNECTED)
            self._connected.set()
            return
        self._connected.clear()
        if state == KazooState.SUSPENDED:
            self._set_session(Session.SUSPENDED)
            return
        self._session_id = 0
        if not self._closing:
            self._set_session(Session.LOST)
            self._restart_if_closed()

    def _set_session(self, session: Session) -> None:
        if session is not self._session and self._session is not Session.CLOSED:
            self._session = session
            level = logging.INFO if session in (Session.CONNECTED, Session.CLOSED) else logging.WARNING
            _log.log(level, "the session with ZooKeeper is %s", session.value)
            for listener in self._listeners:
                self._notifier.post(partial(listener, session))


def _node(answer: Any) -> StoredNode:
    data, stat = answer
    return StoredNode(data or b"", stat.version, stat.ephemeralOwner)


def _node_or_none(answer: Any) -> StoredNode | None:
    return None if answer is None else _node(answer)


def _names(answer: Any) -> list[str]:
    return sorted(answer or ())


def _or_any(version: int | None) -> int:
    return -1 if version is None else version
