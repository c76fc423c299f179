"""The pure part of examples/file_types.py: what its vertices know about files, and what it expects."""

from __future__ import annotations

import importlib.util
import sys
import zlib
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "file_types.py"


def load() -> ModuleType:
    name = "penstock_example_file_types"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, EXAMPLE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look their module up while it loads
        spec.loader.exec_module(module)
    return sys.modules[name]


example = load()


def test_generation_is_deterministic_and_covers_every_kind_at_every_depth() -> None:
    made = example.samples()
    assert made == example.samples()
    assert sorted((s.kind, len(s.layers)) for s in made) == [
        (kind, depth) for kind in ("image", "text", "unknown", "video") for depth in range(6)
    ]
    assert len({s.file["name"] for s in made}) == len(made)
    assert {layer for s in made for layer in s.layers} == {"gzip", "bzip2", "base64"}


def test_unwrapping_as_often_as_wrapped_leads_to_the_type() -> None:
    for sample in example.samples():
        data = sample.file["data"]
        for layer in reversed(sample.layers):
            assert example.detect(data) == "unknown"
            assert example.wrapping(data) == layer
            data = example.unwrap(data)
        assert example.detect(data) == sample.kind
        if sample.kind != "unknown":
            assert example.DESCRIBE[sample.kind](data) == sample.detail


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "text"),
        ("Gr\u00fc\u00dfe\n".encode(), "text"),
        (b"\xff\xfe\xfd", "unknown"),
        (b"a\0b", "unknown"),
        (b"RIFF\0\0\0\0WAVE", "unknown"),
        (b"BZh is how a bzip2 file starts", "unknown"),
    ],
)
def test_detect(data: bytes, kind: str) -> None:
    assert example.detect(data) == kind


@pytest.mark.parametrize("how", ["gzip", "bzip2", "base64"])
def test_a_damaged_layer_is_not_unwrapped(how: str) -> None:
    whole = example.wrap(b"data" * 100, how)
    assert example.unwrap(whole) == b"data" * 100
    assert example.unwrap(whole[:-3] + b"!!") is None


def test_a_file_without_wrapping_comes_back_as_it_was() -> None:
    from penstock.record import Record

    file = {"name": "odd", "data": b"\xff\xfe", "depth": 0}
    assert example.unwrap_file(Record("odd", file)) == file


def test_an_unknown_wrapping_is_refused() -> None:
    with pytest.raises(ValueError, match="zip7"):
        example.wrap(b"", "zip7")


def test_the_picture_is_a_valid_png() -> None:
    data = example.png(3, 2)
    assert data[12:16] == b"IHDR"
    assert int.from_bytes(data[29:33]) == zlib.crc32(data[12:29])
    assert data.endswith(zlib.crc32(b"IEND").to_bytes(4))


def test_expected_follows_the_loop_limit() -> None:
    made = example.samples()
    found, discarded = example.expected(made)
    assert {(kind, depth) for _, kind, depth, _ in found} == {
        (kind, depth) for kind in ("image", "text", "video") for depth in range(4)
    }
    assert len(discarded) == len(made) - len(found)
    assert sum(name.startswith("unknown") for name in discarded) == 6


def test_the_graph_is_that_of_the_figure() -> None:
    job, _ = example.build([s.file for s in example.samples()])
    job.validate()
    assert job.sources == ["files"]
    assert job.sinks == ["results"]
    assert job.cycles() == [["V0", "V4", "V5"], ["V0", "V4", "V6"]]
