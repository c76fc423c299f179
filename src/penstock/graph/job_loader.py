"""Loading of a job from ``FILE[:JOB]``, and a check that required parameters are given.

This is the only module of the package with I/O.
"""

from __future__ import annotations

import dis
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any
from zlib import crc32

from penstock.errors import MissingParameterError, SettingError, cause_of
from penstock.graph.job import Job
from penstock.parameters import params


@dataclass(frozen=True)
class RequiredParameter:
    """A parameter that the code of a vertex reads."""

    name: str
    vertex: str
    file: str
    line: int


def required_parameters(job: Job) -> list[RequiredParameter]:
    """Return the parameters that a job's vertices require, in the order of vertices and lines."""
    return [
        RequiredParameter(name, vertex.name, function.__code__.co_filename, line)
        for vertex in job.vertices
        for function in _functions(vertex.operator)
        for name, line in _required(function.__code__, function.__globals__)
    ]


def _functions(operator: Any) -> Iterator[FunctionType]:
    """Yield the user's functions that an operator runs."""
    own = [
        value for cls in type(operator).__mro__ if not _is_penstock_class(cls) for value in vars(cls).values()
    ]
    held = list(vars(operator).values()) if hasattr(operator, "__dict__") else []
    for value in (*held, *own):
        found = value
        while isinstance(found, partial):
            found = found.func
        found = getattr(found, "__func__", found)
        if isinstance(found, FunctionType):
            yield found


def _is_penstock_class(cls: type) -> bool:
    return cls.__module__ == "builtins" or cls.__module__.partition(".")[0] == "penstock"


def _required(code: CodeType, names: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the parameters that a function requires, with their lines."""
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
            yield from _required(constant, names)


def _params_at(steps: list[dis.Instruction], end: int, names: Mapping[str, Any]) -> int | None:
    """Return where the instructions before ``end`` that load ``ps.params`` begin; None if there are none."""
    if end >= 1 and _global(steps[end - 1], names) is params:
        return end - 1
    if end >= 2 and steps[end - 1].opname == "LOAD_ATTR" and steps[end - 1].argval == "params":
        owner = _global(steps[end - 2], names)
        return end - 2 if getattr(owner, "params", None) is params else None
    return None


def _global(step: dis.Instruction, names: Mapping[str, Any]) -> Any:
    return names.get(str(step.argval)) if step.opname == "LOAD_GLOBAL" else None


def load_job(target: str) -> Job:
    """Import a file and return its job; the name is required only if the file has several jobs.

    The file is imported under its own name with its folder on the path, as Python itself would do, so that
    workers can import it too.
    """
    path, wanted = _split(target)
    job = _find(path, wanted, _import(path))
    for use in required_parameters(job):
        if use.name not in params:
            # Without this check a missing parameter of a task would be noticed only when Spark runs it.
            raise SettingError(
                f"{use.file}, line {use.line}, vertex {use.vertex!r}: {MissingParameterError(use.name)}"
            )
    return job


def _find(path: Path, wanted: str | None, module: ModuleType) -> Job:
    jobs = {name: value for name, value in vars(module).items() if isinstance(value, Job)}
    distinct = {id(job): job for job in jobs.values()}
    if wanted is None:
        if len(distinct) == 1:
            return next(iter(distinct.values()))
        if not distinct:
            raise SettingError(f"{path} defines no job: create one with ps.Job(...) at the top level")
        raise SettingError(f"{path} defines several jobs: choose one with {path}:NAME, of {_names(jobs)}")
    by_name = {job.name: job for job in distinct.values()}
    found = jobs.get(wanted) or by_name.get(wanted)
    if found is None:
        raise SettingError(f"{path} has no job {wanted!r}" + (f": it has {_names(jobs)}" if jobs else ""))
    return found


def _names(jobs: dict[str, Job]) -> str:
    return ", ".join(sorted(jobs))


def _split(target: str) -> tuple[Path, str | None]:
    path = Path(target)
    if path.is_file():
        return path, None
    file, colon, name = target.rpartition(":")
    if colon and Path(file).is_file():
        return Path(file), name
    raise SettingError(f"there is no file {file if colon and name.isidentifier() else target}")


class _UncachedLoader(SourceFileLoader):
    """Compiles a file without using cached byte code.

    Python accepts byte code if the source has the same size and was modified in the same second, which can
    be wrong for a file that is edited while its job runs.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _import(path: Path) -> ModuleType:
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = path.stem
    if name in sys.modules or not name.isidentifier():
        name = f"penstock_job_{crc32(str(path.resolve()).encode())}"
    if path.suffix != ".py":
        raise SettingError(f"{path} is not a Python file")
    loader = _UncachedLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None, "a file loader always finds its file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except SystemExit as error:
        raise SettingError(f"{path} ends the program (exit code {error.code}) when it is imported") from error
    except SyntaxError as error:
        own = error.filename is None or Path(error.filename).resolve() == path.resolve()
        raise SettingError(f"{path if own else error.filename}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if Path(frame.filename).resolve() == path.resolve()
        ]
        where = f"{path}, line {frames[-1].lineno}" if frames else str(path)
        said = str(error) if isinstance(error, MissingParameterError) else cause_of(error)
        raise SettingError(f"{where}: {said}") from error
    return module
