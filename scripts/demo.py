"""What `make demo` runs: the word count on an embedded log, then the job with a loop."""

# ruff: noqa: T201 - it talks to a person

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = Path(sys.executable)
PENSTOCK = PYTHON.parent / "penstock"
TEXT = ROOT / "LICENSE"


def say(title: str) -> None:
    """Print a heading."""
    print(f"\n\033[1m{title}\033[0m" if sys.stdout.isatty() else f"\n== {title}", flush=True)


def run(*command: str | Path, text: str | None = None) -> None:
    """Show a command and run it; its output goes to the terminal."""
    # The commands are shown as a user types them, in an environment that is active.
    words = [Path(command[0]).name, *map(str, command[1:])]
    shown = " ".join(words) + (f" < {TEXT.name}" if text is not None else "")
    print(f"$ {shown}", flush=True)
    subprocess.run([str(word) for word in command], cwd=ROOT, input=text, text=True, check=True)


def read_counts() -> dict[str, int]:
    """Read the log of counts; of each word the last value wins."""
    command = [str(PENSTOCK), "log", "read", "counts", "-o", "json"]
    print(f"$ penstock {' '.join(command[1:])}", flush=True)
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    records = [json.loads(line) for line in output.splitlines() if line.strip()]
    return {record["key"]: record["value"] for record in records}


def word_count() -> None:
    """Count the words of a text with examples/wordcount.py and check the result."""
    say("1. Word count: lines -> split -> count -> counts (examples/wordcount.py)")
    text = TEXT.read_text(encoding="utf-8")
    run(PENSTOCK, "log", "create", "lines")
    run(PENSTOCK, "log", "append", "lines", text=text)
    run(PENSTOCK, "run", "examples/wordcount.py", "--until", "drained")
    counts = read_counts()
    for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:8]:
        print(f"  {count:4d}  {word}")
    if counts != Counter(text.split()):
        raise SystemExit("The counts differ from those of a plain Python loop. Please report this.")
    print(f"  {len(counts)} different words; every count is that of a plain Python loop.")


def file_types() -> None:
    """Run examples/file_types.py, which checks its own result."""
    say("2. A job with a loop: files are unwrapped until they are recognised (examples/file_types.py)")
    run(PYTHON, "examples/file_types.py")


def main() -> int:
    """Run both in a folder of their own, which is removed again."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as home:
        os.environ["PENSTOCK_HOME"] = home
        try:
            word_count()
            file_types()
        except subprocess.CalledProcessError as failure:
            print(f"\nThe command above ended with exit code {failure.returncode}.", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    say(f"Done in {time.monotonic() - started:.0f} s")
    print("Both jobs ran as Spark Structured Streaming queries on this machine; nothing is left running,")
    print("and the logs and checkpoints, which were in a temporary folder, are removed.")
    print("\nWhere to look next:")
    print("  README.md    what Penstock is, and the first steps")
    print("  examples/    the two jobs that ran; change one and run it with")
    print("               .venv/bin/penstock run examples/wordcount.py")
    print("  docs/        the guide (make docs builds a site), from the graph of a job to its Spark query")
    return 0


if __name__ == "__main__":
    sys.exit(main())
