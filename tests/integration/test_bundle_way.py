"""The whole way of a bundle: packed, put into real ZooKeeper or with real agents, fetched, unpacked."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.bundles import bundle_store
from penstock.bundles.blob_store import BlobStore
from penstock.bundles.bundle_packer import pack
from penstock.bundles.bundle_signature import sha256_of, sign
from penstock.bundles.bundle_store import CHUNK, MOST_STORED, BundleStore
from penstock.bundles.unpacked_bundle import unpack
from penstock.cluster.document_codec import encode
from penstock.cluster.node_documents import NodeInfo
from penstock.coord.coordination_store import Check, ConflictError
from penstock.coord.embedded_zookeeper import EmbeddedZooKeeper
from penstock.coord.store_paths import BUNDLES, EPOCH, NODES
from penstock.coord.zookeeper_store import ZooKeeperStore
from penstock.keyring import Keyring, signing_key
from penstock.web.http_server import serve
from penstock.web.supervisor_api import make_supervisor_api
from penstock.web.supervisor_client import SupervisorClient

RING = Keyring(bytes(32))
KEY = signing_key(RING.token)


@pytest.fixture
def store(zookeeper: EmbeddedZooKeeper) -> Iterator[ZooKeeperStore]:
    root = f"/bundles-{uuid.uuid4().hex}"
    store = ZooKeeperStore.connect(zookeeper.connect_string, RING.store_password, root=root)
    yield store
    store.close()


def bundle_of(folder: Path, size: int) -> bytes:
    folder.mkdir()
    (folder / "job.py").write_text("job = 1\n")
    (folder / "data.bin").write_bytes(random.Random(size).randbytes(size))
    return pack(folder, entry="job.py")


def test_the_largest_bundle_of_zookeeper_comes_back_and_goes(store: ZooKeeperStore, tmp_path: Path) -> None:
    bundles = BundleStore(store, KEY)
    bundle = bundle_of(tmp_path / "job", MOST_STORED - 2000)
    sha256 = sha256_of(bundle)
    assert len(bundle) <= MOST_STORED
    assert bundles.put(bundle, sign(bundle, KEY), now=1.0).chunks == MOST_STORED // CHUNK
    bundles.put(bundle, sign(bundle, KEY), now=2.0)
    unpack(bundles.fetch(sha256), tmp_path / "code")
    assert (tmp_path / "code/data.bin").read_bytes() == (tmp_path / "job/data.bin").read_bytes()
    bundles.remove(sha256)
    assert store.children(BUNDLES) == []


def test_a_bundle_that_is_removed_and_written_at_once_is_whole_or_not_there(
    store: ZooKeeperStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_store, "CHUNK", 1000)
    bundles = BundleStore(store, KEY)
    bundle = bundle_of(tmp_path / "job", 5000)
    sha256 = sha256_of(bundle)
    ended = threading.Event()
    faults: list[Exception] = []

    def remove_again_and_again() -> None:
        while not ended.is_set():
            try:
                bundles.remove(sha256)
            except ConflictError:
                continue
            except Exception as error:
                faults.append(error)
                return

    remover = threading.Thread(target=remove_again_and_again)
    remover.start()
    try:
        for _ in range(4):
            try:
                bundles.put(bundle, sign(bundle, KEY), now=1.0)
            except ConflictError:
                continue  # removed as often as it tries: the user is told to try again
    finally:
        ended.set()
        remover.join(120)
    assert faults == []
    if bundles.info(sha256) is not None:
        assert bundles.fetch(sha256) == bundle
    bundles.put(bundle, sign(bundle, KEY), now=2.0)
    assert bundles.fetch(sha256) == bundle
    bundles.remove(sha256)


def test_a_guard_that_does_not_hold_is_told_at_once(store: ZooKeeperStore, tmp_path: Path) -> None:
    store.create(EPOCH, b"1")
    bundles = BundleStore(store, KEY)
    bundle = bundle_of(tmp_path / "job", 10)
    stale = Check(EPOCH, 7)
    with pytest.raises(ConflictError) as raised:
        bundles.put(bundle, sign(bundle, KEY), now=1.0, guard=[stale])
    assert raised.value.operation == stale
    assert bundles.info(sha256_of(bundle)) is None
    bundles.remove(sha256_of(bundle))


def test_a_large_bundle_goes_from_agent_to_agent(store: ZooKeeperStore, tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path / "job", MOST_STORED + 1)
    sha256 = sha256_of(bundle)
    with ExitStack() as stack:
        client = stack.enter_context(SupervisorClient(RING.node_token))
        agents = {}
        for name in ("n1", "n2"):
            blobs = BlobStore(tmp_path / name)
            agents[name] = stack.enter_context(
                serve(make_supervisor_api(blobs, list, RING.node_token, name), "127.0.0.1")
            )
            info = NodeInfo(name, "127.0.0.1", 1, 1 << 30, url=agents[name].url)
            store.create(f"{NODES}/{name}", encode(info), ephemeral=True)
        bundles = BundleStore(store, KEY, client)
        assert bundles.put(bundle, sign(bundle, KEY), now=1.0).holders == ("n1", "n2")
        agents["n1"].close()
        assert bundles.fetch(sha256) == bundle
        bundles.remove(sha256)
        for name in agents:
            store.delete(f"{NODES}/{name}")
