"""The store on ZooKeeper through kazoo.

Watchers and listeners are called by a thread of their own, so that kazoo's threads never run user callbacks.
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
from penstock.coord.zookeeper_errors import refused, translated
from penstock.errors import SettingError

_log = logging.getLogger(__name__)


class Notifier:
    """Calls functions one after the other, in the order in which they were posted, in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def post(self, call: Callable[[], None]) -> None:
        """Have a function called soon; returns at once."""
        self._calls.put(call)

    def close(self, timeout: float) -> None:
        """Call what was posted before, then end; waits for that no longer than ``timeout``."""
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
"""The user whose password opens the nodes."""


# kazoo logs each request at level DEBUG, with password and data, and each attempt to connect as a warning.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.addFilter(lambda record: record.levelno >= logging.ERROR)

Request = Callable[[], Any]
T = TypeVar("T")


class _Once:
    """A watcher for kazoo; set in two places, it still fires once."""

    def __init__(self, watcher: Watcher, notifier: Notifier) -> None:
        self._watcher: Watcher | None = watcher
        self._notifier = notifier

    def __call__(self, _event: object) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            self._notifier.post(watcher)


class ZooKeeperStore:
    """A session with ZooKeeper; made by :meth:`connect`.

    kazoo connects again for ever, and goes on with a new session when the old one has expired. It drops all
    watches whenever the connection breaks, and calls their watchers. No operation waits longer than
    ``timeout``: while there is no connection it waits for one that long, and raises DisconnectedError then.
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
        """Connect to ``host:port,host:port,…`` and make the root if it is not there.

        Only clients with the password can read and change the nodes that are made.
        Raises DisconnectedError when no server answers, SettingError when the root belongs to another client.
        """
        check_path(root)
        acl = [make_digest_acl(IDENTITY, password, all=True)]
        if "/" in hosts:
            raise SettingError(f"{hosts!r} must be host:port,host:port: a path is given as the root")
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
            raise SettingError(f"{hosts!r} are not the addresses of ZooKeeper servers: {error}") from None
        store = cls(client, acl, root, timeout)
        try:
            client.start_async()
            if not store._connected.wait(timeout):
                raise DisconnectedError(f"no ZooKeeper server of {hosts} answered within {timeout:g} seconds")
            store._prepare_root()
        except BaseException:
            store.close()
            raise
        return store

    @property
    def session(self) -> Session:
        """How the session stands now."""
        return self._session

    @property
    def session_id(self) -> int:
        """The id that ephemeral nodes of this session have as ``owner``; 0 while there is no session."""
        return self._session_id

    def listen(self, listener: Callable[[Session], None]) -> None:
        """Have a function called, in a thread of the store, when the session stands otherwise."""
        self._listeners.append(listener)

    def get(self, path: str, watch: Watcher | None = None) -> StoredNode | None:
        """Return a node, None when there is none. ``watch`` fires when it is created, set or deleted."""
        return self._get(path, self._once(watch), self._deadline())

    def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """Return the names below a node, sorted; none when it is not there."""
        return self._children(path, self._once(watch), self._deadline())

    def get_many(self, reads: Sequence[Read]) -> Iterator[StoredNode | None]:
        """Yield several nodes; all requests are sent before the first answer is waited for."""
        return self._many(reads, self._client.get_async, _node_or_none, self._get)

    def children_many(self, reads: Sequence[Read]) -> Iterator[list[str]]:
        """Yield the names below several nodes, likewise."""
        return self._many(reads, self._client.get_children_async, _names, self._children)

    def _get(self, path: str, once: _Once | None, deadline: float) -> StoredNode | None:
        place = self._place(path)
        while True:
            try:
                return _node(self._read(partial(self._client.get_async, place, once), path, deadline))
            except MissingError:
                if once is None or not self._appeared(place, once, path, deadline):
                    return None

    def _children(self, path: str, once: _Once | None, deadline: float) -> list[str]:
        place = self._place(path)
        while True:
            try:
                return sorted(
                    self._read(partial(self._client.get_children_async, place, once), path, deadline)
                )
            except MissingError:
                if once is None or not self._appeared(place, once, path, deadline):
                    return []

    def _many(
        self,
        reads: Sequence[Read],
        ask: Callable[..., Any],
        made: Callable[[Any], T],
        alone: Callable[[str, _Once | None, float], T],
    ) -> Iterator[T]:
        """Ask for all, then take the answers one by one; ``alone`` asks again where there was none.

        ``made`` makes of an answer what is returned, of None what stands for a node that is not there.
        """
        if not reads:
            return
        wanted = [(path, self._place(path), self._once(watch)) for path, watch in reads]
        self._await_connection(reads[0][0], self._deadline())
        answers = [ask(place, once) for _, place, once in wanted]
        for (path, place, once), answer in zip(wanted, answers, strict=True):
            deadline = self._deadline()
            try:
                found = answer.get(timeout=self._timeout)
            except NoNodeError:
                there = once is not None and self._appeared(place, once, path, deadline)
                yield alone(path, once, deadline) if there else made(None)
            except ConnectionLoss:
                yield alone(path, once, deadline)  # It may be back, and what is only read may be asked twice.
            except (KazooException, KazooTimeoutError) as error:
                raise translated(error, path) from error
            else:
                yield made(found)

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        """Create a node, and lasting empty ones above it as needed."""
        place, deadline = self._place(path), self._deadline()
        check_size(path, data)
        request = partial(self._client.create_async, place, data, acl=self._acl, ephemeral=ephemeral)
        while True:
            try:
                self._ask(request, path, deadline)
                return
            except MissingError:
                for above in ancestors(path):
                    self._make(self._place(above), deadline)

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        """Set a node's data and return its new version."""
        check_size(path, data)
        request = partial(self._client.set_async, self._place(path), data, _or_any(version))
        return int(self._ask(request, path, self._deadline()).version)

    def delete(self, path: str, *, version: int | None = None) -> None:
        """Delete a node."""
        request = partial(self._client.delete_async, self._place(path), _or_any(version))
        self._ask(request, path, self._deadline())

    def transact(self, operations: Sequence[Operation]) -> None:
        """Do all of it or nothing."""
        check_operations(operations)
        transaction = self._client.transaction()
        for operation in operations:
            place = self._place(operation.path)
            if isinstance(operation, Create):
                transaction.create(place, operation.data, acl=self._acl, ephemeral=operation.ephemeral)
            elif isinstance(operation, Put):
                transaction.set_data(place, operation.data, _or_any(operation.version))
            elif isinstance(operation, Check):
                transaction.check(place, operation.version)
            else:
                transaction.delete(place, _or_any(operation.version))
        error = refused(operations, self._ask(transaction.commit_async, "a transaction", self._deadline()))
        if error is not None:
            raise error

    def close(self) -> None:
        """End the session; its ephemeral nodes are gone at once if a server can be reached."""
        if self._closing:
            return
        self._closing = True
        # Ending waits for a connection attempt that is under way, for as long as that takes.
        ending = threading.Thread(target=self._end, name="penstock-store-end", daemon=True)
        ending.start()
        ending.join(self._timeout)
        self._stands(Session.CLOSED)
        self._notifier.close(1.0)

    def _end(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:
            _log.warning("the ZooKeeper client did not end as it should: %s", error)

    def _prepare_root(self) -> None:
        """Make the root unless it is there, and see that it is ours alone."""
        if not self._root:
            return
        root, deadline = self._root, self._deadline()
        try:
            for place in [*ancestors(root), root]:
                if self._read(partial(self._client.exists_async, place), place, deadline) is None:
                    self._make(place, deadline)
            acl, _ = self._read(partial(self._client.get_acls_async, root), root, deadline)
        except DisconnectedError:
            raise
        except StoreError as error:
            raise SettingError(
                f"this key cannot open {root} in ZooKeeper: use the one it was made with, or another root"
                f" ({error})"
            ) from None
        if acl != self._acl:
            raise SettingError(f"{root} in ZooKeeper is open to others than this cluster: use another root")

    def _make(self, place: str, deadline: float) -> None:
        """Make a node that may be there already."""
        try:
            self._ask(partial(self._client.create_async, place, b"", acl=self._acl), place, deadline)
        except ExistsError:
            return

    def _appeared(self, place: str, once: _Once, path: str, deadline: float) -> bool:
        """Watch for a node that was not there; whether it is there by now."""
        return self._read(partial(self._client.exists_async, place, once), path, deadline) is not None

    def _read(self, request: Request, path: str, deadline: float) -> Any:
        """Ask for something that may be asked twice: a broken connection costs time only."""
        while True:
            try:
                return self._ask(request, path, deadline)
            except DisconnectedError as error:
                if not isinstance(error.__cause__, ConnectionLoss):
                    raise

    def _ask(self, request: Request, path: str, deadline: float) -> Any:
        self._await_connection(path, deadline)
        try:
            return request().get(timeout=max(0.0, deadline - time.monotonic()))
        except (KazooException, KazooTimeoutError) as error:
            raise translated(error, path) from error

    def _await_connection(self, path: str, deadline: float) -> None:
        # A request that kazoo gets while there is no connection stays in its queue, and is sent whenever
        # there is one, long after the caller was told otherwise. kazoo says that it is not connected before
        # it fails what is under way, and calls listeners after that.
        while not self._closing:
            if not self._connected.wait(max(0.0, deadline - time.monotonic())):
                break
            if self._client.connected:
                return
            time.sleep(0.001)
        self._revive()
        raise DisconnectedError(f"no connection to ZooKeeper ({self._session.value}), asked about {path}")

    def _revive(self) -> None:
        """Start kazoo again if its thread ended by an error inside it."""
        if not self._closing and self._client.client_state == KeeperState.CLOSED:
            self._notifier.post(self._start_again)

    def _start_again(self) -> None:
        if not self._closing and self._client.client_state == KeeperState.CLOSED:
            self._client.start_async()
            self._connected.wait(1.0)

    def _place(self, path: str) -> str:
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
            self._stands(Session.CONNECTED)
            self._connected.set()
            return
        self._connected.clear()
        if state == KazooState.SUSPENDED:
            self._stands(Session.SUSPENDED)
            return
        self._session_id = 0
        if not self._closing:
            self._stands(Session.LOST)
            self._revive()

    def _stands(self, session: Session) -> None:
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
