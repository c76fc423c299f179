"""Users' code in the daemons: taken in by the leader, unpacked by supervisors before workers import it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.bundles.entries import check_entry_name, check_manifest_entry
from penstock.bundles.manifest import BundleManifest, is_sha256
from penstock.bundles.signing import BundleAccessError, BundleError, sha256_of
from penstock.bundles.storing import BundleStore
from penstock.bundles.unpacking import folder_fault, remove_stale_folders, replace_unpacked, unpack
from penstock.bundles.verifying import open_bundle
from penstock.cluster.codec import DocumentError
from penstock.coord.store import ConflictError, Operation
from penstock.daemons.interface import InvalidRequestError, RefusedError
from penstock.daemons.start_errors import FailedStartError, RefusedStartError
from penstock.logs import get_logger

_log = get_logger(__name__)

_UNUSED_SECONDS = 3600.0
"""A bundle that no job names is kept for this long: it may have been sent for a job that is to come."""


class BundleIntake:
    """Implements :class:`penstock.daemons.service.Bundles`: takes bundles in as the leader."""

    def __init__(
        self, store: BundleStore, guard: Callable[[], list[Operation]], clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._guard = guard
        """What must hold for the leader to write."""
        self._clock = clock

    def put(self, sha256: str, signature: str, data: bytes) -> dict[str, Any]:
        if sha256_of(data) != sha256:
            raise InvalidRequestError(
                f"the bundle does not have the SHA-256 {sha256}: it was damaged on its way"
            )
        try:
            known = self._store.info(sha256)
            if known is None or known.signature != signature:
                known = self._store.put(data, signature, now=self._clock(), guard=self._guard())
        except BundleError as error:
            raise InvalidRequestError(str(error)) from error
        except ConflictError as error:
            raise RefusedError("this master leads no more: try again") from error
        return asdict(known)

    def has(self, sha256: str) -> bool:
        try:
            return self._store.info(sha256) is not None
        except BundleError:
            return False

    def check_entry(self, sha256: str, entry: str) -> None:
        """Raise InvalidRequestError unless an entry is a Python file of a bundle."""
        try:
            check_entry_name(entry)
            check_manifest_entry(open_bundle(self._store.fetch(sha256)).manifest, entry)
        except BundleError as error:
            raise InvalidRequestError(f"bundle {sha256[:12]}: {error}") from error

    def forget_others(self, used: Collection[str]) -> None:
        """Forget bundles that no job names, unless they are new."""
        for sha256 in self._store.names():
            if sha256 in used:
                continue
            try:
                info = self._store.info(sha256)
            except DocumentError:
                continue
            if info is None or self._clock() - info.stored > _UNUSED_SECONDS:
                try:
                    self._store.remove(sha256, guard=self._guard())
                except ConflictError:
                    return


class BundleCache:
    """The bundles that a node has unpacked, each in a folder with its digest as its name."""

    def __init__(
        self,
        store: BundleStore,
        folder: Path,
        in_use: Callable[[], Collection[str]] = tuple,
        kept: int = 10,
    ) -> None:
        self._store = store
        self._folder = folder
        self._in_use = in_use
        """Returns the digests of bundles that living processes import from."""
        self._kept = kept
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_stale_folders(folder)

    def __call__(self, sha256: str) -> Path:
        """Return the folder with the code of a bundle, verified before it is there.

        A folder that is there and has lost a file, or a part of one, is unpacked anew.
        Raises RefusedStartError when the code is not to be trusted, wherever that is tried. Raises
        FailedStartError for what may be better later or on another node: no room on the disk, nobody who
        gives the bundle, a requirement that this node lacks.
        """
        if not is_sha256(sha256):
            # The name comes from the store: an absolute path would be taken for a folder that was verified.
            raise RefusedStartError(f"{sha256[:80]!r} is no bundle: bundles are named by their SHA-256")
        folder = self._folder / sha256
        if not folder.is_dir():
            self._unpack(sha256, folder, unpack)
        elif (fault := folder_fault(folder)) is not None:
            _log.warning("an unpacked bundle is damaged, and is unpacked anew", bundle=sha256, reason=fault)
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
                f"this node lacks what the job requires: {', '.join(missing)}; install it here, or say "
                "with --node where the job may run"
            )
        self._prune(sha256)

    def _prune(self, newest: str) -> None:
        used = {newest, *self._in_use()}
        others = [path for path in self._folder.iterdir() if path.is_dir() and path.name not in used]
        for path in sorted(others, key=lambda path: path.stat().st_mtime)[: -self._kept]:
            shutil.rmtree(path, ignore_errors=True)


def unmet_requirements(requirements: Collection[str]) -> list[str]:
    """Return the requirements, as pip writes them, that this Python does not meet.

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
            found.append(f"{text} (there is {installed})")
    return found
