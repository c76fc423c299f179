"""The launcher of a process: records its process id, then executes the program in its place.

It is run as a file by an isolated Python without site packages, which takes about 12 ms, so it may import
only the standard library. Because the process itself writes ``process.json``, the successor of a supervisor
that died at any moment finds all its processes.
"""

from __future__ import annotations

import json
import os
import sys
import time

RECORD = "process.json"
TAKEN = "taken"
"""The error reported when the folder already belongs to another process."""


def main(folder: str, errors: int, argv: list[str]) -> None:
    """Write ``process.json`` and execute ``argv``; an error is written to the descriptor ``errors``.

    The descriptor is closed on exec, which tells the reader that the program has started.
    """
    os.set_inheritable(errors, False)
    try:
        if not write_record(folder, argv[0]):
            os.write(errors, TAKEN.encode())
            return
        os.execvpe(argv[0], argv, os.environ)  # noqa: S606 - an argument list, and there is no shell
    except OSError as error:
        os.write(errors, f"{argv[0]}: {error.strerror}".encode())


def write_record(folder: str, program: str) -> bool:
    """Write the record of this process; return False if another process has written one first."""
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
    """Return when a process was created, in clock ticks since boot; None if the system does not tell.

    Unlike the wall-clock time this is not affected by changes of the clock.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return None


def created(pid: int) -> float:
    """Return when a process was created, in seconds since 1970, with the same result as psutil."""
    start_ticks = ticks(pid)
    if start_ticks is None:
        return time.time()
    with open("/proc/stat", "rb") as file:  # noqa: PTH123
        started = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
    return started + start_ticks / os.sysconf("SC_CLK_TCK")


def boot() -> str:
    """Return the boot id of the machine; empty if the system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return ""


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[4:])
    sys.exit(127)
