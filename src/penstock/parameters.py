"""The parameters of a job (``ps.params``), named texts given at its start, and its environment variables.

Each process has one set of parameters: that of ``penstock run``, of a worker, or of the Spark task that it
runs. They are set before the job's file is loaded, in every process that runs its code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from penstock.errors import MissingParameterError, SettingError

HIDDEN = "*(hidden)*"
"""Shown in place of a value that may be a secret."""
LONGEST_NAME = 100
LARGEST = 64_000
"""Maximum bytes of all names and values: they are stored with the job and sent with every assignment."""

PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
_NAME = re.compile(PATTERN, re.ASCII)
_SECRET = re.compile(r"(?i)password|passwd|passphrase|secret|token|credential|key")
_RESERVED = re.compile(r"PENSTOCK_|PYSPARK_|_SPARK_|SPARK_LOCAL_|(PYTHONPATH|TMPDIR)$")
"""Variables that Penstock itself sets for the processes of a job."""


class Parameters(Mapping[str, str]):
    """The parameters of this process's job: a read-only mapping from names to text.

    A name that was not given raises MissingParameterError, a KeyError whose message says how to give it.

    >>> with params_set_to({"since": "2026-01-01"}):
    ...     params["since"], params.get("limit", "10"), "limit" in params
    ('2026-01-01', '10', False)
    """

    def __init__(self) -> None:
        self._values: Mapping[str, str] = {}

    def __getitem__(self, name: str) -> str:
        try:
            return self._values[name]
        except KeyError:
            raise MissingParameterError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __reduce__(self) -> str:
        return "params"  # Unpickled as the object of the receiving process.

    def __repr__(self) -> str:
        return f"ps.params({masked(self._values)!r})"


params = Parameters()


def set_params(values: Mapping[str, str]) -> None:
    """Set the parameters of this process."""
    params._values = dict(values)


@contextmanager
def params_set_to(values: Mapping[str, str]) -> Iterator[None]:
    """Set the parameters of this process within a ``with`` block."""
    before = params._values
    set_params(values)
    try:
        yield
    finally:
        params._values = before


def is_secret(name: str) -> bool:
    """Return whether values of this name must be hidden.

    >>> is_secret("db_password"), is_secret("API_KEY"), is_secret("since")
    (True, True, False)
    """
    return _SECRET.search(name) is not None


def masked(values: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return a copy of values in which possible secrets are hidden.

    >>> masked({"since": "2026-01-01", "api_token": "abc", "DB_KEY": None})
    {'since': '2026-01-01', 'api_token': '*(hidden)*', 'DB_KEY': None}
    """
    return {name: HIDDEN if value and is_secret(name) else value for name, value in values.items()}


def params_fault(values: Mapping[str, str | None], what: str = "parameter") -> str | None:
    """Return what is wrong with parameters or variables; None if they are valid.

    >>> params_fault({"since": "2026-01-01"})
    >>> params_fault({"from-date": "2026-01-01"})
    "'from-date' is not a valid parameter name: use letters, digits and _, and do not begin with a digit"
    """
    for name, value in sorted(values.items()):
        if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
            long = f", at most {LONGEST_NAME} characters" if len(name) > LONGEST_NAME else ""
            return (
                f"{name[:LONGEST_NAME]!r} is not a valid {what} name: use letters, digits and _, and do not"
                f" begin with a digit{long}"
            )
        if value is not None and not _can_be_stored(value):
            return f"the value of {what} {name!r} is not text that can be stored"
    size = sum(len(name) + len((value or "").encode()) for name, value in values.items())
    if size > LARGEST:
        return f"the {what}s have {size} bytes, above the limit of {LARGEST}: let the job read a file instead"
    return None


def env_fault(values: Mapping[str, str | None]) -> str | None:
    """Return what is wrong with environment variables for a job; None if they are valid.

    >>> env_fault({"PENSTOCK_HOME": "/tmp"})
    'the variable PENSTOCK_HOME is set by Penstock itself: choose another name'
    """
    fault = params_fault(values, "variable")
    ours = sorted(name for name in values if _RESERVED.match(name))
    if fault is None and ours:
        return f"the variable {ours[0]} is set by Penstock itself: choose another name"
    return fault


def read_params(words: Iterable[str]) -> dict[str, str]:
    """Parse ``NAME=VALUE`` arguments of a command line.

    >>> read_params(["since=2026-01-01", "query=a=b"])
    {'since': '2026-01-01', 'query': 'a=b'}
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise SettingError(f"--param takes NAME=VALUE, not {word!r}")
        _add(found, "--param", name, value)
    fault = params_fault(found)
    if fault is not None:
        raise SettingError(f"--param: {fault}")
    return found


def read_env(words: Iterable[str]) -> dict[str, str | None]:
    """Parse ``NAME=VALUE`` and ``NAME`` arguments; a name alone takes its value from each node's environment.

    >>> read_env(["REGION=eu", "DB_PASSWORD"])
    {'REGION': 'eu', 'DB_PASSWORD': None}
    """
    found: dict[str, str | None] = {}
    for word in words:
        name, equals, value = word.partition("=")
        _add(found, "--env", name, value if equals else None)
    fault = env_fault(found)
    if fault is not None:
        raise SettingError(f"--env: {fault}")
    return found


def _add(found: dict[str, str] | dict[str, str | None], option: str, name: str, value: str | None) -> None:
    if name in found:
        raise SettingError(f"{option} {name} is given twice")
    found[name] = value  # type: ignore[assignment]


def _can_be_stored(value: object) -> bool:
    """Return whether a value is text that an environment can hold: no NUL and no lone surrogates."""
    try:
        return isinstance(value, str) and "\x00" not in value and bool(value.encode() or True)
    except UnicodeEncodeError:
        return False
