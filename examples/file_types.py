"""Recognises files by their content, unwrapping them as often as needed: a job with a loop.

    python examples/file_types.py

The graph is that of Fig. 9 of the SpeedStream paper:

    files ──▶ V0 ──text───▶ V1 ──▶ results
              │ ├──image──▶ V2 ──▶ results
              │ └──video──▶ V3 ──▶ results
              └──unknown──▶ V4 ──gzip───▶ V5 ──▶ V0
                              └──other──▶ V6 ──▶ V0

V0 looks at a file and sends it to the vertex for its type. A file of no known type goes to V4, which
looks at the wrapping and passes it on: V5 takes off one layer of gzip, V6 one layer of bzip2 or base64,
and the inner file goes back to V0. V6 returns a file that has no wrapping at all as it came, in case V0
should know better next time; it never does, and that is what the loop limit is for. V0-V4-V5 and
V0-V4-V6 are one loop, because both close at V0. With ``max_iterations=3`` a file wrapped up to three
times is recognised; one wrapped deeper, or of a type that nobody knows, is discarded.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import gzip
import struct
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypedDict

import penstock as ps

MAX_ITERATIONS = 3
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
GZIP_MAGIC = b"\x1f\x8b"
BZIP2_MAGIC = b"BZh"
BASE64_HEADER = b"begin-base64\n"
AVI_MAIN_HEADER = "<I12xI12xII"
"""The fields of an AVI main header that are used here: microseconds a frame, frames, width, height."""


class File(TypedDict):
    """A file on its way through the job: a plain dictionary, which any worker can read."""

    name: str
    data: bytes
    depth: int
    """How many layers have been taken off."""


Finding = tuple[str, str, int, str]
"""What the job found out about a file: its name, its type, its depth, and what there is to say of it."""


# What the vertices know about files. No Spark here: all of it can be tested by calling it.


def detect(data: bytes) -> str:
    """Return the output port of V0 for a file: its type, or unknown."""
    if data.startswith(PNG_SIGNATURE):
        return "image"
    if data[:4] == b"RIFF" and data[8:12] == b"AVI ":
        return "video"
    if wrapping(data) is not None:
        return "unknown"
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return "unknown"
    return "text" if all(c.isprintable() or c.isspace() for c in text) else "unknown"


def wrapping(data: bytes) -> str | None:
    """Return how a file is wrapped, or None if it is not."""
    if data.startswith(GZIP_MAGIC):
        return "gzip"
    if data.startswith(BZIP2_MAGIC):
        return "bzip2"
    if data.startswith(BASE64_HEADER):
        return "base64"
    return None


def unwrap(data: bytes) -> bytes | None:
    """Take off one layer; None if there is none, or if what looked like one is damaged."""
    try:
        match wrapping(data):
            case "gzip":
                return gzip.decompress(data)
            case "bzip2":
                return bz2.decompress(data)
            case "base64":
                return base64.b64decode(data.removeprefix(BASE64_HEADER), validate=True)
    except (OSError, EOFError, ValueError, zlib.error, binascii.Error):
        return None
    return None


def wrap(data: bytes, how: str) -> bytes:
    """Add one layer; the same data always gives the same bytes."""
    match how:
        case "gzip":
            return gzip.compress(data, mtime=0)
        case "bzip2":
            return bz2.compress(data)
        case "base64":
            return BASE64_HEADER + base64.b64encode(data)
    raise ValueError(f"no wrapping is called {how!r}")


def describe_text(data: bytes) -> str:
    """Count the words of a text."""
    return f"{len(data.split())} words"


def describe_image(data: bytes) -> str:
    """Read the size of a picture from its PNG header, which is the first chunk of every PNG."""
    width, height = struct.unpack_from(">II", data, len(PNG_SIGNATURE) + 8)
    return f"{width} x {height} pixels"


def describe_video(data: bytes) -> str:
    """Read the length and the size of a film from its AVI main header."""
    frame_microseconds, frames, width, height = struct.unpack_from(
        AVI_MAIN_HEADER, data, data.index(b"avih") + 8
    )
    return f"{frames} frames of {width} x {height}, {frames * frame_microseconds / 1e6:.1f} s"


DESCRIBE = {"text": describe_text, "image": describe_image, "video": describe_video}


# The vertices and the graph.


class Distribute(ps.Task):
    """V0: sends each file to the vertex for its type."""

    outputs = ("text", "image", "video", "unknown")

    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
        """Look at each file and choose the port."""
        for record in inputs.get():
            outputs.emit(record.key, record.value, port=detect(record.value["data"]))


class Check(ps.Task):
    """V4: sends a file of no known type to the vertex that may be able to unwrap it."""

    outputs = ("gzip", "other")

    def execute(self, inputs: ps.Inputs, outputs: ps.Outputs) -> None:
        """Look at each file's wrapping and choose the port."""
        for record in inputs.get():
            port = "gzip" if wrapping(record.value["data"]) == "gzip" else "other"
            outputs.emit(record.key, record.value, port=port)


