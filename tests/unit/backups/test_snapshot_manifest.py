"""What is taken for a manifest, and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.backups.snapshots.snapshot_errors import ManifestError
from penstock.backups.snapshots.snapshot_manifest import Manifest, SnapshotFile, is_inside

WHOLE = Manifest(
    "count",
    7,
    2,
    1,
    41,
    12.5,
    (SnapshotFile("logs/in/log.json", "ab" * 32, 120), SnapshotFile("x", "cd" * 32, 0)),
    ("logs/out",),
)


def test_what_is_written_is_read() -> None:
    assert Manifest.from_json(WHOLE.to_json()) == WHOLE


def test_one_without_folders_has_none() -> None:
    content = json.loads(WHOLE.to_json())
    del content["folders"]
    assert Manifest.from_json(json.dumps(content).encode()).folders == ()


OUTSIDE = [
    "",
    ".",
    "/etc/passwd",
    "..",
    "../x",
    "a/../../x",
    "a/..",
    "./a",
    "a//b",
    "a/",
    "a\x00",
    "a\nb",
    "\ud800",
    "x" * 256,
    "é" * 128,
    "a/" * 600 + "a",
    7,
    None,
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_paths_that_lead_elsewhere_are_refused(path: Any) -> None:
    content = json.loads(WHOLE.to_json())
    content["pieces"][0]["path"] = path
    with pytest.raises(ManifestError, match="not a path inside"):
        Manifest.from_json(json.dumps(content).encode())
    content = json.loads(WHOLE.to_json())
    content["folders"] = [path]
    with pytest.raises(ManifestError, match="not a path inside"):
        Manifest.from_json(json.dumps(content).encode())


@pytest.mark.parametrize(
    ("pieces", "folders", "reason"),
    [
        (["a", "a"], [], "each path only once"),
        (["a", "a/b"], [], "a cannot be both a file and a folder"),
        (["a/b", "a/b/c/d"], [], "a/b cannot be both a file and a folder"),
        (["a"], ["a"], "a cannot be both a file and a folder"),
        (["a"], ["a/b"], "a cannot be both a file and a folder"),
    ],
)
def test_paths_that_get_in_each_others_way_are_refused(
    pieces: list[str], folders: list[str], reason: str
) -> None:
    manifest = Manifest(
        "count", 1, 1, 1, 1, 1.0, tuple(SnapshotFile(path, "ab" * 32, 1) for path in pieces), tuple(folders)
    )
    with pytest.raises(ManifestError, match=reason):
        Manifest.from_json(manifest.to_json())


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"pieces": None},
        {"pieces": [1]},
        {"pieces": [{"path": "a"}]},
        {"pieces": [{"path": "a", "sha256": "AB" * 32, "size": 1}]},
        {"pieces": [{"path": "a", "sha256": "ab" * 32, "size": -1}]},
        {"pieces": [{"path": "a", "sha256": "ab" * 32, "size": True}]},
        {"pieces": [{"path": "a", "sha256": ["ab" * 32], "size": 1}]},
        {"folders": "logs"},
        {"job": 1},
        {"number": "1"},
        {"number": -2},
        {"revision": 10**13},
        {"batch": 1.5},
        {"attempt": None},
        {"at": "now"},
        {"at": True},
        {"at": float("nan")},
        {"at": float("inf")},
        {"more": 1},
    ],
)
def test_what_a_manifest_cannot_say_is_refused(change: dict[str, Any]) -> None:
    content = json.loads(WHOLE.to_json()) | change
    with pytest.raises(ManifestError):
        Manifest.from_json(json.dumps(content).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"{", b"\xff", b"[" * 100_000, b'{"schema": 1}'])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(ManifestError):
        Manifest.from_json(data)


@given(st.text(alphabet="ab./\\ \x00é", max_size=12))
def test_a_path_that_is_inside_stays_inside(path: str) -> None:
    if is_inside(path):
        assert not path.startswith("/")
        assert all(part not in ("", ".", "..") for part in path.split("/"))
        assert "\x00" not in path
