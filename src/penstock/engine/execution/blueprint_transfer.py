"""Transfer of a job's blueprint to Spark's Python workers, which cache it."""

from __future__ import annotations

import gc
import hashlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from importlib.machinery import PathFinder
from io import TextIOWrapper
from types import FunctionType, ModuleType
from typing import Any, cast

import cloudpickle

from penstock.engine.batch_context import ctx
from penstock.engine.blueprint import Blueprint
from penstock.engine.execution.record_flow import Program
from penstock.engine.storage.keyed_state import drop_cached_state
from penstock.errors import JobFailedError, PenstockError, TaskError, cause_of
from penstock.graph.tasks import ArrowTask, FunctionTask
from penstock.parameters import set_params
from penstock.process_logs.output_capture import capture_user_output_in_spark
from penstock.vertex_calls import vertex_call

_programs: dict[str, Program] = {}
"""Programs by hash of the blueprint, oldest first."""

_MAX_CACHED_PROGRAMS = 4
"""Concurrent jobs share the workers, which keep the prepared programs of this many jobs."""


def pack_blueprint(blueprint: Blueprint) -> bytes:
    """Pickle a blueprint with the user's code and the import path that the code needs."""
    modules = {_module_of(vertex.operator) for vertex in blueprint.vertices}
    schemas = [schema for v in blueprint.vertices for schema in (v.schema, v.input_schema) if schema]
    modules |= {getattr(schema.cls, "__module__", None) for schema in schemas}
    with ExitStack() as stack:
        for name in sorted(modules - {None, "__main__"}, key=str):
            module = sys.modules.get(str(name))
            if module is not None and not _importable(module):
                cloudpickle.register_pickle_by_value(module)
                stack.callback(cloudpickle.unregister_pickle_by_value, module)
        try:
            packed = cloudpickle.dumps(blueprint)
        except Exception as error:
            raise _transfer_error(blueprint, error) from error
        return cast(bytes, cloudpickle.dumps((list(sys.path), dict(blueprint.params), packed)))


def _transfer_error(blueprint: Blueprint, error: Exception) -> PenstockError:
    """Return an error that names the vertex whose code cannot be pickled."""
    for vertex in blueprint.vertices:
        try:
            cloudpickle.dumps(vertex)
        except Exception as cause:
            nothing = "nothing yet"
            return TaskError(blueprint.job, vertex.name, nothing, _reason(vertex.operator, cause))
    return JobFailedError(f"job {blueprint.job!r} cannot be sent to the workers: {cause_of(error)}")


def _reason(operator: Any, error: Exception) -> str:
    """Return which object of an operator cannot be pickled, and where to create it instead."""
    said = cause_of(error)
    for what, value in _referenced_objects(operator):
        if not _is_packable(value):
            made = "create it in prepare(self, config), which is called in each worker process"
            if isinstance(operator, FunctionTask | ArrowTask):
                made = f"use a ps.Task instead of a function, and {made}"
            elif not hasattr(operator, "prepare"):
                made = "create it where it is used"
            return f"{what}, a {type(value).__qualname__}, cannot be sent to the workers: {made} ({said})"
    return said


def _referenced_objects(operator: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that an operator refers to: its attributes and the variables of its functions."""
    owner, functions = operator, []
    if isinstance(operator, FunctionTask | ArrowTask):
        functions = [operator.function]
        owner = getattr(operator.function, "__self__", operator.function)
    else:
        own = [cls for cls in type(operator).__mro__ if cls.__module__.partition(".")[0] != "penstock"]
        functions = [value for cls in own for value in vars(cls).values()]
    for name, value in sorted(getattr(owner, "__dict__", {}).items()):
        yield f"attribute {name!r}", value
    for function in functions:
        found = getattr(function, "__func__", function)
        if isinstance(found, FunctionType):
            with suppress(ValueError):  # The variable has no value yet.
                used = inspect.getclosurevars(found)
                for name, value in sorted([*used.nonlocals.items(), *used.globals.items()]):
                    yield f"variable {name!r}", value


def _is_packable(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True


def unpack_blueprint(data: bytes) -> Blueprint:
    """Unpickle a blueprint in another process, whose output counts as that of user code from now on."""
    capture_user_output_in_spark(ctx.running_vertex)
    path, parameters, blueprint = cloudpickle.loads(data)
    sys.path.extend(entry for entry in path if entry not in sys.path)
    # Unpickling may import the job's file, which may read parameters.
    set_params(parameters)
    with vertex_call(""):  # It imports user code.
        return cast(Blueprint, cloudpickle.loads(blueprint))


def load_program(data: bytes) -> Program:
    """Return the program of a blueprint; created once in each worker process."""
    name = hashlib.sha256(data).hexdigest()
    program = _programs.get(name)
    if program is None:
        # Lists of records live until the end of their batch: searching them for cycles after every 700 new
        # objects would double the cost of a record.
        gc.set_threshold(100_000, 50, 50)
        _buffer_lines()
        program = Program(unpack_blueprint(data))
        _evict_programs(program.blueprint)
        _programs[name] = program
    # Concurrent jobs share this process.
    set_params(program.blueprint.params)
    return program


def _buffer_lines() -> None:
    """Write each line that user code prints at once and as a whole.

    All of Spark's processes share one pipe. Spark starts them without buffers, so that ``print`` with two
    values makes four writes, which mix with those of other processes.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, write_through=False)


def _evict_programs(coming: Blueprint) -> None:
    """Remove other versions of a job that is about to run, and the oldest jobs if the cache is full."""
    root = coming.folders.root
    for name in [name for name, old in _programs.items() if old.blueprint.folders.root == root]:
        del _programs[name]
    drop_cached_state(coming.folders.state, since=coming.buckets)
    while len(_programs) >= _MAX_CACHED_PROGRAMS:
        oldest = _programs.pop(next(iter(_programs)))
        drop_cached_state(oldest.blueprint.folders.state)


def _module_of(operator: Any) -> str | None:
    target = operator.function if isinstance(operator, FunctionTask | ArrowTask) else type(operator)
    return getattr(target, "__module__", None) or getattr(type(target), "__module__", None)


def _importable(module: ModuleType) -> bool:
    """Return whether a worker with the same import path finds this module."""
    top = module.__name__.partition(".")[0]
    if top in sys.builtin_module_names:
        return True
    try:
        found = PathFinder.find_spec(top)
    except (ImportError, ValueError):
        return False
    if found is None:
        return False
    if "." not in module.__name__:
        return found.origin == getattr(module, "__file__", None)
    file = getattr(module, "__file__", None) or ""
    return any(file.startswith(str(place)) for place in found.submodule_search_locations or ())
