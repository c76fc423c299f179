"""Reads scenarios from JSON and rejects unknown fields."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from math import inf
from types import UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

from penstock.cluster.document_codec import DocumentError, of_plain
from penstock.errors import PenstockError
from penstock.schedule.custom_strategy import repeated
from penstock.schedule.simulation.builtin_scenarios import TOPOLOGIES
from penstock.schedule.simulation.scenario import Scenario, Topology

_TOLD = 5
"""How many faults are named."""


class ScenarioError(PenstockError):
    """A description of a scenario cannot be read, or contradicts itself."""


def parse_scenario(text: str) -> Scenario:
    """Read a scenario from JSON; raises ScenarioError.

    >>> try:
    ...     parse_scenario('{"name": 5}')
    ... except ScenarioError as error:
    ...     print(error)
    this is no scenario: Scenario.name: expected str, found int
    """
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ScenarioError(f"this is no scenario: it is not valid JSON: {error}") from None
    if isinstance(given, dict) and "topologies" not in given:
        given["topologies"] = json.loads(json.dumps([asdict(topology) for topology in TOPOLOGIES]))
    try:
        scenario = cast(Scenario, of_plain(Scenario, given))
    except DocumentError as error:
        raise ScenarioError(f"this is no scenario: {error}") from None
    faults = [*_unknown(Scenario, given, "the scenario"), *_faults(scenario)]
    if faults:
        more = f"; and {len(faults) - _TOLD} more" if len(faults) > _TOLD else ""
        raise ScenarioError(f"invalid scenario: {'; '.join(faults[:_TOLD])}{more}")
    return scenario


def write_scenario(scenario: Scenario) -> str:
    """Write a scenario as JSON, to start a file of one's own from."""
    return json.dumps(asdict(scenario), indent=2)


def _unknown(kind: Any, given: Any, where: str) -> Iterator[str]:
    """Name what no field is called."""
    if get_origin(kind) is UnionType:
        kind = get_args(kind)[0]
    if get_origin(kind) is tuple and isinstance(given, list):
        for number, item in enumerate(given):
            yield from _unknown(get_args(kind)[0], item, f"{where}[{number}]")
    elif is_dataclass(kind) and isinstance(given, Mapping):
        known = {field.name for field in fields(kind)}
        hints = get_type_hints(kind)
        for name, value in given.items():
            if name not in known:
                yield f"{where} has no {name!r}, only {', '.join(sorted(known))}"
            else:
                yield from _unknown(hints[name], value, name)


def _faults(scenario: Scenario) -> Iterator[str]:
    if not scenario.nodes or not scenario.topologies:
        yield "it needs nodes and topologies"
    yield from repeated("node", (node.name for node in scenario.nodes))
    yield from repeated("topology", (topology.name for topology in scenario.topologies))
    for node in scenario.nodes:
        yield from _positive({f"cores of {node.name}": node.cores, f"memory of {node.name}": node.memory})
        yield from _not_negative({f"bandwidth of {node.name}": node.bandwidth})
    for topology in scenario.topologies:
        yield from _topology_faults(topology)
    yield from _times(scenario)


def _topology_faults(topology: Topology) -> Iterator[str]:
    of = f"of topology {topology.name}"
    yield from repeated(f"vertex {of}", (vertex.name for vertex in topology.vertices))
    if not topology.vertices:
        yield f"topology {topology.name} has no vertices"
    for vertex in topology.vertices:
        yield from _positive({f"tasks of {vertex.name} {of}": vertex.tasks})
        figures = {f"cpu of {vertex.name} {of}": vertex.cpu, f"memory of {vertex.name} {of}": vertex.memory}
        yield from _not_negative(figures)
    known = {vertex.name for vertex in topology.vertices}
    for edge in topology.edges:
        for name in (edge.source, edge.target):
            if name not in known:
                yield f"an edge {of} names {name!r}, which is no vertex of it"
        yield from _not_negative({f"rate from {edge.source} to {edge.target} {of}": edge.rate})


def _times(scenario: Scenario) -> Iterator[str]:
    positive: dict[str, float] = {
        "duration": scenario.duration,
        "submit_every": scenario.submit_every,
        "sample_every": scenario.sample_every,
        "fill": scenario.fill,
    }
    positive |= {f"bandwidth of the uplink of {link.rack}": link.bandwidth for link in scenario.links}
    if scenario.load is not None:
        positive["load.every"] = scenario.load.every
        if not 0 <= scenario.load.least <= 1:
            yield f"load.least is {scenario.load.least}, not between 0 and 1"
    if scenario.failures is not None:
        positive |= {
            "failures.between": scenario.failures.between,
            "failures.repair": scenario.failures.repair,
        }
    if scenario.backup is not None:
        positive |= {"backup.interval": scenario.backup.interval, "backup.failures": scenario.backup.failures}
    yield from _positive(positive)
    if scenario.fill > 1:
        yield f"fill is {scenario.fill}: it must be at most 1 (the whole cluster)"
    yield from _not_negative(
        {"job_seconds": scenario.job_seconds, "rebalance_every": scenario.rebalance_every}
    )


def _positive(figures: Mapping[str, float]) -> Iterator[str]:
    return (f"the {what} is {figure}, not over 0" for what, figure in figures.items() if not 0 < figure < inf)


def _not_negative(figures: Mapping[str, float]) -> Iterator[str]:
    return (f"the {what} is {figure}" for what, figure in figures.items() if not 0 <= figure < inf)
