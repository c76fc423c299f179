"""How other systems place tasks, written from their descriptions, to be compared with; not for users.

They look at less than Penstock does. So that they can be compared at all, a node that cannot take a task by
the hard rules is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.schedule.baselines.s4_hash import S4Hash
from penstock.schedule.baselines.storm_even import StormEven
from penstock.schedule.baselines.storm_resource_aware import StormResourceAware
from penstock.schedule.strategies import Strategy

BASELINES: Mapping[str, Callable[[], Strategy]] = {
    "storm-even": StormEven,
    "storm-resource-aware": StormResourceAware,
    "s4-hash": S4Hash,
}
