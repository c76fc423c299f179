"""The entry of a job is a file of its verified bundle, and no other file."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from penstock.bundles.bundle_manifest import MANIFEST, check_entry_name, find_entry
from penstock.bundles.bundle_packer import pack
from penstock.bundles.bundle_signature import BundleAccessError, BundleError
from penstock.bundles.unpacked_bundle import unpack


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    (code / "shop").mkdir(parents=True)
    (code / "shop" / "orders.py").write_text("x = 1\n")
    (code / "shop" / "data.csv").write_text("1\n")
    (tmp_path / "outside.py").write_text("raise SystemExit\n")
    unpack(pack(code, entry="shop/orders.py"), tmp_path / "bundle")
    return tmp_path / "bundle"


@pytest.mark.parametrize("job", ["", ":orders"])
def test_a_file_of_the_manifest_is_found(bundle: Path, job: str) -> None:
    assert find_entry(bundle, f"shop/orders.py{job}") == bundle / "shop" / "orders.py"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("../outside.py", "'..'"),
        ("shop/../../outside.py", "'..'"),
        ("outside.py", "not among the files"),
        ("shop/data.csv", "not a Python file"),
        ("shop", "not among the files"),
        (MANIFEST, "not among the files"),
        ("shop/orders.py:../x", "not the name of a job"),
        ("", "it is empty"),
    ],
)
def test_no_other_file_is(bundle: Path, entry: str, reason: str) -> None:
    with pytest.raises(BundleError, match=reason) as refused:
        find_entry(bundle, entry)
    assert not isinstance(refused.value, BundleAccessError), "it is the same on every node"


def test_an_absolute_path_is_refused_even_to_a_file_of_the_bundle(bundle: Path) -> None:
    for path in (bundle.parent / "outside.py", bundle / "shop" / "orders.py"):
        with pytest.raises(BundleError, match="it is absolute"):
            find_entry(bundle, str(path))
        with pytest.raises(BundleError, match="it is absolute"):
            check_entry_name(f"{path}:job")


def test_a_symbolic_link_in_place_of_a_file_or_a_folder_is_refused(bundle: Path) -> None:
    file = bundle / "shop" / "orders.py"
    file.unlink()
    file.symlink_to(bundle.parent / "outside.py")
    with pytest.raises(BundleAccessError, match="symbolic link"):
        find_entry(bundle, "shop/orders.py")
    (bundle / "shop").rename(bundle.parent / "moved")
    (bundle / "shop").symlink_to(bundle.parent / "moved")
    with pytest.raises(BundleAccessError, match="symbolic link"):
        find_entry(bundle, "shop/orders.py")


def test_a_folder_that_is_damaged_is_the_nodes_trouble_and_not_the_bundles(bundle: Path) -> None:
    (bundle / "shop" / "orders.py").unlink()
    with pytest.raises(BundleAccessError, match="is missing"):
        find_entry(bundle, "shop/orders.py")
    (bundle / MANIFEST).write_text("{")
    with pytest.raises(BundleAccessError, match="is damaged"):
        find_entry(bundle, "shop/orders.py")
    (bundle / MANIFEST).unlink()
    with pytest.raises(BundleAccessError, match="not an unpacked bundle"):
        find_entry(bundle, "shop/orders.py")


def test_a_file_that_cannot_be_looked_at_is_the_nodes_trouble(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> bool:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(Path, "is_file", broken)
    with pytest.raises(BundleAccessError, match=r"orders\.py cannot be read: Input/output error"):
        find_entry(bundle, "shop/orders.py")
