"""Files of a worker's folder that only tests write or read this way."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from penstock.cluster.document_codec import DocumentError, decode
from penstock.cluster.worker_documents import WorkerInfo
from penstock.daemon.worker_folder import HEARTBEAT_FILE, INSTANCE_FILE, WorkerConfig
from penstock.local_files import write_private


def write_worker_config(folder: Path, instance: WorkerConfig) -> None:
    """Write the configuration of a worker that is about to be started."""
    write_private(folder / INSTANCE_FILE, json.dumps(asdict(instance), indent=1).encode())


def read_heartbeat(folder: Path) -> tuple[WorkerInfo, float] | None:
    """Return what a worker has said last and when, by the clock of files; None before it has."""
    path = folder / HEARTBEAT_FILE
    try:
        at = path.stat().st_mtime
        return decode(WorkerInfo, path.read_bytes()), at
    except (OSError, DocumentError):
        return None
