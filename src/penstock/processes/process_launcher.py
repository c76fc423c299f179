"""The launcher of a process: records its process id, then executes the program in its place.

It is run as a file by an isolated Python without site packages, about 12 ms: it must import nothing but
the standard library. Because the process itself writes ``process.json``, a supervisor that dies at any
moment leaves no process that its successor cannot find.
"""

from __future__ import annotations

import json
import os
import sys
import time

RECORD = "process.json"
TAKEN = "taken"
"""What is answered when the folder belongs to a process that was started before."""


def main(folder: str, answer: int, argv: list[str]) -> None:
    """Write ``process.json`` and become ``argv``; what goes wrong is written to ``answer``.

    The descriptor closes when the other program begins, and so tells that everything went well.
    """
    os.set_inheritable(answer, False)
    try:
        if not note(folder, argv[0]):
            os.write(answer, TAKEN.encode())
            return
        os.execvpe(argv[0], argv, os.environ)  # noqa: S606 - an argument list, and there is no shell
    except OSError as error:
        os.write(answer, f"{argv[0]}: {error.strerror}".encode())


def note(folder: str, program: str) -> bool:
    """Write the record of this process unless there is one; whoever comes first decides."""
    record = {
        "pid": os.getpid(),
        "created": created(os.getpid()),
        "ticks": ticks(os.getpid()),
        "boot": boot(),
        "argv0": program,
        "started": time.time(),
    }
    staged = os.path.join(folder, f".{RECORD}.{os.getpid()}")  # noqa: PTH118 - pathlib takes 8 ms to import
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(record, file)
    try:
        os.link(staged, os.path.join(folder, RECORD))  # noqa: PTH118
    except FileExistsError:
        return False
    finally:
        os.unlink(staged)  # noqa: PTH108
    return True


def ticks(pid: int) -> int | None:
    """When a process began, in ticks since the machine did; None where the system does not tell.

    Unlike the time of day this never changes, whatever is done to the clock.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return None


def created(pid: int) -> float:
    """When a process began, in seconds since 1970, as psutil says it."""
    begun = ticks(pid)
    if begun is None:
        return time.time()
    with open("/proc/stat", "rb") as file:  # noqa: PTH123
        started = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
    return started + begun / os.sysconf("SC_CLK_TCK")


def boot() -> str:
    """Which run of the machine this is; empty where the system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return ""


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[4:])
    sys.exit(127)
