"""Bundles in the coordination store and with supervisors."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.bundles.bundle_packer import pack
from penstock.bundles.bundle_signature import BundleError, sha256_of, sign
from penstock.bundles.bundle_store import CHUNK, MOST_STORED, BundleStore
from penstock.cluster.document_codec import decode, encode
from penstock.cluster.job_documents import BundleInfo
from penstock.cluster.node_documents import NodeInfo
from penstock.coord.coordination_store import Check, ConflictError, DisconnectedError, Operation
from penstock.coord.store_paths import BUNDLES, EPOCH, NODES
from penstock.errors import PenstockError
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore

KEY = b"k" * 32


class MemoryBlobs:
    """The blobs of supervisors, some of which do not answer."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, bytes]] = {}
        self.down: set[str] = set()

    def put(self, url: str, sha256: str, data: bytes) -> None:
        self._reach(url)
        self.kept.setdefault(url, {})[sha256] = data

    def get(self, url: str, sha256: str) -> bytes:
        self._reach(url)
        return self.kept[url][sha256]

    def _reach(self, url: str) -> None:
        if url in self.down:
            raise PenstockError(f"{url} does not answer")


def bundle_of(folder: Path, size: int) -> bytes:
    (folder / "job.py").write_text("")
    (folder / "data.bin").write_bytes(random.Random(size).randbytes(size))
    return pack(folder, entry="job.py")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(MemoryEnsemble())


def start_nodes(store: MemoryStore, *names: str) -> None:
    for name in names:
        info = NodeInfo(name, "127.0.0.1", 2, 1 << 30, url=f"http://{name}")
        store.create(f"{NODES}/{name}", encode(info), ephemeral=True)


def test_a_small_bundle_is_kept_in_chunks(store: MemoryStore, tmp_path: Path) -> None:
    bundles = BundleStore(store, KEY)
    bundle = bundle_of(tmp_path, 3 * CHUNK)
    sha256 = sha256_of(bundle)
    info = bundles.put(bundle, sign(bundle, KEY), now=5.0)
    assert info == BundleInfo(sha256, len(bundle), sign(bundle, KEY), chunks=4, stored=5.0)
    assert bundles.info(sha256) == info
    assert bundles.fetch(sha256) == bundle
    assert store.children(f"{BUNDLES}/{sha256}") == ["00000", "00001", "00002", "00003"]
    assert bundles.put(bundle, sign(bundle, KEY), now=6.0).stored == 6.0
    bundles.remove(sha256)
    bundles.remove(sha256)
    assert bundles.names() == []
    with pytest.raises(BundleError, match="has no bundle"):
        bundles.fetch(sha256)


