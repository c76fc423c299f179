"""Files that are named by their content."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from penstock.bundles.blob_store import BlobError, BlobMissingError, BlobNameError, BlobSizeError, BlobStore
from penstock.bundles.bundle_signature import sha256_of

DATA = b"blob" * 1000
SHA = sha256_of(DATA)


def test_a_blob_is_kept_and_given(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    blobs.put(SHA, DATA)
    blobs.put(SHA, DATA)
    assert blobs.get(SHA) == DATA
    assert blobs.names() == [SHA]
    assert stat.S_IMODE((tmp_path / "blobs" / SHA).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "blobs").stat().st_mode) == 0o700
    blobs.remove(SHA)
    blobs.remove(SHA)
    with pytest.raises(BlobMissingError):
        blobs.get(SHA)


@pytest.mark.parametrize(
    "name", ["", "../x", "a" * 63, "A" * 64, "a" * 64 + "\n", "a" * 65, "%61" * 21 + "a"]
)
def test_only_a_sha256_is_a_name(tmp_path: Path, name: str) -> None:
    blobs = BlobStore(tmp_path)
    with pytest.raises(BlobNameError):
        blobs.put(name, DATA)
    with pytest.raises(BlobNameError):
        blobs.get(name)
    with pytest.raises(BlobNameError):
        blobs.remove(name)
    assert list(tmp_path.iterdir()) == []


def test_what_is_wrong_or_too_large_leaves_nothing(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path, max_size=len(DATA))
    with pytest.raises(BlobError, match="has the SHA-256"):
        blobs.put(SHA, DATA[:-1])
    with pytest.raises(BlobSizeError), blobs.incoming(SHA) as blob:
        blob.write(DATA + b"!")
    assert list(tmp_path.iterdir()) == []
    blobs.put(SHA, DATA)


def test_a_damaged_blob_is_not_given_and_can_be_put_again(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    blobs.put(SHA, DATA)
    (tmp_path / SHA).write_bytes(DATA[:-1] + b"?")
    with pytest.raises(BlobError, match="damaged"):
        blobs.get(SHA)
    blobs.put(SHA, DATA)
    assert blobs.get(SHA) == DATA


def test_what_a_crash_left_is_removed_at_the_start(tmp_path: Path) -> None:
    (tmp_path / ".staged-0123").write_bytes(b"half")
    blobs = BlobStore(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert blobs.names() == []
