"""The zip file of a bundle: write it, read it within limits, and verify its files against the manifest."""

from __future__ import annotations

import hashlib
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from penstock.bundles.bundle_limits import (
    MOST_FILES,
    MOST_MANIFEST,
    MOST_PACKED,
    MOST_RATIO,
    MOST_UNPACKED,
    check_names,
    megabytes,
)
from penstock.bundles.bundle_manifest import MANIFEST, BundleManifest, decode_manifest
from penstock.bundles.bundle_signature import BundleError, check_signature

STORED, DEFLATED = 0, 8
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_NEEDS = 20  # the version of the format that has folders and deflate, and nothing later
_MADE_BY = (3 << 8) | _NEEDS  # Unix
_UTF8 = 1 << 11
_ENCRYPTED = 1
_MODE = (stat.S_IFREG | 0o600) << 16
_MIDNIGHT = (0, (1 << 5) | 1)  # of 1 January 1980, the first day that a zip file can name
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Entry:
    """A file in an archive."""

    name: str
    method: int
    checksum: int
    packed: int
    size: int
    offset: int = 0

    @property
    def flags(self) -> int:
        return 0 if self.name.isascii() else _UTF8

    @property
    def start(self) -> int:
        """Where its data begin."""
        return self.offset + _LOCAL.size + len(self.name.encode())

    @property
    def end(self) -> int:
        return self.start + self.packed

    def local_header(self) -> bytes:
        name = self.name.encode()
        fixed = (_NEEDS, self.flags, self.method, *_MIDNIGHT, self.checksum, self.packed, self.size)
        return _LOCAL.pack(b"PK\3\4", *fixed, len(name), 0) + name

    def central_header(self) -> bytes:
        name = self.name.encode()
        fixed = (_MADE_BY, _NEEDS, self.flags, self.method, *_MIDNIGHT, self.checksum, self.packed, self.size)
        return _CENTRAL.pack(b"PK\1\2", *fixed, len(name), 0, 0, 0, 0, _MODE, self.offset) + name


def _end_record(count: int, size: int, offset: int) -> bytes:
    return _END.pack(b"PK\5\6", 0, 0, count, count, size, offset, 0)


def compressed(name: str, data: bytes) -> tuple[Entry, bytes]:
    """Pack one file. What would shrink so much that it looked like a bomb is stored as it is."""
    deflater = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = deflater.compress(data) + deflater.flush()
    entry = Entry(name, DEFLATED, zlib.crc32(data), len(packed), len(data))
    if len(packed) >= len(data) or len(data) > len(packed) * MOST_RATIO:
        return replace(entry, method=STORED, packed=len(data)), data
    return entry, packed


def write_archive(files: Iterable[tuple[Entry, bytes]]) -> bytes:
    """Make an archive of packed files, in the order given."""
    archive = bytearray()
    entries = []
    for entry, packed in files:
        placed = replace(entry, offset=len(archive))
        entries.append(placed)
        archive += placed.local_header() + packed
    directory = b"".join(entry.central_header() for entry in entries)
    archive += directory + _end_record(len(entries), len(directory), len(archive))
    if len(archive) > MOST_PACKED:
        raise BundleError(f"the bundle is larger than {megabytes(MOST_PACKED)}: leave data out of its folder")
    return bytes(archive)


def read_archive(archive: bytes) -> list[Entry]:
    """Return the files of an archive after everything but their data was checked. Raises BundleError."""
    if len(archive) > MOST_PACKED:
        raise BundleError(f"the bundle is larger than {megabytes(MOST_PACKED)}")
    end = len(archive) - _END.size
    if end < 0 or not archive.startswith(b"PK\3\4"):
        raise BundleError("this is no bundle: it is not a zip file")
    _, _, _, _, count, size, offset, _ = _END.unpack_from(archive, end)
    if archive[end:] != _end_record(count, size, offset) or offset + size != end:
        raise BundleError(
            "this is no bundle: the zip file does not end with its own directory (something was added, "
            "cut off, or another tool has packed it)"
        )
    if count > MOST_FILES + 1:
        raise BundleError(f"the bundle has {count} files, more than {MOST_FILES}")
    entries = list(_directory(archive, offset, end, count))
    check_names(entry.name for entry in entries)
    _check_places(archive, entries, offset)
    _check_sizes(entries)
    return entries


def _directory(archive: bytes, position: int, end: int, count: int) -> Iterator[Entry]:
    for _ in range(count):
        if position + _CENTRAL.size > end:
            raise BundleError("the zip file's directory is cut off")
        found = _CENTRAL.unpack_from(archive, position)
        flags, method, checksum, packed, size = found[3], found[4], *found[7:10]
        length, extra, comment, attributes, offset = *found[10:13], *found[15:17]
        raw = archive[position + _CENTRAL.size : position + _CENTRAL.size + length]
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            raise BundleError(f"a file's name is not UTF-8: {raw!r}") from None
        if flags & _ENCRYPTED:
            raise BundleError(f"the file {name!r} is encrypted")
        if not stat.S_ISREG(attributes >> 16):
            raise BundleError(
                f"{name!r} is not marked as a regular file: links and special files are refused"
            )
        if extra or comment or 0xFFFFFFFF in (packed, size, offset):
            raise BundleError(f"the file {name!r} has extra fields, which could say something else of it")
        if method not in (STORED, DEFLATED):
            raise BundleError(f"the file {name!r} is packed by method {method}, which is unknown")
        entry = Entry(name, method, checksum, packed, size, offset)
        header = entry.central_header()
        if archive[position : position + len(header)] != header:
            raise BundleError(f"the zip file's directory says of {name!r} what a bundle's would not")
        position += len(header)
        yield entry
    if position != end:
        raise BundleError("the zip file's directory has more than its files")


