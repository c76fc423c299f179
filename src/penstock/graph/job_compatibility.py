"""Checks whether a job can continue from the state of another version, given both structures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STAGING_OPTIONS = ("folder", "log", "root", "batches")
"""Options that determine where a sink stores staged records and the numbers of delivered batches."""


def incompatibilities(
    old: Mapping[str, Any], new: Mapping[str, Any], *, has_state: bool, in_flight: bool
) -> list[str]:
    """Return why a job with a new structure cannot continue from the state of the old one.

    ``has_state`` tells whether the old one holds state, ``in_flight`` whether records are in transit in it.
    """
    found = []
    before = {vertex["name"]: vertex for vertex in old["vertices"]}
    after = {vertex["name"]: vertex for vertex in new["vertices"]}
    for name, vertex in before.items():
        now = after.get(name)
        if vertex["kind"] == "source" and (now is None or now["kind"] != "source"):
            found.append(f"source {name!r} was removed, and its read position would be lost")
        elif vertex["kind"] == "source" and now is not None and vertex["options"] != now["options"]:
            found.append(
                f"source {name!r} reads {now['options']} now, but its position belongs to {vertex['options']}"
            )
        elif now is not None and has_state and (reason := _alignment_change(name, vertex, now)):
            found.append(reason)
        elif vertex["stateful"] and has_state and (now is None or not now["stateful"]):
            found.append(f"the state of vertex {name!r} would be lost")
        elif vertex["stateful"] and now is not None and _class(vertex) != _class(now) and has_state:
            found.append(
                f"vertex {name!r} has the state of {_class(vertex)}, which {_class(now)} cannot read"
            )
        elif now is not None and has_state:
            found += _window_changes(name, vertex, now)
    if in_flight and not same_graph(old, new):
        found.append("records are in transit through the old graph: drain the job first")
    return found


def other_sinks(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """Return by sink why its staged records cannot be delivered by the sinks of the new structure.

    A sink may deliver to another address, such as that of a service that has moved. It must have the same
    class and the same staging folder.
    """
    found = {}
    after = {vertex["name"]: vertex for vertex in new["vertices"] if vertex["kind"] == "sink"}
    for then in old["vertices"]:
        name = then["name"]
        now = after.get(name)
        if then["kind"] != "sink":
            continue
        if now is None:
            found[name] = f"sink {name!r} was removed"
        elif _class(then) != _class(now):
            found[name] = f"sink {name!r} was a {_class(then)} and is a {_class(now)}"
        else:
            for option in _STAGING_OPTIONS:
                was, has = then["options"].get(option), now["options"].get(option)
                # Version 0.1.0 did not store all of these options; an unknown one counts as unchanged.
                if option in then["options"] and was != has:
                    found[name] = f"sink {name!r} had {option}={was!r} and has {option}={has!r}"
    return found


def same_graph(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether records in transit through one structure can continue in another."""
    vertices = [[vertex["name"] for vertex in structure["vertices"]] for structure in (old, new)]
    return bool(old["edges"] == new["edges"]) and vertices[0] == vertices[1]


def _window_changes(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return why the window state of a vertex does not fit its new definition."""
    window, now = _stored_state_options(old.get("window")), _stored_state_options(new.get("window"))
    if window == now or (window is None and not old["stateful"]):
        return []
    if window is None:
        return [f"vertex {name!r} had one state for each key and has windows of {now} now"]
    return [f"vertex {name!r} had windows of {window} and has windows of {now} now"]


def _alignment_change(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """Return why records that wait at a vertex for its other ports would never be matched."""
    way, now = old.get("sync"), new.get("sync")
    if not way or way == now:
        return None
    if now:
        return f"vertex {name!r} aligned its ports by {way} and aligns them by {now} now"
    return f"vertex {name!r} aligned its ports and does not align them now"


def _class(vertex: dict[str, Any]) -> str:
    """Return the name of a vertex's class without its module, which depends on how the file is run."""
    return str(vertex["operator"]).rpartition(".")[2]


def _stored_state_options(window: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the options of a window that determine its stored state, without those of its results."""
    if window is None:
        return None
    return {name: value for name, value in window.items() if name != "with_bounds"}
