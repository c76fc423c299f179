"""The process in which one half of a benchmark runs: it keeps its Spark session and waits for calls.

``python -m benchmarks.child MODULE:FUNCTION DESCRIPTOR`` reads one JSON object of arguments a line from
standard input, and writes one JSON object a line to the file descriptor: standard output belongs to Spark.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from benchmarks.timing import Measured


def answer(function: Callable[..., Measured], arguments: dict[str, Any]) -> dict[str, Any]:
    """Call the half once; a failure is an answer too."""
    try:
        return {"measured": function(**arguments).to_json()}
    except Exception:  # whatever it is, the parent process shows it
        return {"failure": traceback.format_exc()}


def main() -> None:
    """Serve calls until standard input ends."""
    module, name = sys.argv[1].split(":")
    function = getattr(importlib.import_module(module), name)
    with os.fdopen(int(sys.argv[2]), "w") as answers:
        for line in sys.stdin:
            answers.write(json.dumps(answer(function, json.loads(line))) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
