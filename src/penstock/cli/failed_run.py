"""What the command line says of a job that has failed: what, where in the user's code, and no more."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from penstock.errors import ConnectorError, PenstockError, SettingError, TaskError
from penstock.log import home

_FRAME = re.compile(r'  File "(.+)", line (\d+), in (.+)\n(?:    (\S.*)\n)?')
_MOST = 8
"""How many places are shown: an endless recursion has a thousand."""

_LIBRARY_PATHS = (str(Path(__file__).parents[1]) + os.sep, "/pyspark/", "/cloudpickle/", "<frozen ")


def failure_message(job: str, error: PenstockError) -> str:
    """Return what to print of an error; the whole of a long trace goes into a file of the job."""
    text = str(error)
    where = getattr(error, "__notes__", [])
    # What is wrong with an option or with the machine is no matter of one job.
    named = where or f"job {job!r}" in text or isinstance(error, SettingError)
    lines = [text if named else f"job {job!r}: {text}", *(f"  {note}" for note in where)]
    trace = getattr(error, "trace", "")
    if isinstance(error, TaskError | ConnectorError):
        lines += user_frames(trace)
    if trace:
        file = _keep(job, f"{error}\n\n{trace}")
        lines += [f"  the whole trace is in {file}"] if file is not None else []
    return "\n".join(lines)


def user_frames(trace: str) -> list[str]:
    """Return where a trace goes through code that is neither ours nor Spark's, the innermost last.

    >>> places('  File "job.py", line 6, in ratio\\n    100 // r.value\\nZeroDivisionError')
    ['  in job.py, line 6, in ratio: 100 // r.value']
    """
    found = []
    for file, line, function, code in _FRAME.findall(trace):
        if not any(part in file for part in _LIBRARY_PATHS):
            found.append(f"  in {file}, line {line}, in {function}" + (f": {code}" if code else ""))
    return found[-_MOST:]


def _keep(job: str, text: str) -> Path | None:
    """Write a trace into the job's folder; where there is no room for it, it is not worth a second error."""
    file = home() / "jobs" / job / "trace.txt"
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(text)
        return file
    return None