def _check_places(archive: bytes, entries: list[Entry], directory: int) -> None:
    position = 0
    for entry in entries:
        if entry.offset != position:
            raise BundleError(f"the file {entry.name!r} overlaps another, or something lies between them")
        header = entry.local_header()
        if archive[position : position + len(header)] != header:
            raise BundleError(f"the header of the file {entry.name!r} differs from the directory")
        position = entry.end
    if position != directory:
        raise BundleError("the files do not reach to the zip file's directory, or beyond it")


def _check_sizes(entries: list[Entry]) -> None:
    for entry in entries:
        if entry.size > entry.packed * MOST_RATIO:
            raise BundleError(f"the file {entry.name!r} says that it grows {MOST_RATIO} times or more")
    total = sum(entry.size for entry in entries)
    if total > MOST_UNPACKED + MOST_MANIFEST:
        raise BundleError(f"the bundle unpacks to {megabytes(total)}, more than {megabytes(MOST_UNPACKED)}")


def unpacked(archive: bytes, entry: Entry) -> Iterator[bytes]:
    """Yield a file's data in pieces; raises BundleError as soon as they are not what its header says."""
    count = checksum = 0
    for piece in _inflated(archive, entry):
        count += len(piece)
        if count > entry.size:
            raise BundleError(f"the file {entry.name!r} is larger than its header says")
        checksum = zlib.crc32(piece, checksum)
        yield piece
    if count != entry.size or checksum != entry.checksum:
        raise BundleError(f"the file {entry.name!r} is damaged: size or checksum is wrong")


def _inflated(archive: bytes, entry: Entry) -> Iterator[bytes]:
    view = memoryview(archive)[entry.start : entry.end]
    if entry.method == STORED:
        for start in range(0, len(view), _CHUNK):
            yield bytes(view[start : start + _CHUNK])
        return
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    taken = 0
    waiting = b""
    try:
        while not inflater.eof:
            if not waiting:
                waiting = bytes(view[taken : taken + _CHUNK])
                taken += len(waiting)
            piece = inflater.decompress(waiting, _CHUNK)
            ended = not waiting and not piece
            waiting = inflater.unconsumed_tail
            if ended:
                break
            yield piece
    except zlib.error as error:
        raise BundleError(f"the file {entry.name!r} is damaged: {error}") from None
    if not inflater.eof or inflater.unused_data or taken != len(view):
        raise BundleError(f"the data of the file {entry.name!r} end too early or too late")


@dataclass(frozen=True)
class OpenedBundle:
    """A bundle whose structure and manifest were checked; its files are checked when they are read."""

    bundle: bytes
    manifest: BundleManifest
    manifest_data: bytes
    entries: tuple[Entry, ...]
    """The files without the manifest."""

    def read(self, entry: Entry) -> Iterator[bytes]:
        """Yield a file's data in pieces; raises BundleError, at the end at the latest, if they are wrong."""
        digest = hashlib.sha256()
        for piece in unpacked(self.bundle, entry):
            digest.update(piece)
            yield piece
        if digest.hexdigest() != self.manifest.files[entry.name].sha256:
            raise BundleError(f"the file {entry.name!r} is not the one that the manifest names")


def open_bundle(bundle: bytes) -> OpenedBundle:
    """Check everything of a bundle but its signature and the content of its files."""
    entries = read_archive(bundle)
    if not entries or entries[0].name != MANIFEST:
        raise BundleError(f"this is no bundle: its first file is not {MANIFEST}")
    first, *others = entries
    if first.size > MOST_MANIFEST:
        raise BundleError(f"{MANIFEST} is larger than {megabytes(MOST_MANIFEST)}")
    data = b"".join(unpacked(bundle, first))
    manifest = decode_manifest(data)
    names = [entry.name for entry in others]
    for name in sorted(set(names) ^ set(manifest.files)):
        what = "not in the manifest" if name in set(names) else "in the manifest, but not in the bundle"
        raise BundleError(f"the file {name!r} is {what}")
    if names != sorted(names):
        raise BundleError("the files of the bundle are not in order")
    for entry in others:
        if entry.size != manifest.files[entry.name].size:
            raise BundleError(f"the file {entry.name!r} does not have the size that the manifest names")
    if manifest.size > MOST_UNPACKED:
        raise BundleError(f"the bundle unpacks to more than {megabytes(MOST_UNPACKED)}")
    return OpenedBundle(bundle, manifest, data, tuple(others))


def verify(bundle: bytes, signature: str, key: bytes) -> BundleManifest:
    """Check a bundle from its signature to the last byte of its files. Raises BundleError."""
    check_signature(bundle, signature, key)
    opened = open_bundle(bundle)
    for entry in opened.entries:
        for _ in opened.read(entry):
            pass
    return opened.manifest
