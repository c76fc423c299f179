"""Bundles that were made to do harm. Each is signed rightly: what refuses it is what it is."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import stat
import struct
import threading
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bundles import bundle_archive as archives
from penstock.bundles.bundle_archive import open_archive, open_bundle, read_file, verify, write_archive
from penstock.bundles.bundle_limits import file_name_fault
from penstock.bundles.bundle_manifest import (
    MANIFEST,
    BundleManifest,
    PackedFile,
    decode_manifest,
    encode_manifest,
)
from penstock.bundles.bundle_signature import BundleError, check_signature, sign
from penstock.bundles.unpacked_bundle import remove_stale_folders, unpack

KEY = b"k" * 32
FILES = {"job.py": b"job = 1\n" * 20, "shop/__init__.py": b"", "shop/data.bin": bytes(range(256))}


def manifest_of(files: dict[str, bytes], **changes: Any) -> BundleManifest:
    described = {
        name: PackedFile(hashlib.sha256(data).hexdigest(), len(data)) for name, data in files.items()
    }
    return replace(BundleManifest("job.py", described, (), "3.11", "penstock 0.1.0"), **changes)


def bundle_of(files: dict[str, bytes], manifest: bytes | None = None) -> bytes:
    first = encode_manifest(manifest_of(files)) if manifest is None else manifest
    return write_archive([(MANIFEST, first), *sorted(files.items())])


GOOD = bundle_of(FILES)


def refused(bundle: bytes, reason: str, folder: Path) -> None:
    """Expect that neither checking nor unpacking a bundle with a right signature gets through."""
    with pytest.raises(BundleError, match=reason):
        verify(bundle, sign(bundle, KEY), KEY)
    with pytest.raises(BundleError, match=reason):
        unpack(bundle, folder / "code")
    assert list(folder.rglob("*")) == []


def test_a_good_bundle_is_verified_and_unpacked(tmp_path: Path) -> None:
    assert verify(GOOD, sign(GOOD, KEY), KEY) == unpack(GOOD, tmp_path / "code") == manifest_of(FILES)
    found = {
        path.relative_to(tmp_path / "code").as_posix(): path.read_bytes()
        for path in (tmp_path / "code").rglob("*")
        if path.is_file()
    }
    assert found == {**FILES, MANIFEST: encode_manifest(manifest_of(FILES))}
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "code").rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert stat.S_IMODE((tmp_path / "code/shop").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "code").stat().st_mode) == 0o700
    assert [path.name for path in tmp_path.iterdir()] == ["code"]


def test_a_wrong_signature_is_refused_before_anything_else() -> None:
    for signature in ("", "0" * 64, sign(GOOD, b"other"), sign(GOOD, KEY).upper(), "ü" * 64):
        with pytest.raises(BundleError, match="signature is wrong"):
            verify(GOOD, signature, KEY)
    check_signature(GOOD, sign(GOOD, KEY), KEY)


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../x.py",
        "a/../../x.py",
        "a/./x.py",
        "a//x.py",
        "a/",
        "a\\..\\x.py",
        "C:x.py",
        "c:/x.py",
        "x.py:stream",
        "x\0.py",
        "x\n.py",
        "x\x7f.py",
        "\u202eyp.x",
        "%2e%2e/x.py",
        "%252e%252e%252fx.py",
        "..%2fx.py",
        "\uff0e\uff0e/x.py",
        "a\uff0f..\uff0fx.py",
        "cafe\u0301.py",
        "x.py ",
        "a. /x.py",
        "a" * 256,
        "a/" * 600 + "x.py",
        "",
    ],
)
def test_names_that_could_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    assert file_name_fault(name) is not None
    # The writer would cut a name off at a NUL.
    writable = name.replace("\0", "@")
    bundle = bundle_of({**FILES, writable: b"x"}).replace(writable.encode(), name.encode())
    refused(bundle if name else bundle_of({**FILES, name: b"x"}), "not allowed in a bundle", tmp_path)


@pytest.mark.parametrize("name", ["x.py", "a/b/c.txt", "naïve/100%.csv", "Ω.py", ".keep", "a..b.py"])
def test_ordinary_names_are_taken(name: str) -> None:
    assert file_name_fault(name) is None


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"Job.py": b"x"}, "differ by case only"),
        ({"Shop/other.py": b"x"}, "differ by case only"),
        ({"straße.py": b"", "STRASSE.py": b""}, "differ by case only"),
        ({"shop": b"x"}, "both a file and a folder"),
    ],
)
def test_names_that_are_one_on_some_systems_are_refused(
    tmp_path: Path, files: dict[str, bytes], reason: str
) -> None:
    refused(bundle_of({**FILES, **files}), reason, tmp_path)


def test_files_twice_or_out_of_order_are_refused(tmp_path: Path) -> None:
    packed = [(MANIFEST, encode_manifest(manifest_of(FILES))), *sorted(FILES.items())]
    with pytest.warns(UserWarning, match="Duplicate name"):
        doubled = write_archive([*packed, packed[1]])
    refused(doubled, "twice", tmp_path)
    refused(write_archive([packed[0], packed[2], packed[1], packed[3]]), "not sorted by name", tmp_path)
    refused(write_archive(packed[1:]), "first file is not", tmp_path)
    refused(write_archive([packed[1], packed[0], *packed[2:]]), "first file is not", tmp_path)
    refused(write_archive([]), "first file is not", tmp_path)


def test_files_and_manifest_must_name_each_other(tmp_path: Path) -> None:
    manifest = encode_manifest(manifest_of(FILES))
    refused(bundle_of({**FILES, "more.py": b""}, manifest), "'more.py' is not in the manifest", tmp_path)
    fewer = {name: data for name, data in FILES.items() if name != "shop/data.bin"}
    refused(bundle_of(fewer, manifest), "in the manifest, but not in the bundle", tmp_path)
    other = {**FILES, "job.py": FILES["job.py"].replace(b"1", b"2")}
    refused(bundle_of(other, manifest), "does not have the SHA-256 in the manifest", tmp_path)
    refused(bundle_of({**FILES, "job.py": b"short"}, manifest), "does not have the size", tmp_path)


def edited(**changes: Any) -> bytes:
    content = json.loads(encode_manifest(manifest_of(FILES)))
    return json.dumps({**content, **changes}, indent=1, ensure_ascii=False).encode() + b"\n"


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (b"", "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b'{"schema": 1, "schema": 1}', "duplicate key"),
        (b"[]", "does not have schema"),
        (edited(schema=2), "does not have schema"),
        (edited(files={}), "must list 1 to"),
        (edited(files=[]), "must list 1 to"),
        (edited(files={"job.py": {}}), "must have a SHA-256"),
        (edited(files={"job.py": {"sha256": "A" * 64, "size": 1}}), "must have a SHA-256"),
        (edited(files={"job.py": {"sha256": "a" * 64, "size": -1}}), "must have a SHA-256"),
        (edited(entry=None), "'entry' must be a string"),
        (edited(entry="gone.py"), "not among the files"),
        (edited(entry="shop/data.bin"), "not a Python file"),
        (edited(entry="job.py:a/b"), "not the name of a job"),
        (edited(requirements="river"), "must be a list"),
        (edited(requirements=["--index-url=http://example.org"]), "options of pip"),
        (edited(requirements=["a\nb"]), "one line"),
        (edited(more=1), "not in the canonical form"),
        (encode_manifest(manifest_of(FILES)) + b" ", "not in the canonical form"),
    ],
)
def test_manifests_that_are_malformed_are_refused(tmp_path: Path, manifest: bytes, reason: str) -> None:
    with pytest.raises(BundleError, match=reason):
        decode_manifest(manifest)
    refused(bundle_of(FILES, manifest), reason, tmp_path)


CENTRAL = GOOD.rindex(b"PK\1\2")
"""Where the directory tells of the last file."""
LOCAL = open_archive(GOOD).infolist()[1].header_offset
END = len(GOOD) - 22


def patched(offset: int, layout: str, value: int, archive: bytes = GOOD) -> bytes:
    size = struct.calcsize(layout)
    return archive[:offset] + struct.pack(layout, value) + archive[offset + size :]


@pytest.mark.parametrize(
    ("bundle", "reason"),
    [
        (patched(CENTRAL + 8, "<H", 1), "^the file 'shop/data.bin' is encrypted$"),
        (patched(CENTRAL + 38, "<I", (stat.S_IFLNK | 0o777) << 16), "is not a regular file"),
        (patched(CENTRAL + 38, "<I", (stat.S_IFIFO | 0o600) << 16), "is not a regular file"),
        (patched(CENTRAL + 38, "<I", (stat.S_IFDIR | 0o700) << 16), "is not a regular file"),
        (patched(CENTRAL + 38, "<I", 0), "is not a regular file"),
        (patched(CENTRAL + 10, "<H", 12), "compressed by the unsupported method 12"),
        (patched(CENTRAL + 10, "<H", 99), "compressed by the unsupported method 99"),
        (patched(CENTRAL + 16, "<I", 1), "damaged: Bad CRC-32"),
        (patched(CENTRAL + 20, "<I", 1), "damaged"),
        (patched(CENTRAL + 42, "<I", 0), "damaged: File name in directory .* differ"),
        (patched(CENTRAL + 42, "<I", 0xFFFFFFF0), "damaged"),
        (patched(LOCAL + 28, "<H", 4), "damaged"),
        (GOOD + b"\0", "does not end with its directory"),
        (GOOD + GOOD, "does not end with its directory"),
        (b"#!/bin/sh\n" + GOOD, "not a zip file"),
        (GOOD[:-1], "does not end with its directory"),
        (patched(END + 20, "<H", 1) + b"!", "does not end with its directory"),
        (b"", "not a zip file"),
        (b"PK\3\4" + bytes(100), "does not end with its directory"),
    ],
)
def test_archives_that_are_damaged_or_of_another_form_are_refused(
    tmp_path: Path, bundle: bytes, reason: str
) -> None:
    refused(bundle, reason, tmp_path)


def test_an_archive_of_the_64_bit_format_is_refused(tmp_path: Path) -> None:
    locator = b"PK\6\7" + bytes(16)
    start, size = struct.unpack_from("<I", GOOD, END + 16)[0], struct.unpack_from("<I", GOOD, END + 12)[0]
    longer = GOOD[:END] + locator + GOOD[END:]
    refused(patched(len(longer) - 22 + 12, "<I", size + len(locator), longer), "ZIP64", tmp_path)
    assert start + size == END


def test_a_directory_that_is_too_large_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MOST_FILES", 2)
    monkeypatch.setattr(archives, "LONGEST_NAME", 1)
    refused(GOOD, "directory is too large for 2 files", tmp_path)


def bomb(size: int, said: int) -> bytes:
    """Return a bundle with a file of zeros that says of itself to have another size."""
    data = bytes(size)
    files = {**FILES, "zeros.py": data}
    manifest = manifest_of(files)
    lying = {**manifest.files, "zeros.py": PackedFile(manifest.files["zeros.py"].sha256, said)}
    first = encode_manifest(replace(manifest, files=lying))
    honest = write_archive([(MANIFEST, first), *sorted(files.items())])
    return patched(honest.rindex(b"PK\1\2") + 24, "<I", said, honest)


def test_bombs_are_refused_by_what_comes_out(tmp_path: Path) -> None:
    refused(bomb(10_000_000, 1000), "damaged: Bad CRC-32", tmp_path)
    refused(bomb(100, 200), "does not have its declared size", tmp_path)


def test_no_more_of_a_bomb_comes_out_than_it_states() -> None:
    archive = open_archive(bomb(50_000_000, 100_000))
    file = archive.infolist()[-1]
    pieces: list[bytes] = []
    with pytest.raises(BundleError):
        pieces.extend(read_file(archive, file))
    assert sum(map(len, pieces)) <= file.file_size == 100_000


def test_sizes_and_numbers_over_the_limits_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MOST_FILES", 2)
    refused(GOOD, "has 4 files", tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr("penstock.bundles.bundle_archive.MOST_UNPACKED", 300)
    refused(GOOD, "unpacks to more than", tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr("penstock.bundles.bundle_archive.MOST_MANIFEST", 100)
    refused(GOOD, "json is larger", tmp_path)
    monkeypatch.setattr(archives, "MOST_MANIFEST", 10)
    monkeypatch.setattr(archives, "MOST_UNPACKED", 10)
    refused(GOOD, "unpacks to", tmp_path)
    monkeypatch.setattr(archives, "MOST_PACKED", 100)
    refused(GOOD, "larger than", tmp_path)


def test_other_tools_archives_are_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(MANIFEST, encode_manifest(manifest_of(FILES)))
        for name, data in sorted(FILES.items()):
            archive.writestr(name, data)
    refused(buffer.getvalue(), "is not a regular file", tmp_path)


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_no_byte_can_be_changed(position: int, change: int) -> None:
    bad = bytearray(GOOD)
    bad[position] ^= change
    altered = bytes(bad)
    with pytest.raises(BundleError, match="signature is wrong"):
        verify(altered, sign(GOOD, KEY), KEY)
    # Whoever can sign can change nothing but how the same files are compressed.
    try:
        opened = open_bundle(altered)
        files = {file.filename: b"".join(opened.read(file)) for file in opened.files}
    except BundleError:
        return
    assert files == FILES
    assert opened.manifest == manifest_of(FILES)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_in_order(data: bytes) -> None:
    with pytest.raises(BundleError):
        open_bundle(data)
    with pytest.raises(BundleError):
        open_bundle(GOOD[: len(data)] + data + GOOD[len(data) * 2 + 1 :])


NAMES = st.from_regex(r"[a-z]{1,5}(/[a-z]{1,5}){0,2}\.py", fullmatch=True)


@given(st.dictionaries(NAMES, st.binary(), min_size=1))
def test_what_is_packed_is_what_others_and_we_read(files: dict[str, bytes]) -> None:
    bundle = bundle_of({**files, "job.py": b""})
    opened = open_bundle(bundle)
    ours = {file.filename: b"".join(opened.read(file)) for file in opened.files}
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        theirs = {name: archive.read(name) for name in archive.namelist()[1:]}
    assert ours == theirs == {**files, "job.py": b""}


def test_unpacking_many_times_at_once_gives_one_whole_folder(tmp_path: Path) -> None:
    errors: list[Exception] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait(10)
        try:
            unpack(GOOD, tmp_path / "code")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []
    assert [path.name for path in tmp_path.iterdir()] == ["code"]


def test_a_crash_while_unpacking_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", crash)
    monkeypatch.setattr(Path, "rename", crash)
    with pytest.raises(KeyboardInterrupt):
        unpack(GOOD, tmp_path / "code")
    monkeypatch.undo()
    assert not (tmp_path / "code").exists()
    unpack(GOOD, tmp_path / "code")
    (tmp_path / ".hidden").mkdir()
    assert len(list(tmp_path.iterdir())) == 3
    remove_stale_folders(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", "code"]


def test_a_folder_that_was_changed_or_is_another_is_not_taken(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    unpack(GOOD, folder)
    unpack(GOOD, folder)
    (folder / "job.py").write_bytes(b"import evil")
    with pytest.raises(BundleError, match="differs from the file"):
        unpack(GOOD, folder)
    (folder / "job.py").unlink()
    with pytest.raises(BundleError, match="cannot be read"):
        unpack(GOOD, folder)
    (folder / "job.py").touch()
    with pytest.raises(BundleError, match=r"penstock-manifest\.json differs from the file"):
        unpack(bundle_of({"job.py": b""}), folder)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").touch()
    with pytest.raises(BundleError, match="cannot be read"):
        unpack(GOOD, tmp_path / "full")
    with pytest.raises(BundleError, match="cannot be unpacked"):
        unpack(GOOD, tmp_path / "full/x")
