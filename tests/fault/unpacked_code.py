"""Code of this folder as a supervisor leaves it for workers: an unpacked bundle, with its manifest."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from penstock.bundles.bundle_packer import pack
from penstock.bundles.unpacked_bundle import unpack

_HERE = Path(__file__).parent


def unpack_code(into: Path, *names: str) -> None:
    """Unpack a bundle with these files of this folder, the first of which defines the job."""
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder) / "code"
        code.mkdir()
        for name in names:
            shutil.copy(_HERE / name, code / name)
        shutil.rmtree(into, ignore_errors=True)
        unpack(pack(code, entry=names[0]), into)
