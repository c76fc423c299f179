"""Validation of a job: all rules, in the order in which problems are reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from penstock.errors import GraphError, Problem, label
from penstock.graph.rules.replication_rules import recovery, replicas
from penstock.graph.rules.schema_rules import columnar_vertices, schemas
from penstock.graph.rules.setting_rules import limits, settings
from penstock.graph.rules.structure_rules import (
    cycle_limits,
    duplicate_edges,
    foreign_vertices,
    names,
    partitionings,
    reachability,
    sources_and_sinks,
    unconnected_ports,
    unknown_ports,
)
from penstock.graph.rules.vertex_rules import operators, signatures, windows

if TYPE_CHECKING:
    from penstock.graph.job import Job

Rule = Callable[["Job"], Iterator[Problem]]

RULES: tuple[Rule, ...] = (
    names,
    settings,
    limits,
    operators,
    signatures,
    sources_and_sinks,
    replicas,
    foreign_vertices,
    unknown_ports,
    unconnected_ports,
    duplicate_edges,
    partitionings,
    reachability,
    cycle_limits,
    windows,
    recovery,
    schemas,
    columnar_vertices,
)


def find_problems(job: Job) -> list[Problem]:
    """Return all problems of a job."""
    return [problem for rule in RULES for problem in rule(job)]


def validate(job: Job) -> None:
    """Raise one GraphError with all problems of a job, if there are any."""
    problems = find_problems(job)
    if problems:
        raise GraphError(label(job.name), problems)