class Describe:
    """V1, V2 and V3: what there is to say about a file of a known type."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, record: ps.Record) -> Finding:
        """Return the finding about one file."""
        file: File = record.value
        return file["name"], self.kind, file["depth"], DESCRIBE[self.kind](file["data"])


def unwrap_file(record: ps.Record) -> File:
    """V5 and V6: take off one layer, or return the file as it came."""
    file: File = record.value
    inner = unwrap(file["data"])
    return file if inner is None else {**file, "data": inner, "depth": file["depth"] + 1}


def build(files: Sequence[File]) -> tuple[ps.Job, ps.MemorySink]:
    """Build the job over some files; its findings will be in the sink."""
    job = ps.Job("file_types", max_iterations=MAX_ITERATIONS)
    source = job.source("files", ps.MemorySource([(file["name"], file) for file in files]))
    v0 = job.task("V0", Distribute())
    v1 = job.task("V1", Describe("text"))
    v2 = job.task("V2", Describe("image"))
    v3 = job.task("V3", Describe("video"))
    v4 = job.task("V4", Check())
    v5 = job.task("V5", unwrap_file)
    v6 = job.task("V6", unwrap_file)
    sink = ps.MemorySink()
    results = job.sink("results", sink)

    source >> v0
    v0["text"] >> v1 >> results
    v0["image"] >> v2 >> results
    v0["video"] >> v3 >> results
    v0["unknown"] >> v4
    v4["gzip"] >> v5 >> v0
    v4["other"] >> v6 >> v0
    return job, sink


# The files, and what must come out.


def png(width: int, height: int) -> bytes:
    """Return a grey picture."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = (b"\0" + b"\x80" * width) * height
    return PNG_SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def avi(frames: int, width: int, height: int) -> bytes:
    """Return the header of a film at 25 frames a second; there is no film behind it."""
    main_header = struct.pack(AVI_MAIN_HEADER, 40_000, frames, width, height).ljust(56, b"\0")
    avih = b"avih" + struct.pack("<I", len(main_header)) + main_header
    headers = b"LIST" + struct.pack("<I", 4 + len(avih)) + b"hdrl" + avih
    return b"RIFF" + struct.pack("<I", 4 + len(headers)) + b"AVI " + headers


@dataclass(frozen=True)
class Sample:
    """A file together with how it was made."""

    file: File
    kind: str
    layers: tuple[str, ...]
    """The wrappings, the innermost first."""
    detail: str


LAYERS = ("gzip", "bzip2", "gzip", "base64", "gzip")


def samples() -> list[Sample]:
    """Make one file of each kind for each depth from 0 to 5, the same ones every time."""
    contents = {
        "text": (b"penstock: a gated pipe that feeds a turbine\n" * 4, "32 words"),
        "image": (png(64, 48), "64 x 48 pixels"),
        "video": (avi(250, 320, 240), "250 frames of 320 x 240, 10.0 s"),
        "unknown": (bytes(range(128, 256)) * 2, ""),
    }
    made = []
    for kind, (content, detail) in contents.items():
        for depth in range(len(LAYERS) + 1):
            # Each depth starts elsewhere in the row of wrappings, so that V5 and V6 take turns.
            layers = tuple(LAYERS[(depth + i) % len(LAYERS)] for i in range(depth))
            data = content
            for layer in layers:
                data = wrap(data, layer)
            name = ".".join((kind, *layers)) if layers else kind
            made.append(Sample(File(name=name, data=data, depth=0), kind, layers, detail))
    return made


def expected(made: Sequence[Sample]) -> tuple[set[Finding], set[str]]:
    """Return the findings and the names of the discarded files, from how the files were made.

    This uses none of the code that the job runs: a file is recognised if its type is known and the loop
    may run as often as it has layers.
    """
    found: set[Finding] = set()
    discarded: set[str] = set()
    for sample in made:
        depth = len(sample.layers)
        if sample.kind != "unknown" and depth <= MAX_ITERATIONS:
            found.add((sample.file["name"], sample.kind, depth, sample.detail))
        else:
            discarded.add(sample.file["name"])
    return found, discarded


def table(found: Sequence[Finding], discarded: Sequence[str]) -> str:
    """Return what happened to each file, for a person to read."""
    rows = [("file", "found", "depth", "what it is")]
    for name, kind, depth, detail in sorted(found, key=itemgetter(1, 2, 0)):
        rows.append((name, kind, str(depth), detail))
    rows += [(name, "discarded", "", "") for name in sorted(discarded)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def main() -> int:
    """Run the job and compare what it did with what it should have done."""
    made = samples()
    job, sink = build([sample.file for sample in made])
    report = ps.run(job, until="drained")

    found: list[Finding] = [record.value for record in sink.records]
    discarded: list[str] = [entry.record.value["name"] for entry in report.side_sample["discarded"]]
    print(table(found, discarded))

    expected_found, expected_discarded = expected(made)
    exact = (
        (len(found), set(found)) == (len(expected_found), expected_found)
        and (len(discarded), set(discarded)) == (len(expected_discarded), expected_discarded)
        and report.discarded == len(expected_discarded)
    )
    print(
        f"\n{len(made)} files: {len(found)} recognised, {len(discarded)} discarded after "
        f"{MAX_ITERATIONS} iterations; {'exactly' if exact else 'NOT'} as expected."
    )
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
