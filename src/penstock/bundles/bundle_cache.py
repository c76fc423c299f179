"""The unpacked bundles of a node: code is fetched, verified and unpacked once, before a process starts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from penstock.bundles.bundle_manifest import BundleManifest, is_sha256
from penstock.bundles.bundle_signature import BundleAccessError, BundleError
from penstock.bundles.bundle_store import BundleStore
from penstock.bundles.unpacked_bundle import folder_fault, remove_stale_folders, replace_unpacked, unpack
from penstock.errors import PenstockError
from penstock.process_logs.process_log import get_logger


class RefusedStartError(PenstockError):
    """A worker cannot be started on any node: a retry would not help."""


class FailedStartError(PenstockError):
    """A worker cannot be started on this node now. This counts as a failure of the worker."""


_log = get_logger(__name__)


class BundleCache:
    """The unpacked bundles of a node, each in a folder named by the bundle's SHA-256."""

    def __init__(
        self,
        store: BundleStore,
        folder: Path,
        in_use: Callable[[], Collection[str]] = tuple,
        max_unused: int = 10,
    ) -> None:
        self._store = store
        self._folder = folder
        self._in_use = in_use
        """Returns the SHA-256 of each bundle that a running process imports from."""
        self._max_unused = max_unused
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_stale_folders(folder)

    def __call__(self, sha256: str) -> Path:
        """Return the folder with the verified code of a bundle.

        A folder with missing or truncated files is unpacked again. Raises RefusedStartError when the code
        cannot be trusted on any node. Raises FailedStartError for problems that may not exist later or on
        another node: a full disk, no supervisor that has the bundle, a requirement that this node lacks.
        """
        if not is_sha256(sha256):
            # The name comes from the store, and an absolute path would lead to any folder of the machine.
            raise RefusedStartError(f"{sha256[:80]!r} is not a bundle: bundles are named by their SHA-256")
        folder = self._folder / sha256
        if not folder.is_dir():
            self._unpack(sha256, folder, unpack)
        elif (fault := folder_fault(folder)) is not None:
            _log.warning("an unpacked bundle is damaged, unpacking it again", bundle=sha256, reason=fault)
            self._unpack(sha256, folder, replace_unpacked)
        os.utime(folder)
        return folder

    def _unpack(self, sha256: str, folder: Path, write: Callable[[bytes, Path], BundleManifest]) -> None:
        try:
            manifest = write(self._store.fetch(sha256), folder)
        except BundleAccessError as error:
            raise FailedStartError(f"bundle {sha256[:12]}: {error}") from error
        except BundleError as error:
            raise RefusedStartError(f"bundle {sha256[:12]}: {error}") from error
        missing = unmet_requirements(manifest.requirements)
        if missing:
            shutil.rmtree(folder, ignore_errors=True)
            raise FailedStartError(
                f"this node lacks what the job requires: {', '.join(missing)}; install it here, or choose "
                "other nodes with --node"
            )
        self._prune(sha256)

    def _prune(self, newest: str) -> None:
        used = {newest, *self._in_use()}
        others = [path for path in self._folder.iterdir() if path.is_dir() and path.name not in used]
        for path in sorted(others, key=lambda path: path.stat().st_mtime)[: -self._max_unused]:
            shutil.rmtree(path, ignore_errors=True)


def unmet_requirements(requirements: Collection[str]) -> list[str]:
    """Return the requirements, in pip's syntax, that this Python environment does not meet.

    >>> unmet_requirements(["pyspark>=4", "no-such-thing==1"])
    ['no-such-thing==1 (not installed)']
    """
    from importlib.metadata import PackageNotFoundError, version

    from packaging.requirements import InvalidRequirement, Requirement

    found = []
    for text in requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            found.append(f"{text} (not a requirement)")
            continue
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            found.append(f"{text} (not installed)")
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            found.append(f"{text} (installed is {installed})")
    return found
