"""Parameters and variables of a job that are secrets appear neither in its log nor in why it ended."""

from __future__ import annotations

import pytest

from penstock.daemon.worker_folder import WorkerConfig
from penstock.keyring import Keyring
from penstock.process_logs import redaction
from penstock.worker.worker_main import one_line, register_secrets
from support.settings import make_assignment


def test_secrets_among_parameters_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_secrets", set())
    monkeypatch.setenv("DB_PASSWORD", "of-this-node")
    assignment = make_assignment(
        *("job", 1, 2, 1, "b", "job.py", "n1", 1, 1 << 30),
        params={"api_key": "abcdefgh", "pin_token": "1234", "since": "2026-01-01"},
        env={"DB_PASSWORD": None, "REGION": "somewhere", "AUTH_SECRET": "given-to-it"},
    )
    monkeypatch.setenv("AUTH_SECRET", "given-to-it")
    instance = WorkerConfig("job", "n1", "127.0.0.1", 2, 1, "zk:1", "/penstock", "k", "s", "b", assignment)
    ring = Keyring(bytes(32))
    register_secrets(instance, ring)
    said = one_line(ValueError("abcdefgh, of-this-node, given-to-it: not since 2026-01-01 in 1234 somewhere"))
    hidden = ", ".join([redaction.REDACTED] * 3)
    assert said == f"ValueError: {hidden}: not since 2026-01-01 in 1234 somewhere"
    assert one_line(ValueError(ring.token)) == f"ValueError: {redaction.REDACTED}"
