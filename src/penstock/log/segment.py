"""The file format of a sealed segment: a header with checksums of itself and of the payload.

    magic 8 | version 2 | 0 6 | segment id 16 | record count 8 | payload length 8 | number of parts 8 |
    CRC-32 of the payload 4 | CRC-32 of the 60 bytes before 4 | payload

All numbers are little endian. The position is not part of the file, so a producer that loses the race for
a position tries the next one with the same file.

A segment sealed by a producer has version 1 and no parts. A segment merged by compaction has version 2, and
its payload begins with the id (16) and the record count (8) of each merged segment, which shows whether a
segment has been published.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from penstock.log import record_codec
from penstock.record import Record

if TYPE_CHECKING:
    import pyarrow as pa

_MAGIC = b"PENSTOCK"
_SEALED, _MERGED = 1, 2
_BODY = struct.Struct("<8sH6x16sQQQI")
_PART = struct.Struct("<16sQ")
_CHECK = struct.Struct("<I")
HEADER_SIZE = _BODY.size + _CHECK.size


class SegmentDamageError(Exception):
    """A segment's content is damaged. Callers that know the log and position convert it to a LogError."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a segment file."""

    id: bytes
    count: int
    length: int
    checksum: int
    parts: int = 0

    def pack(self) -> bytes:
        version = _MERGED if self.parts else _SEALED
        body = _BODY.pack(_MAGIC, version, self.id, self.count, self.length, self.parts, self.checksum)
        return body + _CHECK.pack(crc32(body))


@dataclass(frozen=True, slots=True)
class Sealed:
    """A segment in memory, ready to be written."""

    header: Header
    payload: pa.Buffer
    parts: bytes = b""

    @property
    def size(self) -> int:
        return HEADER_SIZE + self.header.length


def seal(segment_id: bytes, records: Sequence[Record], now: float | None = None) -> Sealed:
    """Encode one or more records; those without a time get ``now``.

    >>> seal(bytes(16), [Record("a", 1, 0.0)]).header.count
    1
    """
    payload = record_codec.encode(records, now)
    return Sealed(Header(segment_id, len(records), payload.size, crc32(payload)), payload)


def merge(segment_id: bytes, segments: Sequence[Segment]) -> Sealed:
    """Merge consecutive segments into one."""
    parts = [part for one in segments for part in one.parts]
    packed = b"".join(_PART.pack(*part) for part in parts)
    payload = record_codec.merge([one.batch for one in segments])
    count = sum(one.header.count for one in segments)
    checksum = crc32(payload, crc32(packed))
    return Sealed(
        Header(segment_id, count, len(packed) + payload.size, checksum, len(parts)), payload, packed
    )


def unpack_header(raw: bytes) -> Header:
    """Decode the header in the first bytes of a segment; raise ``SegmentDamageError`` if it is not valid.

    >>> unpack_header(Header(bytes(16), count=3, length=512, checksum=7).pack()).count
    3
    """
    if len(raw) < HEADER_SIZE:
        raise SegmentDamageError(f"torn: {len(raw)} of {HEADER_SIZE} header bytes")
    body = raw[: _BODY.size]
    if _CHECK.unpack_from(raw, _BODY.size) != (crc32(body),):
        raise SegmentDamageError("the header's checksum does not match")
    magic, version, segment_id, count, length, parts, checksum = _BODY.unpack(body)
    if magic != _MAGIC or count == 0:
        raise SegmentDamageError("the header is not that of a segment")
    if version not in (_SEALED, _MERGED):
        raise SegmentDamageError(f"format version {version} is not supported by this version of Penstock")
    return Header(segment_id, count, length, checksum, parts)


def read_header(path: str | Path) -> tuple[Header, int]:
    """Return the header of a segment file, and the file's size."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return unpack_header(os.read(descriptor, HEADER_SIZE)), os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def check_size(header: Header, size: int) -> None:
    """Raise ``SegmentDamageError`` unless a file of ``size`` bytes has the size that the header requires."""
    wanted = HEADER_SIZE + header.length
    if size < wanted:
        raise SegmentDamageError(f"torn: {size} of {wanted} bytes")
    if size > wanted:
        raise SegmentDamageError(f"{size - wanted} bytes too long")


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment that was read and verified."""

    header: Header
    batch: Any
    parts: Sequence[tuple[bytes, int]]
    """Id and record count of each producer's segment in this one."""

    def records(self, start: int = 0, stop: int | None = None) -> Iterator[list[Record]]:
        """Yield lists of the records from index ``start`` up to ``stop``."""
        return record_codec.decode_batch(self.batch, start, stop)


def load(path: str | Path) -> Segment:
    """Read a segment file and verify it completely."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a Path doubles the time
        raw = file.read()
    header = unpack_header(raw[:HEADER_SIZE])
    check_size(header, len(raw))
    payload = memoryview(raw)[HEADER_SIZE:]
    if crc32(payload) != header.checksum:
        raise SegmentDamageError("the payload's checksum does not match")
    size = header.parts * _PART.size
    if size > len(payload):
        raise SegmentDamageError("the payload does not match the header")
    parts = list(_PART.iter_unpack(payload[:size])) if size else [(header.id, header.count)]
    return Segment(header, _open(header, payload[size:]), parts)


def _open(header: Header, payload: memoryview) -> pa.RecordBatch:
    import pyarrow as pa

    try:
        batch = record_codec.open_stream(pa.py_buffer(payload))
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise SegmentDamageError(f"the payload is not an Arrow stream: {error}") from error
    if batch.num_rows != header.count or batch.schema.names != ["key", "value", "ts"]:
        raise SegmentDamageError("the payload does not match the header")
    return batch
