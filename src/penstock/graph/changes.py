"""What is different between two jobs, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.graph.job import Job
from penstock.graph.wording import choices

_OF_VERTICES = ("vertices", "edges")


def differences(old: Job, new: Job) -> list[str]:
    """Return what one job has otherwise than another: settings, vertices, edges, code.

    >>> from penstock.graph.copying import changed_copy
    >>> job = Job("orders", parallelism=2)
    >>> task = job.task("double", lambda record: record.value * 2)
    >>> differences(job, changed_copy(job, parallelism=4, tasks={"double": abs}))
    ['parallelism: 4 instead of 2', "other code in 'double'"]
    """
    before, after = old.to_dict(), new.to_dict()
    found = _fields(before, after, "", _OF_VERTICES)
    old_vertices = {vertex["name"]: vertex for vertex in before["vertices"]}
    new_vertices = {vertex["name"]: vertex for vertex in after["vertices"]}
    for name, vertex in old_vertices.items():
        if name not in new_vertices:
            found.append(f"vertex {name!r} is gone")
        else:
            found += _fields(vertex, new_vertices[name], f"vertex {name!r}, ", ("operator",))
    found += [f"vertex {name!r} is new" for name in new_vertices if name not in old_vertices]
    if before["edges"] != after["edges"]:
        found.append("other edges")
    code = {vertex.label: vertex.operator for vertex in old.vertices if vertex.kind == "task"}
    recoded = [v.label for v in new.vertices if v.label in code and code[v.label] is not v.operator]
    if recoded:
        found.append(f"other code in {choices(tuple(recoded))}")
    return found


def _fields(
    old: Mapping[str, Any], new: Mapping[str, Any], where: str, left_out: tuple[str, ...]
) -> list[str]:
    return [
        f"{where}{name}: {new.get(name)} instead of {value}"
        for name, value in old.items()
        if name not in left_out and new.get(name) != value
    ]
