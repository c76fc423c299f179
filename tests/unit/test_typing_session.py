"""How pages of the documentation are read, and how what commands print is compared with them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.documents import Change, Command, NotTyped, SavedFile, steps_of
from support.typing_session import Session

PAGE = """
Save this as `a.json`:

```json
{}
```

```python
# b.py
x = 1
```

Change it:

<!-- change b.py: x = 1 => x = 2 -->
```python
x = 2
```

<!-- not typed: it needs three machines -->
```console
$ penstock up
```

<!-- expected to fail -->
```console
$ printf 'a\\nb\\n' | python cat.py
a
b
$ python b.py
```
"""


def _session(folder: Path) -> Session:
    run = lambda arguments: [sys.executable, *arguments]  # noqa: E731
    return Session(folder, folder / "home", run, run, {})


def test_a_page_is_read_in_order() -> None:
    assert steps_of(PAGE) == [
        SavedFile(5, "a.json", "{}\n"),
        SavedFile(9, "b.py", "# b.py\nx = 1\n"),
        Change(17, "b.py", "x = 1", "x = 2"),
        NotTyped(22, ("penstock up",), "it needs three machines"),
        Command(27, "printf 'a\\nb\\n' | python cat.py", ("a", "b")),
        Command(30, "python b.py", (), fails=True),
    ]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("appended 2 records", "appended 2 records\n", True),
        ("appended 2 records", "appended 3 records\n", False),
        ("appended 2 records", "appended 2 records\nand more\n", False),
        ("up since 40s, pid 41877", "up since 2m, pid 1234567", True),
        ("up since 40s, pid 41877", "up since 2m, pid 318", True),
        ("master   pid     up\nm-1      41877   4m", "master   pid     up\nm-1      318     4m", True),
        ("master   pid     up\nm-1      41877   4m", "master   pid   up\nm-1      318   4m", True),
        (
            "master   pid     up   in\nm-1      41877   4m   3",
            "master   pid   up   in\nm-1      318   4m   4",
            False,
        ),
        ("at http://127.0.0.2:7720", "at http://127.0.0.2:10020", True),
        ("at http://127.0.0.2:7720", "at http://127.0.0.3:7720", False),
        ("│ lines │ 2 │\n└───────┘", "| lines | 2 |", False),
        ("│ lines │ 2 │\n└───────┘", "┃ lines   ┃ 2 ┃\n", True),
        ("1 passed in …", "1 passed in 20.49s", True),
        ("1 passed in …", "1 failed in 20.49s", False),
    ],
)
def test_what_differs_on_each_machine_is_not_compared(
    tmp_path: Path, shown: str, printed: str, same: bool
) -> None:
    assert _session(tmp_path)._same(["penstock", "list"], tuple(shown.splitlines()), printed) is same


def test_records_of_a_log_have_no_order_and_waiting_has_a_first_and_a_last_line(tmp_path: Path) -> None:
    session = _session(tmp_path)
    assert session._same(["penstock", "log", "read", "x"], ("a", "b"), "b\na\n")
    assert session._same(["penstock", "submit", "x", "--wait"], ("a", "b", "c"), "a\nc\n")
    assert not session._same(["penstock", "submit", "x", "--wait"], ("a", "b", "c"), "a\nb\n")


@pytest.mark.parametrize("text", ["penstock list > file", "cat a | penstock log append x"])
def test_what_only_a_shell_can_do_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(AssertionError, match="no shell"):
        _session(tmp_path).do(Command(1, text, ()))


def test_a_process_id_of_the_page_stands_for_the_one_that_is_printed_in_its_place(tmp_path: Path) -> None:
    session = _session(tmp_path)
    shown = (
        "  leader    master-1",
        "  master-1   http://127.0.0.1:7700   41702   60s",
        "  1-1  node-1  41877  x",
    )
    printed = "leader master-2\nmaster-2 http://127.0.0.1:7701 555666 3s\n1-1 node-3 777888 x\n"
    session._learn(shown, printed)
    assert (session._pids["41702"], session._pids["41877"]) == (555666, 777888)
    session._learn(("worker  pid    up", "1-1     41877  4m"), "worker  pid  up\n1-1     318  4m\n")
    assert session._pids["41877"] == 318
    session._learn(("worker    pid  up", "1-1     41877  4m"), "worker    pid  up\n1-1     25006  4m\n")
    assert session._pids["41877"] == 25006
    session._learn(("worker    pid  up", "1-1     41877  4m"), "worker  pid  up\n1-1      17  4m\n")
    assert session._pids["41877"] == 17
