"""What a command prints: tables and sentences for people, JSON for programs."""

from __future__ import annotations

from enum import StrEnum


class Output(StrEnum):
    """The form of what is printed."""

    TEXT = "text"
    JSON = "json"
