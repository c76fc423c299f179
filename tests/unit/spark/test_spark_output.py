"""What Java and its Python workers print, and what of that a user gets to see."""

from __future__ import annotations

import pytest

from penstock.spark.spark_output import without_noise

BEGIN = "Traceback (most recent call last):"
THEIRS = ['  File "/lib/pyspark/daemon.py", line 9, in manager', "    read()"]
OURS = ['  File "/home/me/job.py", line 3, in halve', "    return 1 / 0"]


def seen(*lines: str) -> list[str]:
    return [line.decode().rstrip("\n") for line in without_noise(f"{line}\n".encode() for line in lines)]


def test_what_users_print_is_passed_on() -> None:
    lines = ["one", "  two", "", BEGIN, *OURS, "ZeroDivisionError: division by zero", "three"]
    assert seen(*lines) == lines


@pytest.mark.parametrize("error", ["EOFError", "BrokenPipeError: [Errno 32] Broken pipe"])
def test_a_worker_whose_spark_has_gone_says_nothing(error: str) -> None:
    assert seen("one", BEGIN, *THEIRS, error, "two") == ["one", "two"]


def test_nor_do_two_of_them_that_speak_at_once() -> None:
    mixed = [BEGIN, BEGIN, THEIRS[0], THEIRS[0], THEIRS[1], "EOFError", THEIRS[1], "EOFError"]
    assert seen("one", *mixed, "two") == ["one", "two"]


def test_an_error_of_a_worker_that_is_not_about_spark_is_passed_on() -> None:
    lines = [BEGIN, *THEIRS, "MemoryError"]
    assert seen(*lines) == lines


def test_an_error_of_a_user_is_passed_on_though_a_worker_speaks_at_the_same_time() -> None:
    lines = [BEGIN, BEGIN, *THEIRS, *OURS, "ZeroDivisionError: division by zero", "EOFError"]
    assert seen(*lines) == lines


def test_an_error_of_a_user_is_passed_on_though_a_worker_was_ended_while_it_spoke() -> None:
    lines = [BEGIN, *THEIRS, BEGIN, *OURS, "ZeroDivisionError: division by zero"]
    assert seen(*lines) == lines


@pytest.mark.parametrize("cut", [[BEGIN], [BEGIN, BEGIN], [BEGIN, THEIRS[0]], [BEGIN, BEGIN, *THEIRS]])
def test_a_worker_that_is_ended_while_it_speaks_says_nothing(cut: list[str]) -> None:
    assert seen("one", *cut) == ["one"]


def test_java_that_does_not_start_says_why_and_shows_no_stack() -> None:
    died: list[bytes] = []
    said = [b'Exception in thread "main" java.lang.Error: no room\n', b"\tat A.b(C.java)\n", b"more\n"]
    assert list(without_noise(said, died)) == [b"more\n"]
    assert died == said[:2]


_RUNNER = [
    '  File "<frozen runpy>", line 198, in _run_module_as_main',
    '  File "/lib/pyspark/sql/streaming/python_streaming_source_runner.py", line 9, in <module>',
    '  File "/lib/pyspark/util.py", line 853, in local_connect_and_auth',
    "    raise PySparkRuntimeError(",
]
_NOT_CONNECTED = (
    "pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET] Can not open socket:"
    " [\"tried to connect to ('127.0.0.1', 40417), but an error occurred: timed out\"]."
)


def test_a_process_that_could_not_connect_to_java_in_time_says_nothing() -> None:
    assert seen("one", BEGIN, *_RUNNER, _NOT_CONNECTED, "two") == ["one", "two"]
    lines = [BEGIN, *OURS, _NOT_CONNECTED]
    assert seen(*lines) == lines, "code of the user's own is another matter"
