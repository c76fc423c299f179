"""The zip file of a bundle: write it, read it within limits, and verify its files against the manifest.

The signature covers the whole bundle and is checked before it is opened. The manifest has the SHA-256 of each
file.
"""

from __future__ import annotations

import hashlib
import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.bundles.bundle_limits import (
    LONGEST_NAME,
    MOST_FILES,
    MOST_MANIFEST,
    MOST_PACKED,
    MOST_UNPACKED,
    check_names,
    megabytes,
)
from penstock.bundles.bundle_manifest import MANIFEST, BundleManifest, decode_manifest
from penstock.bundles.bundle_signature import BundleError, check_signature

_END = struct.Struct("<4s4H2IH")
_CENTRAL_HEADER = 46
"""Size of a directory entry, without the file name."""
_ZIP64_LOCATOR = b"PK\6\7"
_ZIP64_LOCATOR_SIZE = 20
_ENCRYPTED = 1
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, struct.error)
"""Errors of zipfile for a damaged archive; RuntimeError if its headers contradict each other."""
_CHUNK = 1 << 16


def write_archive(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Create an archive of files in the given order; equal files give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files:
            info = zipfile.ZipInfo(name)  # A constant date, 1 January 1980.
            info.create_system = 3
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | 0o600) << 16
            archive.writestr(info, data, compresslevel=6)
    if buffer.tell() > MOST_PACKED:
        raise BundleError(f"the bundle is larger than {megabytes(MOST_PACKED)}: leave data out of its folder")
    return buffer.getvalue()


def open_archive(bundle: bytes) -> zipfile.ZipFile:
    """Open an archive after checking the names, types, sizes and number of its files. Raises BundleError."""
    if len(bundle) > MOST_PACKED:
        raise BundleError(f"the bundle is larger than {megabytes(MOST_PACKED)}")
    _check_directory(bundle)
    try:
        archive = zipfile.ZipFile(io.BytesIO(bundle))
    except _DAMAGED as error:
        raise BundleError(f"this is not a bundle: {error}") from None
    files = archive.infolist()
    if len(files) > MOST_FILES + 1:
        raise BundleError(f"the bundle has {len(files)} files, more than {MOST_FILES}")
    check_names(file.orig_filename for file in files)  # filename is truncated at a NUL character.
    for file in files:
        if not stat.S_ISREG(file.external_attr >> 16):
            raise BundleError(f"{file.filename!r} is not a regular file: links are not allowed")
        if file.flag_bits & _ENCRYPTED:
            raise BundleError(f"the file {file.filename!r} is encrypted")
        if file.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BundleError(
                f"the file {file.filename!r} is compressed by the unsupported method {file.compress_type}"
            )
    total = sum(file.file_size for file in files)
    if total > MOST_UNPACKED + MOST_MANIFEST:
        raise BundleError(f"the bundle unpacks to {megabytes(total)}, more than {megabytes(MOST_UNPACKED)}")
    return archive


def _check_directory(bundle: bytes) -> None:
    """Raise BundleError for another format, or a directory too large for zipfile to read into memory."""
    end = len(bundle) - _END.size
    if end < 0 or not bundle.startswith((b"PK\3\4", b"PK\5\6")):
        raise BundleError("this is not a bundle: it is not a zip file")
    magic, _, _, _, _, size, offset, comment = _END.unpack_from(bundle, end)
    if magic != b"PK\5\6" or comment or offset + size != end:
        raise BundleError(
            "this is not a bundle: the zip file does not end with its directory (it was extended, truncated, "
            "or packed by another tool)"
        )
    if bundle[max(0, end - _ZIP64_LOCATOR_SIZE) : end].startswith(_ZIP64_LOCATOR):
        raise BundleError("this is not a bundle: it is a ZIP64 file")
    if size > (MOST_FILES + 1) * (_CENTRAL_HEADER + LONGEST_NAME):
        raise BundleError(f"the zip file's directory is too large for {MOST_FILES} files")


def read_file(archive: zipfile.ZipFile, file: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield a file's content in pieces, never more than its declared size; BundleError if it is damaged."""
    count = 0
    try:
        with archive.open(file) as content:
            while piece := content.read(_CHUNK):
                count += len(piece)
                yield piece
    except _DAMAGED as error:
        raise BundleError(f"the file {file.filename!r} is damaged: {error}") from None
    if count != file.file_size:
        raise BundleError(f"the file {file.filename!r} is damaged: it does not have its declared size")


@dataclass(frozen=True)
class OpenedBundle:
    """A bundle with checked structure and manifest; each file is checked when it is read."""

    archive: zipfile.ZipFile
    manifest: BundleManifest
    manifest_data: bytes
    files: tuple[zipfile.ZipInfo, ...]
    """The files without the manifest."""

    def read(self, file: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield a file's data in pieces; raise BundleError, at the latest at the end, if it is damaged."""
        digest = hashlib.sha256()
        for piece in read_file(self.archive, file):
            digest.update(piece)
            yield piece
        if digest.hexdigest() != self.manifest.files[file.filename].sha256:
            raise BundleError(f"the file {file.filename!r} does not have the SHA-256 in the manifest")


def open_bundle(bundle: bytes) -> OpenedBundle:
    """Open a bundle and check everything except its signature and the content of its files."""
    archive = open_archive(bundle)
    files = archive.infolist()
    if not files or files[0].filename != MANIFEST:
        raise BundleError(f"this is not a bundle: its first file is not {MANIFEST}")
    first, *others = files
    if first.file_size > MOST_MANIFEST:
        raise BundleError(f"{MANIFEST} is larger than {megabytes(MOST_MANIFEST)}")
    data = b"".join(read_file(archive, first))
    manifest = decode_manifest(data)
    names = [file.filename for file in others]
    for name in sorted(set(names) ^ set(manifest.files)):
        what = "not in the manifest" if name in set(names) else "in the manifest, but not in the bundle"
        raise BundleError(f"the file {name!r} is {what}")
    if names != sorted(names):
        raise BundleError("the files of the bundle are not sorted by name")
    for file in others:
        if file.file_size != manifest.files[file.filename].size:
            raise BundleError(f"the file {file.filename!r} does not have the size in the manifest")
    if manifest.size > MOST_UNPACKED:
        raise BundleError(f"the bundle unpacks to more than {megabytes(MOST_UNPACKED)}")
    return OpenedBundle(archive, manifest, data, tuple(others))


def verify(bundle: bytes, signature: str, key: bytes) -> BundleManifest:
    """Check a bundle completely: its signature, its structure and all its files. Raises BundleError."""
    check_signature(bundle, signature, key)
    opened = open_bundle(bundle)
    for file in opened.files:
        for _ in opened.read(file):
            pass
    return opened.manifest
