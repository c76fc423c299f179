"""Stores uploaded bundles as the leader, and removes those that no job uses."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import Any

from penstock.bundles.bundle_archive import open_bundle
from penstock.bundles.bundle_manifest import check_entry_name, check_manifest_entry
from penstock.bundles.bundle_signature import BundleError, sha256_of
from penstock.bundles.bundle_store import BundleStore
from penstock.cluster.client_requests import InvalidRequestError, RefusedError
from penstock.cluster.document_codec import DocumentError
from penstock.coord.coordination_store import ConflictError, Operation

_UNUSED_SECONDS = 3600.0
"""How long a bundle that no job uses is kept: its job may be submitted after it."""


class BundleIntake:
    """Implements :class:`penstock.master.cluster_service.Bundles`: stores bundles as the leader."""

    def __init__(
        self, store: BundleStore, guard: Callable[[], list[Operation]], clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._guard = guard
        """Returns the checks that fence a leader's writes."""
        self._clock = clock

    def put(self, sha256: str, signature: str, data: bytes) -> dict[str, Any]:
        if sha256_of(data) != sha256:
            raise InvalidRequestError(
                f"the bundle does not have the SHA-256 {sha256}: it was damaged in transit"
            )
        try:
            known = self._store.info(sha256)
            if known is None or known.signature != signature:
                known = self._store.put(data, signature, now=self._clock(), guard=self._guard())
        except BundleError as error:
            raise InvalidRequestError(str(error)) from error
        except ConflictError as error:
            raise RefusedError("this master is no longer the leader: try again") from error
        return asdict(known)

    def has(self, sha256: str) -> bool:
        try:
            return self._store.info(sha256) is not None
        except BundleError:
            return False

    def check_entry(self, sha256: str, entry: str) -> None:
        """Raise InvalidRequestError unless an entry is a Python file of a bundle."""
        try:
            check_entry_name(entry)
            check_manifest_entry(open_bundle(self._store.fetch(sha256)).manifest, entry)
        except BundleError as error:
            raise InvalidRequestError(f"bundle {sha256[:12]}: {error}") from error

    def forget_others(self, used: Collection[str]) -> None:
        """Remove bundles that no job uses, unless they are new."""
        for sha256 in self._store.names():
            if sha256 in used:
                continue
            try:
                info = self._store.info(sha256)
            except DocumentError:
                continue
            if info is None or self._clock() - info.stored > _UNUSED_SECONDS:
                try:
                    self._store.remove(sha256, guard=self._guard())
                except ConflictError:
                    return
