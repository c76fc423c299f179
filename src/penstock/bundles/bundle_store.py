"""The bundles of a cluster: small ones in the coordination store, larger ones on supervisors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from penstock.bundles.bundle_archive import verify
from penstock.bundles.bundle_manifest import is_sha256
from penstock.bundles.bundle_signature import BundleAccessError, BundleError, check_signature, sha256_of
from penstock.cluster.document_codec import DocumentError, decode, encode
from penstock.cluster.job_documents import BundleInfo
from penstock.cluster.node_documents import NodeInfo
from penstock.coord.coordination_store import (
    Check,
    ConflictError,
    Delete,
    ExistsError,
    MissingError,
    Operation,
    Put,
    Store,
)
from penstock.coord.store_paths import BUNDLES, NODES
from penstock.errors import PenstockError

CHUNK = 512 * 1024
"""Bytes of a chunk's node: the servers limit a request with all its data to 1 MiB."""
MOST_STORED = 2 << 20
"""Maximum bytes of a bundle in the store, whose servers keep everything in memory."""
COPIES = 3
"""Number of supervisors that keep a larger bundle: two of them may be lost."""
_MAX_ATTEMPTS = 10


class BlobTransport(Protocol):
    """Access to the blobs of supervisors. Both methods raise PenstockError."""

    def put(self, url: str, sha256: str, data: bytes) -> None:
        """Store a blob on the supervisor at a URL."""
        ...

    def get(self, url: str, sha256: str) -> bytes:
        """Fetch a blob from the supervisor at a URL."""
        ...


