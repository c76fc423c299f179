"""Validation: every rule, in the order in which problems are reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from penstock.errors import GraphError, Problem
from penstock.graph.rules.cycles import cycle_limits
from penstock.graph.rules.edges import duplicate_edges, foreign_vertices, partitionings
from penstock.graph.rules.ends import sources_and_sinks
from penstock.graph.rules.kinds import columnar_vertices
from penstock.graph.rules.limits import limits
from penstock.graph.rules.names import names
from penstock.graph.rules.operators import operators
from penstock.graph.rules.ports import unconnected_ports, unknown_ports
from penstock.graph.rules.reach import reachability
from penstock.graph.rules.recovery import recovery
from penstock.graph.rules.replicas import replicas
from penstock.graph.rules.schemas import schemas
from penstock.graph.rules.settings import settings
from penstock.graph.rules.signatures import signatures
from penstock.graph.rules.windows import windows
from penstock.graph.wording import label

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
    """Return everything that is wrong with a job."""
    return [problem for rule in RULES for problem in rule(job)]


def validate(job: Job) -> None:
    """Raise one error with everything that is wrong with a job, if anything is."""
    problems = find_problems(job)
    if problems:
        raise GraphError(label(job.name), problems)
