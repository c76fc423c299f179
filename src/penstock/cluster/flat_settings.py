"""Reads the settings of documents of schema 1, which are fields of a job and have older names and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS: Mapping[str, tuple[str, Mapping[Any, Any]]] = {
    "k": ("k", {}),
    "recovery": ("recovery", {"snapshot": "copy"}),
    "replication": ("publisher", {"active": "first", "standby": "primary"}),
    "standby": ("warm_standby", {"": False, "warm": True}),
}
"""By the old name of a replica setting, its current name, and the current forms of old values."""


def flat_replicas(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the replica settings of a document. Unknown values stay as they are, so that they are reported.

    >>> flat_replicas({"k": 1, "replication": "standby", "standby": "warm"})
    {'k': 1, 'publisher': 'primary', 'warm_standby': True}
    """
    found = {}
    for name, (current, values) in _WORDS.items():
        if name in given:
            value = given[name]
            found[current] = values.get(value, value) if isinstance(value, str) else value
    return found


def spec_of_schema_1(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job document with its settings in one place.

    >>> spec_of_schema_1({"name": "count", "k": 2, "keep": "node"})
    {'name': 'count', 'settings': {'data_location': 'node', 'replicas': {'k': 2}}}
    """
    groups = {
        "resources": given.get("resources"),
        "placement": _part(given, nodes="nodes", labels="labels", strategy="strategy"),
        **_shared_groups(given),
        "replicas": flat_replicas(given),
    }
    moved = {"resources", "nodes", "labels", "strategy", *_SHARED, *_WORDS}
    return _with_settings(given, groups, moved)


def assignment_of_schema_1(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return an assignment document with its settings in one place."""
    membership = given.get("membership")
    slots = given.get("executors", [])
    asked = given.get("executors_asked", -1)
    resources = _part(given, cores="cores", memory="memory")
    # Earlier versions do not say how many executors were asked for.
    resources["executors"] = len(slots) if asked == -1 and isinstance(slots, list) else asked
    groups: dict[str, Any] = {"resources": resources, **_shared_groups(given)}
    if isinstance(membership, Mapping):
        groups["replicas"] = flat_replicas(membership)
        given = {
            **given,
            "membership": {name: value for name, value in membership.items() if name not in _WORDS},
        }
    return _with_settings(given, groups, {"cores", "memory", "executors_asked", *_SHARED})


_SHARED = ("spark_master", "conf", "until", "keep")


def _shared_groups(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "spark": _part(given, spark_master="master", conf="conf"),
        **_part(given, until="until", keep="data_location"),
    }


def _part(given: Mapping[str, Any], **names: str) -> dict[str, Any]:
    return {current: given[name] for name, current in names.items() if name in given}


def _with_settings(given: Mapping[str, Any], groups: Mapping[str, Any], moved: set[str]) -> dict[str, Any]:
    rest = {name: value for name, value in given.items() if name not in moved}
    return {**rest, "settings": {name: group for name, group in groups.items() if group not in ({}, None)}}
