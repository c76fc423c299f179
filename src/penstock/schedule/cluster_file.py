"""A cluster described in a file: one description for placement and for backup location.

Every field is declared once, in the tables below, with what it means. Whatever is wrong is told with its
place in the file, like ``tasks[3].cpu``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from penstock.errors import PenstockError, shorten
from penstock.schedule.placement_model import ClusterSnapshot, Link, Node, Task, Traffic

_TOLD = 8
"""How many faults are named."""


class DescriptionError(PenstockError):
    """The description of a cluster is invalid; ``faults`` names each place and its fault."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        more = f"\n  and {len(faults) - _TOLD} more" if len(faults) > _TOLD else ""
        told = "".join(f"\n  {fault}" for fault in self.faults[:_TOLD])
        super().__init__(f"the description of the cluster is wrong:{told}{more}")

    def __reduce__(self) -> tuple[object, ...]:
        return (DescriptionError, (self.faults,))


@dataclass(frozen=True)
class Field:
    """One field of the file."""

    name: str
    kind: str
    """``text``, ``number``, ``bytes`` (a whole number), ``names`` (a list) or ``labels`` (an object)."""
    meaning: str
    default: Any = None
    required: bool = False
    most: float = inf
    positive: bool = False
    """0 is not allowed."""


NODE = (
    Field("name", "text", "the name of the node", required=True),
    Field("cores", "number", "cores that tasks may use", required=True),
    Field("memory", "bytes", "bytes that tasks may use", required=True),
    Field("bandwidth", "number", "bytes a second of its network link; 0 if it is unknown", 0.0),
    Field("rack", "text", "the rack it is in", ""),
    Field("labels", "labels", "its labels", {}),
    Field("load", "number", "how busy it is, from 0 to 1", 0.0, most=1.0),
    Field("storage", "number", "bytes it has for backups of others; unlimited if missing", inf),
)
TASK = (
    Field("id", "text", "the name of the task", required=True),
    Field("job", "text", "its job; by default what is before the first / of its id"),
    Field("kind", "text", "driver or executor", "driver"),
    Field("cpu", "number", "cores it asks for", 1.0),
    Field("memory", "bytes", "bytes it asks for", 0),
    Field("labels", "labels", "labels that its node must have", {}),
    Field("nodes", "names", "if any, the only nodes it may run on", ()),
    Field("apart", "text", "no two tasks of such a group run on one node", ""),
    Field("current", "text", "the node it runs on now"),
    Field("snapshot", "number", "bytes of a snapshot of its data"),
    Field("input_rate", "number", "bytes a second of its input, kept between two snapshots"),
    Field("interval", "number", "seconds between two snapshots", 10.0, positive=True),
    Field("latency", "number", "seconds it may be late; Algorithm 1 takes the least first", 1.0),
)
TRAFFIC = (
    Field("first", "text", "a task", required=True),
    Field("second", "text", "another task", required=True),
    Field("rate", "number", "bytes a second between them, both directions together", required=True),
)
LINK = (
    Field("rack", "text", "a rack", required=True),
    Field("bandwidth", "number", "bytes a second of its uplink", required=True, positive=True),
)
CLUSTER = (
    Field("overloaded_above", "number", "a node whose load is larger gets nothing new", 0.9, most=1.0),
)
LISTS: Mapping[str, tuple[Field, ...]] = {"nodes": NODE, "tasks": TASK, "traffic": TRAFFIC, "links": LINK}


@dataclass(frozen=True)
class TaskBackup:
    """What a task keeps on its node and must not lose."""

    snapshot: float
    input_rate: float
    interval: float
    latency: float = 1.0


@dataclass(frozen=True)
class Description:
    """A described cluster."""

    snapshot: ClusterSnapshot
    storage: Mapping[str, float]
    """By node: what it has for backups."""
    backups: Mapping[str, TaskBackup]
    """By task; tasks without data are left out."""


def parse_cluster_file(text: str) -> Description:
    """Read the text of a file; raises DescriptionError.

    >>> text = '{"nodes": [{"name": "a", "cores": 4, "memory": 1024}], "tasks": [{"id": "t"}]}'
    >>> described = parse_cluster_file(text)
    >>> described.snapshot.nodes[0].cores, described.snapshot.tasks[0].cpu
    (4.0, 1.0)
    >>> parse_cluster_file('{"nodes": [{"name": "a", "cores": -1, "memory": 1024}], "tasks": []}')
    Traceback (most recent call last):
    penstock.schedule.cluster_file.DescriptionError: the description of the cluster is wrong:
      nodes[0].cores: expected a number from 0 on, found -1
    """
    try:
        content = json.loads(text)
    except RecursionError:
        raise DescriptionError(["it is nested too deeply"]) from None
    except ValueError as error:
        raise DescriptionError([f"it is not valid JSON: {error}"]) from None
    return describe(content)


def describe(content: object) -> Description:
    """Read what JSON has of a cluster; raises DescriptionError."""
    faults: list[str] = []
    if not isinstance(content, dict):
        raise DescriptionError([f"expected an object with nodes and tasks, found {_shown(content)}"])
    known = {*LISTS, *(field.name for field in CLUSTER)}
    faults += [_unknown("", name, known) for name in content if name not in known]
    whole = _object(
        {name: value for name, value in content.items() if name not in LISTS and name in known},
        "",
        CLUSTER,
        faults,
    )
    lists = {name: _list(content, name, fields, faults) for name, fields in LISTS.items()}
    _names(lists, faults)
    if faults:
        raise DescriptionError(faults)
    return Description(
        ClusterSnapshot(
            tuple(Node(**_without(node, "storage")) for node in lists["nodes"]),
            tuple(_task(task) for task in lists["tasks"]),
            tuple(Traffic(**pair) for pair in lists["traffic"]),
            tuple(Link(**link) for link in lists["links"]),
            whole["overloaded_above"],
        ),
        {node["name"]: node["storage"] for node in lists["nodes"]},
        {
            task["id"]: TaskBackup(
                task["snapshot"] or 0.0, task["input_rate"] or 0.0, task["interval"], task["latency"]
            )
            for task in lists["tasks"]
            if task["snapshot"] or task["input_rate"]
        },
    )


