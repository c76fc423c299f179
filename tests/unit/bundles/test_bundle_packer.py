"""What goes into a bundle, and that the same content is the same bundle."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

from penstock.bundles import bundle_packer
from penstock.bundles.bundle_archive import verify
from penstock.bundles.bundle_manifest import MANIFEST, decode_manifest
from penstock.bundles.bundle_packer import pack
from penstock.bundles.bundle_signature import BundleError, sha256_of, sign

KEY = b"k" * 32


def files_of(bundle: bytes) -> dict[str, bytes]:
    """Read a bundle as everybody else would."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_one_file_is_packed_with_a_manifest_in_front(tmp_path: Path) -> None:
    write(tmp_path, {"wordcount.py": "job = 1\n", "other.py": ""})
    bundle = pack(tmp_path / "wordcount.py")
    files = files_of(bundle)
    assert list(files) == [MANIFEST, "wordcount.py"]
    manifest = decode_manifest(files[MANIFEST])
    assert manifest.entry == "wordcount.py"
    assert manifest.files["wordcount.py"].size == 8
    assert manifest.created_by.startswith("penstock ")
    assert verify(bundle, sign(bundle, KEY), KEY) == manifest


def test_a_package_keeps_its_name(tmp_path: Path) -> None:
    package = write(tmp_path / "shop", {"__init__.py": "", "orders.py": "", "data/rates.csv": "1,2\n"})
    bundle = pack(package, entry="orders.py:orders")
    assert list(files_of(bundle)) == [MANIFEST, "shop/__init__.py", "shop/data/rates.csv", "shop/orders.py"]
    assert verify(bundle, sign(bundle, KEY), KEY).entry == "shop/orders.py:orders"


def test_what_is_made_anew_or_hidden_stays_at_home(tmp_path: Path) -> None:
    kept = {"main.py": "", "sub/__init__.py": "", "naïve.txt": "x"}
    left = {
        "__pycache__/main.cpython-311.pyc": "",
        "old.pyc": "",
        ".git/config": "",
        ".env": "PASSWORD=1",
        "sub/.secret": "",
        ".venv/lib/x.py": "",
        "environment/pyvenv.cfg": "",
        "environment/lib/x.py": "",
        MANIFEST: "{}",
    }
    folder = write(tmp_path, {**kept, **left})
    assert set(files_of(pack(folder, entry="main.py"))) == {MANIFEST, *kept}


def test_equal_content_is_an_equal_bundle(tmp_path: Path) -> None:
    files = {"b.py": "b", "a.py": "a", "c/d.py": "d"}
    one = write(tmp_path / "one", files)
    two = write(tmp_path / "two", dict(reversed(files.items())))
    (two / "a.py").chmod(0o755)
    os.utime(two / "a.py", (1, 1))
    assert sha256_of(pack(one, entry="a.py")) == sha256_of(pack(two, entry="a.py"))
    (two / "a.py").write_text("A")
    assert sha256_of(pack(one, entry="a.py")) != sha256_of(pack(two, entry="a.py"))


def test_requirements_are_kept_without_comments(tmp_path: Path) -> None:
    write(tmp_path, {"job.py": "", "requirements.txt": "# what we need\nriver>=0.21  # learning\n\nscipy\n"})
    bundle = pack(tmp_path / "job.py", requirements=tmp_path / "requirements.txt")
    assert verify(bundle, sign(bundle, KEY), KEY).requirements == ("river>=0.21", "scipy")


@pytest.mark.parametrize("line", ["--index-url http://example.org", "-r other.txt", "-e .", "x" * 501])
def test_requirements_with_options_are_refused_with_their_line(tmp_path: Path, line: str) -> None:
    write(tmp_path, {"job.py": "", "requirements.txt": f"scipy\n{line}\n"})
    with pytest.raises(BundleError, match=r"requirements\.txt, line 2"):
        pack(tmp_path / "job.py", requirements=tmp_path / "requirements.txt")


def test_what_shrinks_like_a_bomb_is_accepted(tmp_path: Path) -> None:
    write(tmp_path, {"job.py": "", "zeros.txt": "0" * 1_000_000})
    bundle = pack(tmp_path, entry="job.py")
    assert len(bundle) < 10_000
    verify(bundle, sign(bundle, KEY), KEY)


def test_a_link_inside_is_packed_as_the_file_it_means(tmp_path: Path) -> None:
    write(tmp_path, {"job.py": "1", "x/y.py": "2"})
    (tmp_path / "alias.py").symlink_to("x/y.py")
    assert files_of(pack(tmp_path, entry="job.py"))["alias.py"] == b"2"


@pytest.mark.parametrize("target", ["../outside.py", "/etc/hostname", "missing.py"])
def test_links_that_lead_outside_or_nowhere_are_refused(tmp_path: Path, target: str) -> None:
    write(tmp_path, {"outside.py": "1", "job/job.py": "1"})
    (tmp_path / "job/link.py").symlink_to(target)
    with pytest.raises(BundleError, match=r"link\.py"):
        pack(tmp_path / "job", entry="job.py")


def test_links_to_folders_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"job.py": "", "x/y.py": ""})
    (tmp_path / "loop").symlink_to(tmp_path)
    with pytest.raises(BundleError, match="link to a folder"):
        pack(tmp_path, entry="job.py")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"job.py": ""})
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BundleError, match="neither a file nor a folder"):
        pack(tmp_path, entry="job.py")


def test_a_file_that_the_system_does_not_give_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    write(tmp_path, {"job.py": ""})
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(BundleError, match=r"job\.py cannot be read: Permission denied"):
        pack(tmp_path, entry="job.py")


@pytest.mark.skipif(os.getuid() == 0, reason="root can read everything")
@pytest.mark.parametrize("name", ["job.py", "sub"])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    write(tmp_path, {"job.py": "", "sub/x.py": ""})
    mode = (tmp_path / name).stat().st_mode
    (tmp_path / name).chmod(0)
    try:
        with pytest.raises(BundleError, match=f"{name} cannot be read"):
            pack(tmp_path, entry="job.py")
    finally:
        (tmp_path / name).chmod(mode)


def test_entries_that_are_missing_or_wrong_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"job.py": "", "data.csv": ""})
    for entry, reason in {
        None: "name the file in it",
        "gone.py": "not among the files",
        "data.csv": "not a Python file",
        "job.py:a b": "not the name of a job",
    }.items():
        with pytest.raises(BundleError, match=reason):
            pack(tmp_path, entry=entry)
    with pytest.raises(BundleError, match="contains only"):
        pack(tmp_path / "job.py", entry="data.csv")
    with pytest.raises(BundleError, match="no file or folder"):
        pack(tmp_path / "gone")


def test_names_that_are_the_same_on_other_systems_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"job.py": "", "Job.py": ""})
    with pytest.raises(BundleError, match="differ by case only"):
        pack(tmp_path, entry="job.py")


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"job.py": "12345", "more.py": "67890"})
    monkeypatch.setattr(bundle_packer, "MOST_UNPACKED", 9)
    with pytest.raises(BundleError, match=r"with .*more\.py the bundle has more than"):
        pack(tmp_path, entry="job.py")
    monkeypatch.setattr(bundle_packer, "MOST_FILES", 1)
    with pytest.raises(BundleError, match="more than 1 files"):
        pack(tmp_path, entry="job.py")
    monkeypatch.setattr("penstock.bundles.bundle_archive.MOST_PACKED", 100)
    with pytest.raises(BundleError, match="larger than"):
        pack(tmp_path / "job.py")
