"""Packs a user's file or folder into a bundle."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from penstock.bundles.bundle_archive import write_archive
from penstock.bundles.bundle_limits import MOST_FILES, MOST_UNPACKED, check_names, megabytes
from penstock.bundles.bundle_manifest import (
    MANIFEST,
    BundleManifest,
    PackedFile,
    check_entry,
    encode_manifest,
    requirement_fault,
)
from penstock.bundles.bundle_signature import BundleError

_EXCLUDED = frozenset({"__pycache__", "venv", "node_modules"})
"""Excluded folders, which can be generated again. Names with a leading dot (.git, .env) are excluded too."""


def pack(target: Path, *, entry: str | None = None, requirements: Path | None = None) -> bytes:
    """Create a bundle of one Python file, of a package, or of a folder with modules.

    ``entry`` is ``FILE[:JOB]``, with FILE relative to ``target``; a single file needs it only to name the
    job. The files of a package get the package's name as their folder, so that it can be imported. Equal
    content gives equal bytes, independently of place and time.
    """
    if target.is_file():
        sources = [(target.name, target)]
        prefix = ""
    elif target.is_dir():
        prefix = f"{target.resolve().name}/" if (target / "__init__.py").is_file() else ""
        sources = [(prefix + name, path) for name, path in _found(target) if prefix + name != MANIFEST]
    else:
        raise BundleError(f"there is no file or folder {target}")
    if len(sources) > MOST_FILES:
        raise BundleError(f"{target} has more than {MOST_FILES} files: pack only the job's code")
    check_names(name for name, _ in sources)
    files = list(_contents(sources))
    manifest = BundleManifest(
        entry=_entry(target, entry, prefix),
        files={name: PackedFile(hashlib.sha256(data).hexdigest(), len(data)) for name, data in files},
        requirements=_requirements(requirements),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        created_by=f"penstock {version('penstock')}",
    )
    check_entry(manifest)
    return write_archive([(MANIFEST, encode_manifest(manifest)), *files])


def _entry(target: Path, entry: str | None, prefix: str) -> str:
    if entry is None:
        if target.is_dir():
            raise BundleError(f"{target} is a folder: name the file in it that defines the job")
        return target.name
    if target.is_file() and entry.partition(":")[0] != target.name:
        raise BundleError(f"the bundle contains only {target}, so its entry cannot be {entry!r}")
    return prefix + entry


def _found(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of a folder to pack, sorted, with their names in the bundle."""
    root = folder.resolve()
    sources: list[tuple[str, Path]] = []

    def unreadable(error: OSError) -> None:
        raise BundleError(f"{error.filename} cannot be read: {error.strerror}") from error

    for place, folders, files in os.walk(root, onerror=unreadable):
        here = Path(place)
        folders[:] = [name for name in folders if _is_included(here / name)]
        for name in folders:
            if (here / name).is_symlink():
                raise BundleError(f"{here / name} is a link to a folder: replace it by the folder itself")
        for name in files:
            path = here / name
            if _is_included(path):
                _check_link(path, root)
                sources.append((path.relative_to(root).as_posix(), path))
        if len(sources) > MOST_FILES:
            break
    yield from sorted(sources)


def _is_included(path: Path) -> bool:
    if path.name.startswith(".") or path.name in _EXCLUDED or path.suffix == ".pyc":
        return False
    return not (path / "pyvenv.cfg").is_file()


def _check_link(path: Path, root: Path) -> None:
    if path.is_symlink() and not path.resolve().is_relative_to(root):
        raise BundleError(f"{path} is a link to a file outside of {root}: replace it by the file itself")


def _contents(sources: list[tuple[str, Path]]) -> Iterator[tuple[str, bytes]]:
    total = 0
    for name, path in sources:
        data = _read(path, MOST_UNPACKED - total)
        total += len(data)
        yield name, data


def _read(path: Path, max_size: int) -> bytes:
    """Return a file's content; raise BundleError if it is larger than ``max_size`` bytes."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise BundleError(f"{path} is neither a file nor a folder: leave it out of the bundle's folder")
        with path.open("rb") as file:
            data = file.read(max_size + 1)
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > max_size:
        raise BundleError(
            f"with {path} the bundle has more than {megabytes(MOST_UNPACKED)}: leave data out of its folder"
        )
    return data


def _requirements(path: Path | None) -> tuple[str, ...]:
    """Return the lines of a requirements file, without comments."""
    if path is None:
        return ()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"the requirements file {path} cannot be read: {error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        text = line.strip() if not line.lstrip().startswith("#") else ""
        text = text.partition(" #")[0].strip()
        fault = requirement_fault(text) if text else None
        if fault is not None:
            raise BundleError(f"{path}, line {number}: {fault}")
        if text:
            found.append(text)
    return tuple(found)
