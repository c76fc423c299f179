"""The registration of a node in the store, which one supervisor holds at a time.

Only the supervisor that holds it acts for the node. The registration of a dead supervisor of the same machine
is replaced at once; for any other, the new supervisor waits until its session ends.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import psutil

from penstock.cluster.document_codec import DocumentError, decode, encode
from penstock.cluster.node_documents import ClusterInfo, KnownNode, NodeInfo
from penstock.coord import store_paths
from penstock.coord.coordination_store import ExistsError, MissingError, Store, StoredNode, StoreError
from penstock.daemon.step_loop import FatalError
from penstock.process_logs.process_log import get_logger
from penstock.processes import process_launcher

_log = get_logger(__name__)


class NameTakenError(FatalError):
    """Another living supervisor is registered under the name of this one."""


def registration_of(info: NodeInfo) -> NodeInfo:
    """Return the registration of a node whose supervisor runs on this machine.

    It distinguishes the supervisor's process from earlier ones with the same pid.
    """
    return replace(info, ticks=process_launcher.ticks(info.pid), boot=process_launcher.boot())


def is_dead(other: NodeInfo, own: NodeInfo) -> bool:
    """Return whether a registration of this node was left by a supervisor that is known to be dead.

    It is unknown for a registration of another run of the machine, which may be another machine with the same
    address, and for one of an earlier version whose pid is in use.
    """
    if other.host != own.host or (other.boot and other.boot != process_launcher.boot()):
        return False
    if not psutil.pid_exists(other.pid):
        return True
    begun = process_launcher.ticks(other.pid)
    # A process with another start time is another process with the same pid.
    return begun is not None and other.ticks is not None and begun != other.ticks


class NodeRegistration:
    """The registration of one node, as its supervisor sees it."""

    def __init__(
        self,
        store: Store,
        info: NodeInfo,
        *,
        predecessor: float,
        is_dead: Callable[[NodeInfo], bool] = lambda _: False,
        admit: Callable[[str], None] | None = None,
    ) -> None:
        self._store = store
        self._info = info
        self._path = f"{store_paths.NODES}/{info.name}"
        self._predecessor = predecessor
        """Seconds to wait for the registration of another supervisor to end."""
        self._is_dead = is_dead
        """Returns whether a registration was left by a dead supervisor of this machine."""
        self._admit = admit
        """Raises FatalError unless the node belongs to the cluster with an id; None after it was called."""
        self._other: tuple[int, float] | None = None
        """The session of another supervisor with the name, and since when this one waits for its end."""
        self.session = 0
        """The session in which the node was registered last; 0 before the first."""
        self.is_held = False
        """Whether the name was this supervisor's when the store last answered."""

    def check_cluster(self) -> None:
        """Check once that the node belongs to this cluster; leaders of earlier versions write no id."""
        if self._admit is None:
            return
        known = self._store.get(store_paths.CLUSTER)
        if known is not None:
            self._admit(decode(ClusterInfo, known.data).id)
            self._admit = None

    def disconnected(self) -> None:
        """Restart the wait for another session: sessions do not expire while the store is down."""
        self._other = None

    def renew(self, moment: float, now: float) -> bool:
        """Register the node if it is not, and return whether it is. Raises NameTakenError."""
        self.is_held = self._register(moment, now)
        return self.is_held

    def _register(self, moment: float, now: float) -> bool:
        session, name = self._store.session_id, self._info.name
        if session == self.session:
            return True
        known = self._store.get(self._path)
        if known is not None and known.owner != session:
            if not self._was_left(known):
                self._wait_for(known, moment)
                return False
            with suppress(MissingError):
                self._store.delete(self._path, version=known.version)
        with suppress(ExistsError):
            self._store.create(f"{store_paths.KNOWN}/{name}", encode(KnownNode(name, now)))
        try:
            if known is None or known.owner != session:
                self._store.create(self._path, encode(self._info), ephemeral=True)
        except ExistsError:
            return False  # Another supervisor was faster: the next step reads which one.
        self.session = session
        self._other = None
        _log.info("registered", session=f"{session:x}")
        return True

    def _was_left(self, known: StoredNode) -> bool:
        """Return whether a registration was left by a dead supervisor of this machine."""
        try:
            return self._is_dead(decode(NodeInfo, known.data))
        except DocumentError:
            return False

    def _wait_for(self, known: StoredNode, moment: float) -> None:
        """Wait for the session of another supervisor to end. Raises NameTakenError when it does not."""
        if self._other is None or self._other[0] != known.owner:
            self._other = (known.owner, moment)
            _log.warning("another session has the name: waiting for its end", node=self._info.name)
        if moment - self._other[1] < self._predecessor:
            return
        try:
            other = decode(NodeInfo, known.data)
            where = f" at {other.url or other.host} (process {other.pid})"
        except DocumentError:
            where = ""
        raise NameTakenError(
            f"another supervisor of node {self._info.name!r} runs{where}, and names must be unique: choose"
            " another name with --name, or stop the other supervisor first"
        )

    def leave(self) -> None:
        """Remove the registration of this session, and the node from the expected nodes."""
        name = self._info.name
        for path in (self._path, f"{store_paths.REPORTS}/{name}"):
            with suppress(StoreError):
                known = self._store.get(path)
                if known is None or known.owner != self._store.session_id:
                    continue
                with suppress(MissingError):  # Before the registration goes: the node must not be missed.
                    self._store.delete(f"{store_paths.KNOWN}/{name}")
                self._store.delete(path, version=known.version)
