"""Whether a bundle is what its user has signed and what its manifest says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.bundles.archive import Entry, read_archive, unpacked
from penstock.bundles.limits import MOST_MANIFEST, MOST_UNPACKED, megabytes
from penstock.bundles.manifest import MANIFEST, BundleManifest, decode_manifest
from penstock.bundles.signing import BundleError, check_signature


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