def test_half_a_bundle_is_no_bundle_and_can_be_completed(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundles = BundleStore(store, KEY)
    bundle = bundle_of(tmp_path, 3 * CHUNK)
    sha256 = sha256_of(bundle)
    create = store.create

    def crash_in_the_middle(path: str, data: bytes) -> None:
        if path.endswith("00002"):
            raise DisconnectedError("gone")
        create(path, data)

    monkeypatch.setattr(store, "create", crash_in_the_middle)
    with pytest.raises(DisconnectedError):
        bundles.put(bundle, sign(bundle, KEY), now=1.0)
    monkeypatch.undo()
    assert bundles.names() == [sha256]
    assert bundles.info(sha256) is None
    with pytest.raises(BundleError, match="has no bundle"):
        bundles.fetch(sha256)
    bundles.put(bundle, sign(bundle, KEY), now=2.0)
    assert bundles.fetch(sha256) == bundle


def test_a_bundle_removed_while_it_is_written_is_written_again(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundles = BundleStore(store, KEY)
    bundle = bundle_of(tmp_path, 3 * CHUNK)
    sha256 = sha256_of(bundle)
    create = store.create
    removals = iter([True])

    def remove_in_the_middle(path: str, data: bytes) -> None:
        if path.endswith("00002") and next(removals, False):
            bundles.remove(sha256)
        create(path, data)

    monkeypatch.setattr(store, "create", remove_in_the_middle)
    info = bundles.put(bundle, sign(bundle, KEY), now=1.0)
    assert next(removals, None) is None
    assert bundles.info(sha256) == info
    assert bundles.fetch(sha256) == bundle


def test_a_leader_that_was_replaced_makes_nothing_visible(store: MemoryStore, tmp_path: Path) -> None:
    store.create(EPOCH, b"7")
    bundles = BundleStore(store, KEY)
    bundle = bundle_of(tmp_path, 10)
    guard: list[Operation] = [Check(EPOCH, 0)]
    store.set(EPOCH, b"8")
    with pytest.raises(ConflictError):
        bundles.put(bundle, sign(bundle, KEY), now=1.0, guard=guard)
    assert bundles.info(sha256_of(bundle)) is None
    with pytest.raises(ConflictError):
        bundles.remove(sha256_of(bundle), guard=guard)
    bundles.remove(sha256_of(bundle), guard=[Check(EPOCH, 1)])
    assert bundles.names() == []


def test_what_is_not_signed_is_not_kept(store: MemoryStore, tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, 10)
    with pytest.raises(BundleError, match="signature"):
        BundleStore(store, KEY).put(bundle, sign(bundle, b"other"), now=1.0)
    assert store.children(BUNDLES) == []


def test_what_was_altered_in_the_store_is_not_given(store: MemoryStore, tmp_path: Path) -> None:
    bundles = BundleStore(store, KEY)
    bundle = bundle_of(tmp_path, CHUNK)
    sha256 = sha256_of(bundle)
    bundles.put(bundle, sign(bundle, KEY), now=1.0)
    path = f"{BUNDLES}/{sha256}"
    store.set(f"{path}/00001", b"?")
    with pytest.raises(BundleError, match="damaged"):
        bundles.fetch(sha256)
    store.delete(f"{path}/00001")
    with pytest.raises(BundleError, match="lacks chunk 1"):
        bundles.fetch(sha256)
    bundles.put(bundle, sign(bundle, KEY), now=1.0)
    with pytest.raises(BundleError, match="signature"):
        BundleStore(store, b"another key").fetch(sha256)
    store.set(path, encode(BundleInfo(sha256, 1 << 40, "", chunks=1 << 30)))
    with pytest.raises(BundleError, match="more than the maximum"):
        bundles.fetch(sha256)
    with pytest.raises(BundleError, match="named by their SHA-256"):
        bundles.fetch("../jobs")


def test_a_large_bundle_is_kept_by_three_supervisors(store: MemoryStore, tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    bundles = BundleStore(store, KEY, blobs)
    bundle = bundle_of(tmp_path, MOST_STORED + 1)
    sha256 = sha256_of(bundle)
    with pytest.raises(BundleError, match="none is running"):
        bundles.put(bundle, sign(bundle, KEY), now=1.0)
    assert bundles.info(sha256) is None
    start_nodes(store, "a", "b", "c", "d", "e")
    blobs.down = {"http://b", "http://d"}
    info = bundles.put(bundle, sign(bundle, KEY), now=1.0)
    assert info.holders == ("a", "c", "e")
    assert info.chunks == 0
    assert store.children(f"{BUNDLES}/{sha256}") == []
    blobs.down = {"http://a"}
    blobs.kept["http://c"][sha256] = b"damaged"
    assert bundles.fetch(sha256) == bundle
    blobs.down.add("http://e")
    store.delete(f"{NODES}/e")
    with pytest.raises(BundleError, match=r"a: http://a does not answer; c: .*damaged.*; e: not running"):
        bundles.fetch(sha256)
    found = store.get(f"{BUNDLES}/{sha256}")
    assert found is not None
    assert decode(BundleInfo, found.data) == info
    bundles.remove(sha256)
    assert bundles.names() == []
