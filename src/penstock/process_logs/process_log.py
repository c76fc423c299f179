"""The log of a process: JSON lines with process, node, job and epoch, without secrets.

    log = get_logger("penstock.master.master")
    configure("master", file=folder / "log.jsonl", node="m1")
    bind(epoch=7)
    log.info("became leader", since=moment)

The global configuration of structlog is not changed: user code in the same process may have its own.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

# structlog imports rich for coloured tracebacks, which are not used here: that saves 5 MB in each process.
if "rich" in sys.modules:
    import structlog
else:
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog
    finally:
        del sys.modules["rich"]

from penstock.process_logs.redaction import REDACTED, is_secret_name, redact, register_secret

__all__ = ["REDACTED", "bind", "configure", "get_logger", "redact", "register_secret"]

LARGEST_FILE = 20_000_000
"""Bytes after which a file is rotated to ``FILE.1`` … ``FILE.5``."""
ROTATED_FILES = 5

_LEADING_FIELDS = ("timestamp", "level", "event", "process", "pid", "node", "job", "epoch")
_MOST_LEVELS = 6

_bound: dict[str, Any] = {}
_handlers: list[logging.Handler] = []


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a logger for a name that begins with ``penstock``; silent until :func:`configure` is called.

    Values are passed as keyword arguments: ``get_logger("penstock.web").warning("refused", path=path)``.
    """
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return logger


def configure(
    process: str,
    *,
    file: Path | None = None,
    node: str = "",
    job: str = "",
    stderr: bool = False,
    accepts: Callable[[logging.LogRecord], bool] | None = None,
) -> None:
    """Configure where this process logs: JSON lines to a file, readable text to stderr, or both.

    Penstock's records are logged from INFO on, those of libraries and user code from WARNING on. ``accepts``
    filters records. A later call replaces the configuration.
    """
    bind(process=process, pid=os.getpid(), node=node or None, job=job or None)
    root = logging.getLogger()
    for handler in _handlers:
        root.removeHandler(handler)
        handler.close()
    _handlers.clear()
    if file is not None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _add(
            _PrivateFile(file, maxBytes=LARGEST_FILE, backupCount=ROTATED_FILES, encoding="utf-8"),
            _as_json,
            accepts,
        )
    if stderr:
        _add(logging.StreamHandler(sys.stderr), _for_people, accepts)
    root.setLevel(logging.WARNING)
    logging.getLogger("penstock").setLevel(logging.INFO)


def _add(
    handler: logging.Handler,
    render: structlog.typing.Processor,
    accepts: Callable[[logging.LogRecord], bool] | None,
) -> None:
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[
            _add_context,
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            _without_secrets,
            render,
        ]
    )
    handler.setFormatter(formatter)
    if accepts is not None:
        handler.addFilter(accepts)
    logging.getLogger().addHandler(handler)
    _handlers.append(handler)


def bind(**values: Any) -> None:
    """Add values to all later log lines of this process, from any thread; None removes a value."""
    global _bound  # noqa: PLW0603 - replaced as a whole, so that other threads never see a partial change
    _bound = {name: value for name, value in {**_bound, **values}.items() if value is not None}


class _PrivateFile(RotatingFileHandler):
    """A log file that only its owner can read."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.fchmod(descriptor, 0o600)
        return TextIOWrapper(os.fdopen(descriptor, "ab"), encoding="utf-8", write_through=True)


def _add_context(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add timestamp, level, logger and bound values."""
    record: logging.LogRecord = event["_record"]
    event["timestamp"] = (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    )
    event["level"] = record.levelname.lower()
    event["logger"] = record.name
    for name, value in _bound.items():
        event.setdefault(name, value)
    return event


def _without_secrets(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    values = {name: _redacted(name, value, 0) for name, value in event.items()}
    first = {name: values.pop(name) for name in _LEADING_FIELDS if name in values}
    return {**first, **values}


def _redacted(name: str, value: Any, depth: int) -> Any:
    if is_secret_name(name):
        return REDACTED
    if isinstance(value, str):
        return redact(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth < _MOST_LEVELS and isinstance(value, Mapping):
        return {str(key): _redacted(str(key), each, depth + 1) for key, each in value.items()}
    if depth < _MOST_LEVELS and isinstance(value, list | tuple | set | frozenset):
        return [_redacted("", each, depth + 1) for each in value]
    return redact(repr(value))


def _as_json(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":"))


def _for_people(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    """Format a line of text, with control characters escaped so that no value can fake another line."""
    trace = event.pop("exception", None)
    left_out = ("timestamp", "level", "event", "pid", "logger")
    values = " ".join(f"{name}={_shown(value)}" for name, value in event.items() if name not in left_out)
    clock = str(event["timestamp"])[11:23]
    line = f"{clock} {event['level']:<7} {_printable(str(event['event']))}  {values}".rstrip()
    return line if trace is None else line + "\n" + "\n".join(map(_printable, str(trace).splitlines()))


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if text.isprintable() and text and " " not in text else json.dumps(text)


def _printable(text: str) -> str:
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
