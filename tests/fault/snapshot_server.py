"""A supervisor's agent in a process of its own, for tests that kill it: FOLDER, PORT, TOKEN."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from penstock.backups.snapshots.snapshot_store import SnapshotStore
from penstock.bundles.blob_store import BlobStore
from penstock.web.http_server import serve
from penstock.web.supervisor_api import make_supervisor_api


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
