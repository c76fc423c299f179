"""Tests of snapshots do not wait for the disk: they kill processes, not the machine."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _the_disk_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
