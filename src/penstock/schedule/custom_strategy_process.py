"""The process of a user's strategy: JSON on standard input, one JSON object as the answer. No pickle.

``python -m penstock.schedule.custom_strategy_process MEMORY FILE [FOLDER]`` takes so many bytes of
memory and writes so many to a file at most, and looks for the user's package in a folder first. What the
user's code prints goes to standard error, so that it cannot be taken for the answer.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from penstock.errors import cause_of
from penstock.schedule.custom_strategy import read_snapshot
from penstock.schedule.placement_model import Matrix


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """Make the class, ask it, and return its matrix, or what went wrong."""
    try:
        snapshot = read_snapshot(question["snapshot"])
        demands = tuple(snapshot.task_named[name] for name in question["demands"])
        module, _, name = question["strategy"].partition(":")
        strategy = getattr(import_module(module), name)()
        matrix = strategy.place(snapshot, demands)
        if isinstance(matrix, Mapping):  # A mapping from task to node says as much.
            matrix = Matrix(matrix)
        if not isinstance(matrix, Matrix):
            return {"error": f"it returned {type(matrix).__name__} instead of a Matrix"}
        checked = Matrix.of_plain(dict(matrix.places))
        return {"matrix": checked.to_plain()}
    except Exception as error:
        return {"error": f"it raised {cause_of(error)}"}


def main(memory: int, file_size: int, folder: str | None = None) -> None:
    """Read the question, answer it, and leave at once: threads of the user's must not hold the process."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answering = os.dup(1)
    os.dup2(2, 1)
    if folder:
        sys.path.insert(0, folder)
    written = json.dumps(answer(json.load(sys.stdin)))
    with os.fdopen(answering, "w") as file:
        file.write(written)
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:4])
