"""Users' code in the daemons: what is taken in, what is unpacked, what is cleared away."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from logged_events import logged_events

from penstock.bundles.bundle_cache import BundleCache, FailedStartError, RefusedStartError
from penstock.bundles.bundle_manifest import MANIFEST
from penstock.bundles.bundle_packer import pack
from penstock.bundles.bundle_signature import BundleAccessError, sha256_of, sign
from penstock.bundles.bundle_store import BundleStore
from penstock.bundles.unpacked_bundle import unpack
from penstock.cluster.client_requests import InvalidRequestError, RefusedError
from penstock.cluster.document_codec import encode
from penstock.cluster.job_documents import BundleInfo
from penstock.coord import store_paths
from penstock.coord.coordination_store import Check, ConflictError, Operation
from penstock.master.bundle_intake import BundleIntake
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore

KEY = bytes(32)


class Clock:
    """A time that tests set."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Lab:
    """A store with bundles, of which one master is the leader."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MemoryStore(MemoryEnsemble())
        self.clock = Clock()
        self.bundles = BundleStore(self.store, KEY)
        self.guard: list[Operation] = []
        self.kept = BundleIntake(self.bundles, lambda: self.guard, self.clock)

    def pack(self, text: str, requirements: str = "") -> bytes:
        file = self.folder / "job.py"
        file.write_text(text)
        needs = self.folder / "requirements.txt"
        needs.write_text(requirements)
        return pack(file, requirements=needs if requirements else None)

    def put(self, text: str, requirements: str = "") -> str:
        data = self.pack(text, requirements)
        self.kept.put(sha256_of(data), sign(data, KEY), data)
        return sha256_of(data)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_a_bundle_goes_in_and_comes_out_on_a_node(lab: Lab) -> None:
    sha256 = lab.put("x = 1\n")
    assert lab.kept.has(sha256)
    folder = BundleCache(lab.bundles, lab.folder / "unpacked")(sha256)
    assert (folder / "job.py").read_text() == "x = 1\n"


def test_what_was_damaged_or_signed_by_another_is_not_taken_in(lab: Lab) -> None:
    data = lab.pack("x = 1\n")
    with pytest.raises(InvalidRequestError, match="damaged"):
        lab.kept.put("0" * 64, sign(data, KEY), data)
    with pytest.raises(InvalidRequestError):
        lab.kept.put(sha256_of(data), sign(data, b"another key"), data)
    assert lab.bundles.names() == []


def test_a_master_that_leads_no_more_takes_nothing_in(lab: Lab) -> None:
    lab.guard = [Check("/gone", 1)]
    with pytest.raises(RefusedError):
        lab.put("x = 1\n")
    lab.guard = []
    with pytest.raises(ConflictError):
        lab.bundles.put(lab.pack("y"), sign(lab.pack("y"), KEY), now=1.0, guard=[Check("/gone", 1)])


def test_a_bundle_that_was_changed_in_the_store_is_refused_before_it_is_unpacked(lab: Lab) -> None:
    sha256 = lab.put("x = 1\n")
    chunk = f"{store_paths.BUNDLES}/{sha256}/{lab.store.children(f'{store_paths.BUNDLES}/{sha256}')[0]}"
    node = lab.store.get(chunk)
    assert node is not None
    lab.store.set(chunk, node.data[:-1] + bytes([node.data[-1] ^ 1]))
    with pytest.raises(RefusedStartError, match="damaged"):
        BundleCache(lab.bundles, lab.folder / "unpacked")(sha256)
    assert list((lab.folder / "unpacked").iterdir()) == []


def test_a_node_that_lacks_what_a_job_requires_says_so(lab: Lab) -> None:
    sha256 = lab.put("x = 1\n", "no-such-package>=2\npytest>=1\n")
    with pytest.raises(FailedStartError, match=r"no-such-package>=2 \(not installed"):
        BundleCache(lab.bundles, lab.folder / "unpacked")(sha256)


def test_a_full_disk_is_the_nodes_trouble_and_not_the_bundles(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256 = lab.put("x = 1\n")
    unpacked = BundleCache(lab.bundles, lab.folder / "unpacked")

    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("penstock.bundles.unpacked_bundle._created", full)
        with pytest.raises(FailedStartError, match="No space left"):
            unpacked(sha256)
    assert (unpacked(sha256) / "job.py").exists(), "there is room again"


def test_a_bundle_that_nobody_gives_now_may_be_given_later(lab: Lab) -> None:
    info = BundleInfo("c" * 64, 1, "", holders=("n1", "n2"))
    lab.store.create(f"{store_paths.BUNDLES}/{info.sha256}", encode(info))
    unpacked = BundleCache(lab.bundles, lab.folder / "unpacked")
    with pytest.raises(FailedStartError, match="n1: not running; n2: not running"):
        unpacked(info.sha256)
    with pytest.raises(FailedStartError, match="the cluster has no bundle"):
        unpacked("d" * 64)


def test_a_bundle_whose_signature_is_wrong_is_refused_on_every_node(lab: Lab) -> None:
    sha256 = lab.put("x = 1\n")
    other = BundleStore(lab.store, b"another key")
    with pytest.raises(RefusedStartError, match="signature"):
        BundleCache(other, lab.folder / "unpacked")(sha256)


def test_an_unpacked_bundle_that_was_changed_is_the_nodes_trouble(lab: Lab) -> None:
    sha256 = lab.put("x = 1\n")
    unpacked = BundleCache(lab.bundles, lab.folder / "unpacked")
    folder = unpacked(sha256)
    (folder / "job.py").write_text("x = 2\n")
    with pytest.raises(BundleAccessError, match="differs from the file"):
        unpack(lab.bundles.fetch(sha256), folder)


@pytest.mark.parametrize("lost", ["job.py", MANIFEST])
def test_an_unpacked_bundle_that_has_lost_a_file_is_unpacked_anew_at_the_next_start(
    lab: Lab, lost: str
) -> None:
    sha256 = lab.put("x = 1\n")
    unpacked = BundleCache(lab.bundles, lab.folder / "unpacked")
    folder = unpacked(sha256)
    (folder / lost).unlink()
    with logged_events() as events:
        assert unpacked(sha256) == folder
        assert unpacked(sha256) == folder
    assert (folder / "job.py").read_text() == "x = 1\n"
    assert (folder / MANIFEST).exists()
    [event] = events
    assert lost in event["reason"]


def test_a_bundle_that_was_cut_short_is_unpacked_anew_when_it_can_be_fetched(lab: Lab) -> None:
    sha256 = lab.put("x = 1\n")
    folder = BundleCache(lab.bundles, lab.folder / "unpacked")(sha256)
    (folder / "job.py").write_text("")
    nobody = BundleStore(MemoryStore(MemoryEnsemble()), KEY)
    with pytest.raises(FailedStartError, match="the cluster has no bundle"):
        BundleCache(nobody, lab.folder / "unpacked")(sha256)
    BundleCache(lab.bundles, lab.folder / "unpacked")(sha256)
    assert (folder / "job.py").read_text() == "x = 1\n"


def test_old_bundles_are_cleared_away_but_none_that_runs(lab: Lab) -> None:
    digests = [lab.put(f"x = {number}\n") for number in range(6)]
    unpacked = BundleCache(lab.bundles, lab.folder / "unpacked", lambda: digests[:1], max_unused=2)
    for digest in digests:
        unpacked(digest)
    left = {path.name for path in (lab.folder / "unpacked").iterdir()}
    assert {digests[0], digests[5]} <= left
    assert len(left) == 4


def test_bundles_that_no_job_names_are_forgotten_after_a_while(lab: Lab) -> None:
    used, unused = lab.put("x = 1\n"), lab.put("x = 2\n")
    lab.kept.forget_others({used})
    assert lab.kept.has(unused), "it may have been sent for a job that is to come"
    lab.clock.now += 3601
    lab.kept.forget_others({used})
    assert lab.bundles.names() == [used]


def test_what_a_crash_left_half_unpacked_is_cleared_away_at_the_start(lab: Lab) -> None:
    sha256 = lab.put("x = 1\n")
    unpacked = lab.folder / "unpacked"
    left = unpacked / f".{sha256}.{'0' * 16}"
    left.mkdir(parents=True)
    folder = BundleCache(lab.bundles, unpacked)(sha256)
    assert list(unpacked.iterdir()) == [folder]


@pytest.mark.parametrize("name", ["/tmp", "../elsewhere", "job.py", "", "A" * 64])
def test_a_bundle_is_named_by_its_digest_and_by_no_path(lab: Lab, name: str) -> None:
    (lab.folder / "elsewhere").mkdir()
    unpacked = BundleCache(lab.bundles, lab.folder / "unpacked")
    with pytest.raises(RefusedStartError, match="named by their SHA-256"):
        unpacked(name)
    with pytest.raises(RefusedStartError, match="named by their SHA-256"):
        unpacked(str(lab.folder / "elsewhere"))


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("/etc/job.py", "it is absolute"),
        ("../job.py", "it has a part '..'"),
        ("other.py", "not among the files"),
        ("requirements.txt", "not among the files"),
        ("job.py:a/b", "not the name of a job"),
    ],
)
def test_the_leader_refuses_an_entry_that_is_no_file_of_the_bundle(lab: Lab, entry: str, reason: str) -> None:
    sha256 = lab.put("x = 1\n")
    lab.kept.check_entry(sha256, "job.py")
    lab.kept.check_entry(sha256, "job.py:words")
    with pytest.raises(InvalidRequestError, match=reason):
        lab.kept.check_entry(sha256, entry)
