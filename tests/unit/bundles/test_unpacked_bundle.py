"""The folder of an unpacked bundle: what it lacks is seen, and it is replaced whole or not at all."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.bundles.bundle_manifest import MANIFEST
from penstock.bundles.bundle_packer import pack
from penstock.bundles.bundle_signature import BundleAccessError
from penstock.bundles.unpacked_bundle import folder_fault, replace_unpacked, unpack


@pytest.fixture
def bundle(tmp_path: Path) -> bytes:
    code = tmp_path / "code"
    (code / "shop").mkdir(parents=True)
    (code / "shop" / "orders.py").write_text("x = 1\n")
    (code / "shop" / "data.csv").write_text("1\n")
    return pack(code, entry="shop/orders.py")


@pytest.fixture
def folder(tmp_path: Path, bundle: bytes) -> Path:
    unpack(bundle, tmp_path / "unpacked" / "bundle")
    return tmp_path / "unpacked" / "bundle"


def _without_a_file(folder: Path) -> None:
    (folder / "shop" / "data.csv").unlink()


def _with_half_a_file(folder: Path) -> None:
    (folder / "shop" / "orders.py").write_text("x =")


def _with_a_link(folder: Path) -> None:
    _without_a_file(folder)
    (folder / "shop" / "data.csv").symlink_to(folder / "shop" / "orders.py")


def _without_a_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def _with_an_empty_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text("")


_DAMAGES = pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (_without_a_file, "data.csv cannot be read: No such file"),
        (_with_half_a_file, "orders.py has 3 bytes instead of 6"),
        (_with_a_link, "data.csv is not a regular file"),
        (_without_a_manifest, "is not an unpacked bundle"),
        (_with_an_empty_manifest, "is damaged"),
    ],
)


@_DAMAGES
def test_what_a_folder_has_lost_is_seen_and_unpacked_anew(
    bundle: bytes, folder: Path, damage: Callable[[Path], None], fault: str
) -> None:
    assert folder_fault(folder) is None
    damage(folder)
    assert fault in (folder_fault(folder) or "")
    replace_unpacked(bundle, folder)
    assert folder_fault(folder) is None
    assert (folder / "shop" / "orders.py").read_text() == "x = 1\n"
    assert list(folder.parent.iterdir()) == [folder], "nothing is left beside it"


def test_what_python_adds_to_a_folder_is_no_fault(folder: Path) -> None:
    (folder / "shop" / "__pycache__").mkdir()
    (folder / "shop" / "__pycache__" / "orders.pyc").write_bytes(b"code")
    assert folder_fault(folder) is None


def test_a_damaged_folder_stays_if_it_cannot_be_unpacked_anew(
    bundle: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_a_file(folder)

    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("penstock.bundles.unpacked_bundle._created", full)
    with pytest.raises(BundleAccessError, match="No space left"):
        replace_unpacked(bundle, folder)
    assert (folder / "shop" / "orders.py").exists(), "living processes may import from it"
    assert list(folder.parent.iterdir()) == [folder]
