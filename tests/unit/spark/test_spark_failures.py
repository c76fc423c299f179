"""Failures of Spark's plumbing are told from all others by what PySpark and Java say of them."""

from __future__ import annotations

import pytest
from py4j.protocol import ERROR, Py4JError, Py4JNetworkError, get_return_value
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError

from penstock.errors import TaskError
from penstock.spark.spark_failures import has_java_ended, message_of, sentence, text_of, transient_reason

_CONNECT_BACK = """An error occurred while calling o183.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 failed 1 times, \
most recent failure: Lost task 0.0 in stage 4.0 (TID 7) (127.0.0.1 executor driver): \
org.apache.spark.SparkException: Python worker failed to connect back.
\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(PythonWorkerFactory.scala:255)
\tat org.apache.spark.SparkEnv.createPythonWorker(SparkEnv.scala:158)
Caused by: java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back \
after 10000 ms
"""
_STREAM = "[STREAM_FAILED] Query [id = 7d1, runId = 5c2] terminated with exception: {} SQLSTATE: XXKST"
_USER = """Job aborted due to stage failure: org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "/home/me/job.py", line 3, in split
    raise OSError("Accept timed out, Python worker failed to connect back")
OSError: Accept timed out, Python worker failed to connect back
"""
_DAEMON = """An error occurred while calling o62.load.
: java.lang.IllegalStateException: Python daemon failed to launch worker with code -1
"""


def _cannot_open_socket() -> PySparkRuntimeError:
    errors = "tried to connect to ('127.0.0.1', 40417), but an error occurred: timed out"
    return PySparkRuntimeError(errorClass="CANNOT_OPEN_SOCKET", messageParameters={"errors": errors})


class CapturedError(Exception):
    """As PySpark makes of an exception of Java: the cause has the words, and the description has few."""

    def __init__(self, desc: str, trace: str, cause: Exception | None = None) -> None:
        self._desc, self._stackTrace, self._cause = desc, trace, cause

    def __str__(self) -> str:
        return self._desc


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(_CONNECT_BACK),
        RuntimeError(_DAEMON),
        RuntimeError(_STREAM.format("Accept timed out")),
        CapturedError(
            _STREAM.format("null"), "java.net.SocketTimeoutException: Accept timed out\n\tat sun.nio.ch"
        ),
        CapturedError(_STREAM.format("Job aborted"), "", CapturedError("Job aborted", _CONNECT_BACK)),
        _cannot_open_socket(),
    ],
)
def test_what_fails_for_want_of_time_is_transient(error: Exception) -> None:
    assert transient_reason(error) is not None


def test_what_pyspark_hides_behind_an_error_of_its_cleaning_up_is_found() -> None:
    """``_load_from_socket`` closes what it has not opened, and an UnboundLocalError is what arrives."""
    from pyspark import util
    from pyspark.serializers import CPickleSerializer

    def refuse(port: object, secret: object) -> None:
        raise _cannot_open_socket()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(util, "local_connect_and_auth", refuse)
        with (
            pytest.raises(UnboundLocalError) as raised,
            util._load_from_socket([1, "x"], CPickleSerializer()),
        ):
            pass
    assert transient_reason(raised.value) == "Python could not connect to Java to fetch a result"
    assert "CANNOT_OPEN_SOCKET" in text_of(raised.value)


@pytest.mark.parametrize(
    "error",
    [
        None,
        RuntimeError("Python worker exited unexpectedly (crashed)"),
        RuntimeError(_USER),
        CapturedError(_STREAM.format("Accept timed out"), "", CapturedError("", _USER)),
        ConnectionRefusedError("Connection refused"),
        ZeroDivisionError("division by zero"),
        TaskError("job", "split", "a record", "TimeoutError: timed out"),
        RuntimeError("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"),
    ],
)
def test_nothing_else_is(error: Exception | None) -> None:
    assert transient_reason(error) is None


def test_an_error_that_cannot_be_read_is_not() -> None:
    class UnreadableError(Exception):
        def __str__(self) -> str:
            raise ConnectionResetError("Java is gone")

    assert transient_reason(UnreadableError()) is None
    assert text_of(UnreadableError()) == ""


class _System:
    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def nanoTime(self) -> int:  # noqa: N802 - the name in Java
        if self._error is not None:
            raise self._error
        return 1


class _Gateway:
    def __init__(self, error: Exception | None = None) -> None:
        self.jvm = self
        self.System = _System(error)


_DEAD = _Gateway(Py4JNetworkError("Answer from Java side is empty"))


def _unanswered() -> Py4JError:
    """What py4j makes of a call whose connection breaks."""
    with pytest.raises(Py4JError) as raised:
        get_return_value(ERROR, None, "o123", "collectToPython")
    return raised.value


class UnreadableError(Py4JError):  # type: ignore[misc]
    """An exception of Java whose message is read when it is asked for, like Py4JJavaError."""

    def __str__(self) -> str:
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize(
    ("error", "gateway", "ended"),
    [
        pytest.param(_unanswered(), _DEAD, True, id="unanswered"),
        pytest.param(_unanswered(), None, True, id="unanswered-and-forgotten"),
        pytest.param(_unanswered(), _Gateway(), False, id="unanswered-by-living-java"),
        pytest.param(Py4JNetworkError("empty"), _Gateway(), True, id="lost"),
        pytest.param(
            Py4JError("An error occurred while calling o1.x. Trace:\nboom"), _DEAD, False, id="raised"
        ),
        pytest.param(RuntimeError("An error occurred while calling o1.x"), _DEAD, False, id="another-error"),
        pytest.param(UnreadableError(), None, False, id="unreadable"),
        pytest.param(None, _DEAD, False, id="none"),
    ],
)
def test_a_call_without_an_answer_means_that_java_has_ended_if_it_answers_nothing_else(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, gateway: object, ended: bool
) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    assert has_java_ended(error) is ended


def test_an_error_that_can_no_longer_be_read_has_no_message() -> None:
    assert message_of(UnreadableError()) == ""
    assert sentence(UnreadableError()) == "UnreadableError"
    assert text_of(UnreadableError()) == ""
