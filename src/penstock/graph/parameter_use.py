"""Which parameters the code of a job's vertices cannot do without: found in the code, before any of it runs.

Only what is certain counts: ``ps.params["name"]`` in a function of a vertex, in a method of its class, or in
a function within one of these. Where the same function asks ``"name" in ps.params``, or catches errors, the
parameter may be left out.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType
from typing import Any

from penstock.graph.job import Job
from penstock.parameters import params


@dataclass(frozen=True)
class RequiredParameter:
    """A parameter that is read by the code of a vertex."""

    name: str
    vertex: str
    file: str
    line: int


def required_parameters(job: Job) -> list[RequiredParameter]:
    """Return the parameters that the code of a job's vertices needs, in the order of vertices and lines."""
    return [
        RequiredParameter(name, vertex.name, function.__code__.co_filename, line)
        for vertex in job.vertices
        for function in _functions(vertex.operator)
        for name, line in _needed(function.__code__, function.__globals__)
    ]


def _functions(operator: Any) -> Iterator[FunctionType]:
    """Return the functions of the user's that an operator runs."""
    own = [value for cls in type(operator).__mro__ if not _is_ours(cls) for value in vars(cls).values()]
    held = list(vars(operator).values()) if hasattr(operator, "__dict__") else []
    for value in (*held, *own):
        found = value
        while isinstance(found, partial):
            found = found.func
        found = getattr(found, "__func__", found)
        if isinstance(found, FunctionType):
            yield found


def _is_ours(cls: type) -> bool:
    return cls.__module__ == "builtins" or cls.__module__.partition(".")[0] == "penstock"


def _needed(code: CodeType, names: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Return the parameters that a function needs, and on which line."""
    steps = list(dis.get_instructions(code))
    caught = [range(entry.start, entry.end) for entry in dis.Bytecode(code).exception_entries]  # type: ignore[attr-defined]
    optional = {
        before.argval
        for place, step in enumerate(steps)
        if step.opname == "CONTAINS_OP" and (at := _params_at(steps, place, names)) is not None
        for before in steps[at - 1 : at]
    }
    line = code.co_firstlineno
    for place, step in enumerate(steps):
        line = step.positions.lineno or line if step.positions else line
        subscript = step.opname == "BINARY_SUBSCR" or (step.opname == "BINARY_OP" and step.argrepr == "[]")
        if not subscript or place < 2 or not isinstance(steps[place - 1].argval, str):
            continue
        name = steps[place - 1].argval
        if steps[place - 1].opname != "LOAD_CONST" or _params_at(steps, place - 1, names) is None:
            continue
        if name not in optional and not any(step.offset in covered for covered in caught):
            yield name, line
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _needed(constant, names)


def _params_at(steps: list[dis.Instruction], end: int, names: Mapping[str, Any]) -> int | None:
    """Return where the instructions begin that load ``ps.params`` just before a place; None if none do."""
    if end >= 1 and _global(steps[end - 1], names) is params:
        return end - 1
    if end >= 2 and steps[end - 1].opname == "LOAD_ATTR" and steps[end - 1].argval == "params":
        owner = _global(steps[end - 2], names)
        return end - 2 if getattr(owner, "params", None) is params else None
    return None


def _global(step: dis.Instruction, names: Mapping[str, Any]) -> Any:
    return names.get(str(step.argval)) if step.opname == "LOAD_GLOBAL" else None