def _task(found: dict[str, Any]) -> Task:
    job = found["job"] if found["job"] is not None else found["id"].partition("/")[0]
    figures = _without(found, "snapshot", "input_rate", "interval", "latency", "job")
    return Task(job=job, **figures)


def _without(found: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in names}


def _list(
    content: dict[str, Any], name: str, fields: tuple[Field, ...], faults: list[str]
) -> list[dict[str, Any]]:
    given = content.get(name, [])
    if name in ("nodes", "tasks") and name not in content:
        faults.append(f"{name}: it is missing")
    if not isinstance(given, list):
        faults.append(f"{name}: expected a list, found {_shown(given)}")
        return []
    found = []
    for number, item in enumerate(given):
        where = f"{name}[{number}]"
        if isinstance(item, dict):
            found.append(_object(item, where, fields, faults))
        else:
            faults.append(f"{where}: expected an object, found {_shown(item)}")
            found.append({field.name: field.default for field in fields})
    return found


def _object(
    given: dict[str, Any], where: str, fields: tuple[Field, ...], faults: list[str]
) -> dict[str, Any]:
    known = {field.name for field in fields}
    faults += [_unknown(where, name, known) for name in given if name not in known]
    found: dict[str, Any] = {}
    for field in fields:
        value = given.get(field.name)
        place = f"{where}.{field.name}".lstrip(".")
        found[field.name] = field.default
        if value is None:
            if field.required:
                faults.append(f"{place}: it is missing; it is {field.meaning}")
            continue
        fault = _fault(field, value)
        if fault:
            faults.append(f"{place}: {fault}")
        else:
            found[field.name] = _READ[field.kind](value)
    return found


_READ: Mapping[str, Any] = {"text": str, "number": float, "bytes": int, "names": tuple, "labels": dict}


def _fault(field: Field, value: object) -> str:
    """Return the fault of a value; empty if it is valid."""
    if field.kind in ("number", "bytes"):
        return _figure_fault(field, value)
    if field.kind == "text":
        right, wanted = isinstance(value, str), "a text"
        if field.required and value == "":
            return f"it is empty; it is {field.meaning}"
    elif field.kind == "names":
        right = isinstance(value, list) and all(isinstance(name, str) for name in value)
        wanted = "a list of texts"
    else:
        right = isinstance(value, dict) and all(isinstance(label, str) for label in value.values())
        wanted = "an object of texts"
    return "" if right else f"expected {wanted}, found {_shown(value)}"


def _figure_fault(field: Field, value: object) -> str:
    wanted = "a whole number" if field.kind == "bytes" else "a number"
    wanted += " over 0" if field.positive else " from 0 on"
    wanted += f" to {field.most:g}" if isfinite(field.most) else ""
    right = isinstance(value, int | float) and not isinstance(value, bool)
    if right:
        assert isinstance(value, int | float)
        # An integer of JSON may be larger than any float, and larger than Python likes to print.
        right = (value > 0 if field.positive else value >= 0) and value <= min(field.most, _LARGEST)
        right = right and (field.kind != "bytes" or value == int(value))
    return "" if right else f"expected {wanted}, found {_shown(value)}"


_LARGEST = 1e18
"""The largest number: no cluster has more of anything, and sums stay exact enough."""


def _names(lists: Mapping[str, list[dict[str, Any]]], faults: list[str]) -> None:
    """Return the faults of duplicate names, and of names of missing things."""
    nodes = _once("nodes", "name", lists["nodes"], faults)
    tasks = _once("tasks", "id", lists["tasks"], faults)
    _once("links", "rack", lists["links"], faults)
    racks = {node["rack"] for node in lists["nodes"]}
    for number, task in enumerate(lists["tasks"]):
        where = f"tasks[{number}]"
        if task["current"] is not None and task["current"] not in nodes:
            more = "; leave it out for a task whose node is lost"
            faults.append(f"{where}.current: there is no node {shorten(task['current'])}{more}")
        unknown = [name for name in task["nodes"] if name not in nodes]
        faults += [f"{where}.nodes: there is no node {shorten(name)}" for name in unknown]
    for number, pair in enumerate(lists["traffic"]):
        ends = [end for end in ("first", "second") if pair[end] is not None and pair[end] not in tasks]
        faults += [f"traffic[{number}].{end}: there is no task {shorten(pair[end])}" for end in ends]
    for number, link in enumerate(lists["links"]):
        if link["rack"] is not None and link["rack"] not in racks:
            faults.append(f"links[{number}].rack: no node is in rack {shorten(link['rack'])}")


def _once(what: str, name: str, items: list[dict[str, Any]], faults: list[str]) -> set[str]:
    first: dict[str, int] = {}
    for number, item in enumerate(items):
        if item[name] is None:
            continue
        if item[name] in first:
            faults.append(
                f"{what}[{number}].{name}: {shorten(item[name])} is the {name} of {what}[{first[item[name]]}]"
            )
        first.setdefault(item[name], number)
    return set(first)


def _unknown(where: str, name: str, known: Iterable[str]) -> str:
    place = f"{where}: " if where else ""
    return f"{place}there is no field {shorten(name)}; use {', '.join(sorted(known))}"


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _LARGEST:
        return "a number larger than 1e18"
    return shorten(value)
