"""The entry of a job, ``FILE[:JOB]``: a file of its verified bundle and nothing else.

An entry comes from the coordination store, and a path that is absolute, has ``..`` or leads through a
symbolic link could name any file of the machine.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from penstock.bundles.limits import MOST_MANIFEST
from penstock.bundles.manifest import MANIFEST, BundleManifest, check_entry, decode_manifest
from penstock.bundles.names import file_name_fault
from penstock.bundles.signing import BundleAccessError, BundleError


def check_entry_name(entry: str) -> None:
    """Raise BundleError for an entry that cannot be a file of any bundle.

    >>> check_entry_name("shop/orders.py:orders")
    >>> check_entry_name("/etc/job.py")
    Traceback (most recent call last):
    penstock.bundles.signing.BundleError: the entry '/etc/job.py' cannot be a file of a bundle: it is absolute
    """
    fault = file_name_fault(entry.partition(":")[0])
    if fault is not None:
        raise BundleError(f"the entry {entry!r} cannot be a file of a bundle: {fault}")


def check_manifest_entry(manifest: BundleManifest, entry: str) -> None:
    """Raise BundleError unless an entry is one of the Python files that a manifest names."""
    check_entry_name(entry)
    check_entry(manifest, entry)


def find_entry(folder: Path, entry: str) -> Path:
    """Return the file of an entry in the folder of an unpacked bundle.

    Raises BundleError unless the manifest there names the file, which is the same on every node, and
    BundleAccessError unless it is a regular file inside the folder, which is so on this node only.
    """
    check_manifest_entry(read_manifest(folder), entry)
    path = folder
    try:
        for part in PurePosixPath(entry.partition(":")[0]).parts:
            path = path / part
            if path.is_symlink():
                raise BundleAccessError(f"{path} is a symbolic link, which no bundle holds: remove {folder}")
        if not path.is_file():
            raise BundleAccessError(f"{path} is missing, although the manifest names it: remove {folder}")
    except OSError as error:
        raise BundleAccessError(f"{path} cannot be read: {error.strerror}") from error
    return path


def read_manifest(folder: Path) -> BundleManifest:
    """Return the manifest in the folder of an unpacked bundle.

    Raises BundleAccessError: the manifest was verified before it was written, so what is wrong with it now
    is wrong with this folder and not with the bundle.
    """
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            data = file.read(MOST_MANIFEST + 1)
        return decode_manifest(data)
    except OSError as error:
        raise BundleAccessError(f"{folder} is no unpacked bundle: {MANIFEST}: {error.strerror}") from error
    except BundleError as error:
        raise BundleAccessError(f"{folder} is damaged: {error}") from error