class BundleStore:
    """The bundles of a cluster; ``key`` is :func:`penstock.keyring.signing_key`.

    A bundle's node in the store is empty until all of its chunks are written; its BundleInfo is written last.
    So an incomplete bundle is never read, and after a crash the next writer completes it.
    """

    def __init__(self, store: Store, key: bytes, blobs: BlobTransport | None = None) -> None:
        self._store = store
        self._key = key
        self._blobs = blobs

    def put(
        self, bundle: bytes, signature: str, *, now: float, guard: Sequence[Operation] = ()
    ) -> BundleInfo:
        """Verify a bundle and store it; ``guard`` is part of the transaction that makes it visible.

        Raises BundleError, and ConflictError when the guard fails.
        """
        verify(bundle, signature, self._key)
        sha256 = sha256_of(bundle)
        chunks: list[bytes] = []
        holders: tuple[str, ...] = ()
        if len(bundle) <= MOST_STORED:
            chunks = [bundle[start : start + CHUNK] for start in range(0, len(bundle), CHUNK)]
        else:
            holders = self._put_blobs(sha256, bundle)
        info = BundleInfo(sha256, len(bundle), signature, len(chunks), holders, now)
        self._transact(guard, lambda: self._write_chunks(info, chunks))
        return info

    def _write_chunks(self, info: BundleInfo, chunks: Sequence[bytes]) -> list[Operation]:
        """Write the chunks; return the operations that check them and make the bundle visible."""
        path = f"{BUNDLES}/{info.sha256}"
        self._ensure(path)
        checks = [self._put_chunk(_chunk(path, number), chunk) for number, chunk in enumerate(chunks)]
        return [*checks, Put(path, encode(info))]

    def _put_chunk(self, path: str, data: bytes) -> Check:
        # Read first: servers keep the last 500 write requests in memory, including failed ones.
        found = self._store.get(path)
        if found is None:
            self._ensure(path, data)
            return Check(path, 0)
        return Check(path, found.version if found.data == data else self._store.set(path, data))

    def _ensure(self, path: str, data: bytes = b"") -> None:
        with suppress(ExistsError):
            self._store.create(path, data)

    def _transact(self, guard: Sequence[Operation], prepare: Callable[[], list[Operation]]) -> None:
        """Run a transaction; prepare and run it again if it fails for another reason than the guard."""
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                operations = prepare()
                if operations:
                    self._store.transact([*guard, *operations])
                return
            except (ConflictError, MissingError) as error:
                failed = error.operation if isinstance(error, ConflictError) else None
                if attempt == _MAX_ATTEMPTS or failed in guard:
                    raise

    def _put_blobs(self, sha256: str, bundle: bytes) -> tuple[str, ...]:
        holders: list[str] = []
        faults = []
        nodes = list(self._nodes())
        start = int(sha256[:8], 16) % len(nodes) if nodes else 0
        for node in nodes[start:] + nodes[:start]:
            if len(holders) == COPIES or self._blobs is None:
                break
            try:
                self._blobs.put(node.url, sha256, bundle)
                holders.append(node.name)
            except PenstockError as error:
                faults.append(f"{node.name}: {error}")
        if not holders:
            raise BundleError(
                f"no supervisor could store the bundle of {len(bundle)} bytes ({_listed(faults)}): start one"
            )
        return tuple(sorted(holders))

    def _nodes(self) -> Iterator[NodeInfo]:
        for name in self._store.children(NODES):
            node = self._store.get(f"{NODES}/{name}")
            if node is not None:
                with suppress(DocumentError):  # A node of a later version: others may have the bundle too.
                    info = decode(NodeInfo, node.data)
                    if info.url:
                        yield info

    def info(self, sha256: str) -> BundleInfo | None:
        """Return the BundleInfo of a bundle; None if the bundle is missing or incomplete."""
        if not is_sha256(sha256):
            raise BundleError("bundles are named by their SHA-256")
        node = self._store.get(f"{BUNDLES}/{sha256}")
        return decode(BundleInfo, node.data) if node is not None and node.data else None

    def names(self) -> list[str]:
        """Return the SHA-256 of each bundle, including incomplete ones."""
        return self._store.children(BUNDLES)

    def fetch(self, sha256: str) -> bytes:
        """Fetch a bundle and check its size, SHA-256 and signature.

        Raises BundleAccessError when the bundle is missing or no supervisor that has it answers, and
        BundleError when it must not be used.
        """
        info = self.info(sha256)
        if info is None:
            raise BundleAccessError(f"the cluster has no bundle {sha256}")
        if info.chunks:
            bundle = b"".join(self._chunks(info))
            self._check(info, sha256, bundle)
            return bundle
        return self._fetch_blob(info, sha256)

    def _chunks(self, info: BundleInfo) -> Iterator[bytes]:
        if info.chunks > MOST_STORED // CHUNK:
            raise BundleError(f"the bundle {info.sha256} has {info.chunks} chunks, more than the maximum")
        for number in range(info.chunks):
            node = self._store.get(_chunk(f"{BUNDLES}/{info.sha256}", number))
            if node is None:
                raise BundleAccessError(
                    f"the bundle {info.sha256} lacks chunk {number}: submit the job again"
                )
            yield node.data

    def _fetch_blob(self, info: BundleInfo, sha256: str) -> bytes:
        urls = {node.name: node.url for node in self._nodes()}
        faults = []
        for holder in info.holders:
            if holder not in urls or self._blobs is None:
                faults.append(f"{holder}: not running")
                continue
            try:
                bundle = self._blobs.get(urls[holder], sha256)
                self._check(info, sha256, bundle)
                return bundle
            except PenstockError as error:
                faults.append(f"{holder}: {error}")
        raise BundleAccessError(f"no supervisor could provide the bundle {sha256} ({_listed(faults)})")

    def _check(self, info: BundleInfo, sha256: str, bundle: bytes) -> None:
        if len(bundle) != info.size or sha256_of(bundle) != sha256:
            raise BundleError(f"the bundle {sha256} is damaged: it has another size or SHA-256")
        check_signature(bundle, info.signature, self._key)

    def remove(self, sha256: str, *, guard: Sequence[Operation] = ()) -> None:
        """Remove a bundle, complete or not, in one transaction; supervisors remove blobs themselves.

        Raises ConflictError when the guard fails, or when another process keeps writing the bundle.
        """
        path = f"{BUNDLES}/{sha256}"

        def deletions() -> list[Operation]:
            if not is_sha256(sha256) or self._store.get(path) is None:
                return []
            return [*(Delete(f"{path}/{name}") for name in self._store.children(path)), Delete(path)]

        self._transact(guard, deletions)


def _chunk(path: str, number: int) -> str:
    return f"{path}/{number:05}"


def _listed(faults: list[str]) -> str:
    return "; ".join(faults) or "none is running"
