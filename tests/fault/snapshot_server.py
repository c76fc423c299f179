"""A supervisor's agent in a process of its own, for tests that kill it: FOLDER, PORT, TOKEN."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from penstock.bundles.blobs import BlobStore
from penstock.snapshots.store import SnapshotStore
from penstock.web.agent import make_supervisor_api
from penstock.web.serving import serve


def main(folder: Path, port: int, token: str) -> None:
    """Answer until the process is killed."""
    store = SnapshotStore(folder / "snapshots")
    store.tidy()
    with serve(
        make_supervisor_api(BlobStore(folder / "blobs"), list, token, "n1", snapshots=store),
        "127.0.0.1",
        port,
    ):
        print("ready", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
