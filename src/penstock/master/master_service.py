"""The interface of a master for the web layer.

Methods may be called from any thread and return plain data for JSON. Methods that change something are for
the leader and raise NotLeaderError on other masters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from penstock.cluster.client_requests import Submission


class MasterService(Protocol):
    """A master, as the web layer sees it."""

    def is_leader(self) -> bool:
        """Return whether this master leads, as far as it knows, without waiting."""
        ...

    def leader_url(self) -> str:
        """Return the address of the leader, empty while there is none, without waiting."""
        ...

    def ready(self) -> tuple[bool, str]:
        """Return whether requests can be served (connected, and a leader is known), and why not."""
        ...

    def cluster(self) -> dict[str, Any]:
        """The cluster: ``epoch`` (a number), ``leader`` (a name), ``masters`` (MasterInfo), ``version``.

        ``nodes`` and ``jobs`` say how many there are.
        """
        ...

    def nodes(self) -> list[dict[str, Any]]:
        """Every node: NodeInfo with ``report`` (NodeReport or None) and ``jobs`` (names)."""
        ...

    def node(self, name: str) -> dict[str, Any]:
        """One node. Raises NotFoundError."""
        ...

    def jobs(self) -> list[dict[str, Any]]:
        """Every job: name, phase, reason, since, generation, node, executors, progress, failures, k, safety.

        ``node`` is empty and ``progress`` None while no worker runs; executors and failures are numbers. Of a
        job with replicas, node and progress are those of the first that is in step.
        """
        ...

    def job(self, name: str) -> dict[str, Any]:
        """One job: ``spec``, ``status``, ``assignment``, ``workers``, ``result``, ``failures``, ``replicas``.

        Raises NotFoundError.
        """
        ...

    def alarms(self) -> list[dict[str, Any]]:
        """Every alarm, the newest first."""
        ...

    def put_bundle(self, sha256: str, signature: str, data: bytes) -> dict[str, Any]:
        """Store a bundle, so that a submission can name it; return BundleInfo. Repeating it is no error.

        Raises InvalidRequestError when ``data`` does not have this digest, when it was not signed with the
        cluster's key, or when it is no bundle that a supervisor would unpack.
        """
        ...

    def submit(self, submission: Submission, bundle: str) -> dict[str, Any]:
        """Accept a job, with the SHA-256 of a bundle that was stored before; return what :meth:`job` would.

        Raises RefusedError when a job of this name runs or the cluster is too small for its replicas,
        InvalidRequestError when there is no such bundle or its settings contradict each other.
        """
        ...

    def update(self, name: str, submission: Submission, bundle: str) -> dict[str, Any]:
        """Update a job to the code of a bundle that was stored before, and its replication.

        Raises RefusedError with all reasons when the job could not continue, InvalidRequestError when the
        bundle is missing.
        """
        ...

    def set_params(
        self, name: str, params: Mapping[str, str], env: Mapping[str, str | None]
    ) -> dict[str, Any]:
        """Change some parameters and environment variables of a running job, with the same code.

        Raises RefusedError when it does not run, InvalidRequestError when nothing changes or a name is
        invalid.
        """
        ...

    def replicate(self, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change the replication of a running job: some of :class:`~penstock.job_settings.Replicas`.

        Raises RefusedError when the cluster has too few nodes or racks, InvalidRequestError for what cannot
        be.
        """
        ...

    def migrate(self, name: str, node: str) -> dict[str, Any]:
        """Move a job's driver to a node; for a job with replicas, that of the first replica."""
        ...

    def scale(self, name: str, changes: Mapping[str, int], nodes: tuple[str, ...] | None) -> dict[str, Any]:
        """Change some of a job's Resources, and the nodes it may use (None leaves them)."""
        ...

    def kill(self, name: str, drain: bool) -> dict[str, Any]:
        """End a job after its batch, or after all its input."""
        ...

    def resubmit(self, name: str, fresh: bool) -> dict[str, Any]:
        """Restart a job that ended or failed; a running job gets a new worker. Its failures are cleared."""
        ...

    def forget(self, name: str, data: bool) -> dict[str, Any]:
        """Remove all documents of a job that is over; with ``data``, also its data.

        Raises RefusedError while it runs.
        """
        ...

    def rebalance(self, dry_run: bool) -> dict[str, Any]:
        """Move drivers from full nodes to emptier ones, or only return the moves: ``moves`` and ``applied``.

        A move has ``job``, ``origin``, ``target`` and ``reason``.
        """
        ...

    def placement(self, name: str) -> dict[str, Any]:
        """Why a job runs where it does. Raises NotFoundError.

        ``matrix`` (task to node), ``cost`` (each term, and the total), ``weights``, ``rejected`` (for each
        task why it is not on each other node), ``unplaced``, ``strategy``, ``asked_for``, ``refused``,
        ``nodes``, ``location`` and ``kept``.
        """
        ...

    def clear(self, alarm: str) -> None:
        """Clear an alarm; clearing that of a failed job restarts the job. Raises NotFoundError."""
        ...

    def logs(self, name: str, cursor: str, limit: int) -> dict[str, Any]:
        """Log lines of a job from all nodes in order of time: ``{"lines": [...], "cursor": "..."}``.

        A line has ``timestamp`` (ISO 8601, UTC), ``level``, ``event``, ``process``, ``node``, ``job``; of
        a job with replicas also ``replica``, the number of the one it is about.
        """
        ...

    def metrics(self) -> str:
        """The metrics in the text format of Prometheus."""
        ...
