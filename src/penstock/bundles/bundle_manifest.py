"""The manifest, the first file of a bundle.

It has the bundle's files with their SHA-256, the entry (``FILE[:JOB]``), the requirements, and the Python
version that packed the bundle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from penstock.bundles.bundle_limits import MOST_FILES, MOST_MANIFEST, file_name_fault
from penstock.bundles.bundle_signature import BundleAccessError, BundleError

MANIFEST = "penstock-manifest.json"
SCHEMA = 1

_SHA256 = re.compile(r"[0-9a-f]{64}")
_JOB = re.compile(r"\w[\w.-]{0,199}")
_PRINTED = 500


@dataclass(frozen=True)
class PackedFile:
    """SHA-256 and size of a file."""

    sha256: str
    size: int


@dataclass(frozen=True)
class BundleManifest:
    """The manifest of a bundle."""

    entry: str
    """``FILE[:JOB]``, where FILE is one of ``files``."""
    files: Mapping[str, PackedFile]
    requirements: tuple[str, ...] = ()
    """Requirements in the syntax of ``pip``, without options."""
    python: str = ""
    """The Python version that packed the bundle, such as ``3.11``."""
    created_by: str = ""

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(file.size for file in self.files.values())


def is_sha256(text: str) -> bool:
    """Return whether a text is a SHA-256 as 64 lower-case hexadecimal digits."""
    return _SHA256.fullmatch(text) is not None


def encode_manifest(manifest: BundleManifest) -> bytes:
    """Encode a manifest; equal manifests give equal bytes."""
    content = {
        "schema": SCHEMA,
        "entry": manifest.entry,
        "files": {
            name: {"sha256": file.sha256, "size": file.size} for name, file in sorted(manifest.files.items())
        },
        "requirements": list(manifest.requirements),
        "python": manifest.python,
        "created_by": manifest.created_by,
    }
    return json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n"


def decode_manifest(data: bytes) -> BundleManifest:
    """Decode and validate a manifest. Raises BundleError."""
    try:
        content = json.loads(data.decode(), object_pairs_hook=_reject_duplicate_keys)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{MANIFEST} cannot be read: {error}") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise BundleError(f"{MANIFEST} does not have schema {SCHEMA}: another version of Penstock wrote it")
    files = content.get("files")
    if not isinstance(files, dict) or not 0 < len(files) <= MOST_FILES:
        raise BundleError(f"{MANIFEST} must list 1 to {MOST_FILES} files")
    manifest = BundleManifest(
        entry=_text(content, "entry"),
        files={name: _packed_file(name, file) for name, file in files.items()},
        requirements=_requirements(content.get("requirements")),
        python=_text(content, "python"),
        created_by=_text(content, "created_by"),
    )
    check_entry(manifest)
    if encode_manifest(manifest) != data:
        raise BundleError(f"{MANIFEST} is not in the canonical form that Penstock writes")
    return manifest


def check_entry(manifest: BundleManifest, entry: str | None = None) -> None:
    """Raise BundleError unless an entry, by default that of the manifest, is one of its Python files."""
    file, colon, job = (manifest.entry if entry is None else entry).partition(":")
    if file not in manifest.files:
        raise BundleError(f"the entry {file!r} is not among the files of the bundle")
    if not file.endswith(".py"):
        raise BundleError(f"the entry {file!r} is not a Python file")
    if colon and not _JOB.fullmatch(job):
        raise BundleError(f"{job!r} is not the name of a job")


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key in an object")
    return found


def _text(content: Mapping[str, Any], name: str) -> str:
    value = content.get(name)
    if not isinstance(value, str) or not value.isprintable():
        raise BundleError(f"{MANIFEST}: {name!r} must be a string of printable characters")
    return value


def _packed_file(name: str, given: Any) -> PackedFile:
    match given:
        case {"sha256": str(sha256), "size": int(size)} if is_sha256(sha256) and size >= 0:
            return PackedFile(sha256, size)
    raise BundleError(f"{MANIFEST}: the file {name!r} must have a SHA-256 and a size")


def _requirements(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(line, str) for line in given):
        raise BundleError(f"{MANIFEST}: 'requirements' must be a list of strings")
    for line in given:
        fault = requirement_fault(line)
        if fault is not None:
            raise BundleError(f"{MANIFEST}: the requirement {line[:_PRINTED]!r}: {fault}")
    return tuple(given)


def requirement_fault(line: str) -> str | None:
    """Return why a line of requirements is not allowed, or None if it is.

    >>> requirement_fault("river>=0.21")
    >>> requirement_fault("--index-url http://example.org")
    'options of pip are not supported, only names and versions of packages'
    """
    if line.startswith("-"):
        return "options of pip are not supported, only names and versions of packages"
    if not line or len(line) > _PRINTED or not line.isprintable():
        return f"it must be one line of 1 to {_PRINTED} characters"
    return None


def check_entry_name(entry: str) -> None:
    """Raise BundleError for an entry whose file name is not allowed in a bundle.

    >>> check_entry_name("shop/orders.py:orders")
    >>> check_entry_name("/job.py")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    penstock.bundles.bundle_signature.BundleError: the entry '/job.py' cannot be ...: it is absolute
    """
    fault = file_name_fault(entry.partition(":")[0])
    if fault is not None:
        raise BundleError(f"the entry {entry!r} cannot be a file of a bundle: {fault}")


def check_manifest_entry(manifest: BundleManifest, entry: str) -> None:
    """Raise BundleError unless an entry is one of the Python files of a manifest."""
    check_entry_name(entry)
    check_entry(manifest, entry)


def find_entry(folder: Path, entry: str) -> Path:
    """Return the file of an entry in the folder of an unpacked bundle.

    Raises BundleError if the manifest does not list the file, an error that is the same on every node, and
    BundleAccessError if it is not a regular file inside the folder, an error of this node only.
    """
    check_manifest_entry(read_manifest(folder), entry)
    path = folder
    try:
        for part in PurePosixPath(entry.partition(":")[0]).parts:
            path = path / part
            if path.is_symlink():
                raise BundleAccessError(
                    f"{path} is a symbolic link, which is not allowed in a bundle: remove {folder}"
                )
        if not path.is_file():
            raise BundleAccessError(f"{path} is missing, although the manifest lists it: remove {folder}")
    except OSError as error:
        raise BundleAccessError(f"{path} cannot be read: {error.strerror}") from error
    return path


def read_manifest(folder: Path) -> BundleManifest:
    """Return the manifest in the folder of an unpacked bundle.

    Raises BundleAccessError: the manifest was verified before it was written, so an error in it now is an
    error of this folder and not of the bundle.
    """
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            data = file.read(MOST_MANIFEST + 1)
        return decode_manifest(data)
    except OSError as error:
        raise BundleAccessError(
            f"{folder} is not an unpacked bundle: {MANIFEST}: {error.strerror}"
        ) from error
    except BundleError as error:
        raise BundleAccessError(f"{folder} is damaged: {error}") from error
