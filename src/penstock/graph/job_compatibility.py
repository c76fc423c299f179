"""Whether a job can go on from where another version of it is, by both structures (``job.to_dict()``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PLACES = ("folder", "log", "root", "batches")
"""Options that say where a sink keeps what is not out, or what is."""


def incompatibilities(
    old: Mapping[str, Any], new: Mapping[str, Any], *, has_state: bool, in_flight: bool
) -> list[str]:
    """Return why a job with a new structure cannot go on from where one with an old structure is.

    ``has_state`` says whether the old one holds state, ``in_flight`` whether records are on their way in it.
    """
    found = []
    before = {vertex["name"]: vertex for vertex in old["vertices"]}
    after = {vertex["name"]: vertex for vertex in new["vertices"]}
    for name, vertex in before.items():
        now = after.get(name)
        if vertex["kind"] == "source" and (now is None or now["kind"] != "source"):
            found.append(f"source {name!r} is gone, and with it how far it had been read")
        elif vertex["kind"] == "source" and now is not None and vertex["options"] != now["options"]:
            found.append(
                f"source {name!r} reads {now['options']} now, and its position is one of {vertex['options']}"
            )
        elif now is not None and has_state and (reason := _waits_otherwise(name, vertex, now)):
            found.append(reason)
        elif vertex["stateful"] and has_state and (now is None or not now["stateful"]):
            found.append(f"the state of vertex {name!r} would be lost")
        elif vertex["stateful"] and now is not None and _class(vertex) != _class(now) and has_state:
            found.append(
                f"vertex {name!r} has the state of {_class(vertex)}, which {_class(now)} cannot read"
            )
        elif now is not None and has_state:
            found += _other_windows(name, vertex, now)
    if in_flight and not same_graph(old, new):
        found.append("records are on their way through the old graph: run it until it is drained first")
    return found


def other_sinks(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """Return by name why what waits for a sink of the old structure cannot go out by the new one.

    A sink may send it elsewhere now, as when a service has moved. It must be of the same kind, and keep what
    waits in the same place.
    """
    found = {}
    after = {vertex["name"]: vertex for vertex in new["vertices"] if vertex["kind"] == "sink"}
    for then in old["vertices"]:
        name = then["name"]
        now = after.get(name)
        if then["kind"] != "sink":
            continue
        if now is None:
            found[name] = f"sink {name!r} is gone"
        elif _class(then) != _class(now):
            found[name] = f"sink {name!r} was a {_class(then)} and is a {_class(now)}"
        else:
            for option in _PLACES:
                was, has = then["options"].get(option), now["options"].get(option)
                # Version 0.1.0 did not write down all of them, and a place that is not known is no other one.
                if option in then["options"] and was != has:
                    found[name] = f"sink {name!r} had {option}={was!r} and has {option}={has!r}"
    return found


def same_graph(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether records on their way through one structure find their way through another."""
    vertices = [[vertex["name"] for vertex in structure["vertices"]] for structure in (old, new)]
    return bool(old["edges"] == new["edges"]) and vertices[0] == vertices[1]


def _other_windows(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return why what a vertex holds back in windows has no place in the new one."""
    window, now = _held(old.get("window")), _held(new.get("window"))
    if window == now or (window is None and not old["stateful"]):
        return []
    if window is None:
        return [f"vertex {name!r} has one state for each key, and windows of {now} now"]
    return [f"vertex {name!r} keeps what it holds in windows of {window}, and has windows of {now} now"]


def _waits_otherwise(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """Return why what waits at a vertex for records of its other ports would never find them."""
    way, now = old.get("sync"), new.get("sync")
    if not way or way == now:
        return None
    if now:
        return f"vertex {name!r} aligns its ports by {way}, and by {now} now"
    return f"vertex {name!r} waits for records on all its ports, and does not wait for them now"


def _class(vertex: dict[str, Any]) -> str:
    """The name of a vertex's class, without its module: a file may be run in more than one way."""
    return str(vertex["operator"]).rpartition(".")[2]


def _held(window: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return what of a window decides where its records are held, and not how its results look."""
    if window is None:
        return None
    return {name: value for name, value in window.items() if name != "with_bounds"}
