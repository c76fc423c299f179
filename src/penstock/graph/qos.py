"""Quality of service of a job: its priority, and limits of latency and loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

from penstock.errors import choices, shown

PRIORITIES = range(11)


@dataclass(frozen=True)
class QoS:
    """The quality of service of a job or of a vertex.

    The constructor never raises: :meth:`Job.validate <penstock.graph.job.Job.validate>` reports invalid
    values together with all other problems.

    >>> QoS(priority=8, max_latency=0.5)
    QoS(priority=8, max_latency=0.5, max_loss=0.0)
    """

    priority: int = 5
    """From 0, the first to wait for scarce resources, to 10, the last."""

    max_latency: float | None = None
    """The maximum seconds from source to sink for a record, or None for no limit."""

    max_loss: float = 0.0
    """The fraction of records, from 0 to 1, that may be dropped under overload."""


_FIELDS = tuple(field.name for field in fields(QoS))


def read_qos(value: Any) -> Any:
    """Convert the dict form of a QoS to a QoS; return any other value, valid or not, unchanged.

    >>> read_qos({"priority": 8})
    QoS(priority=8, max_latency=None, max_loss=0.0)
    """
    if isinstance(value, Mapping) and not qos_faults(value):
        return QoS(**value)
    return value


def qos_faults(value: Any) -> list[str]:
    """Return why a value is not a valid QoS; empty if it is a QoS, its dict form, or None.

    >>> qos_faults(QoS(priority=11))
    ['priority must be a whole number from 0 to 10, not 11']
    >>> qos_faults({"urgency": 1})
    ["unknown field 'urgency': a QoS has 'priority', 'max_latency', 'max_loss'"]
    """
    if value is None:
        return []
    if isinstance(value, QoS):
        given = {name: getattr(value, name) for name in _FIELDS}
    elif isinstance(value, Mapping):
        given = dict(value)
    else:
        return [f"must be a QoS or a dict of its fields, not {shown(value)}"]
    unknown = sorted(shown(name) for name in given if name not in _FIELDS)
    faults = [f"unknown field {name}: a QoS has {choices(_FIELDS)}" for name in unknown]
    priority = given.get("priority", QoS.priority)
    if not isinstance(priority, int) or isinstance(priority, bool) or priority not in PRIORITIES:
        faults.append(f"priority must be a whole number from 0 to 10, not {shown(priority)}")
    latency = given.get("max_latency")
    if latency is not None and not (_is_number(latency) and latency > 0):
        faults.append(f"max_latency must be a number of seconds above 0, not {shown(latency)}")
    loss = given.get("max_loss", QoS.max_loss)
    if not (_is_number(loss) and 0 <= loss <= 1):
        faults.append(f"max_loss must be a number from 0 to 1, not {shown(loss)}")
    return faults


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or isfinite(value)
