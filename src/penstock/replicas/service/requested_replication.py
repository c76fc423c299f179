"""The requested replication of a job: the code's settings, the user's overrides, and their checks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from penstock.cluster.client_requests import InvalidRequestError, Submission
from penstock.cluster.documents import JobSpec
from penstock.replicas.replication_settings import (
    REPLICATION_CHOICES,
    ReplicationSettings,
    is_valid_choice,
    is_valid_k,
)


def replication_in_structure(structure: Mapping[str, Any]) -> ReplicationSettings:
    """Return what a job's code says; structures of older versions say less. Raises InvalidRequestError.

    >>> replication_in_structure({"name": "words", "k": 1})
    ReplicationSettings(k=1, recovery='snapshot', replication='active', standby='')
    """
    named = {
        field.name: structure[field.name] for field in fields(ReplicationSettings) if field.name in structure
    }
    return apply_changes(ReplicationSettings(), named)


def replication_in_spec(spec: JobSpec) -> ReplicationSettings:
    """Return how a job is replicated now."""
    return ReplicationSettings(spec.k, spec.recovery, spec.replication, spec.standby)


def apply_changes(before: ReplicationSettings, changes: Mapping[str, Any]) -> ReplicationSettings:
    """Return a replication with some of it changed. Raises InvalidRequestError for what is no such value."""
    for name, value in changes.items():
        if name == "k":
            if not is_valid_k(value):
                raise InvalidRequestError(f"k is a whole number from 0 on, not {value!r}")
        elif name not in REPLICATION_CHOICES:
            raise InvalidRequestError(
                f"there is no {name} of replicas: it is k, recovery, replication or standby"
            )
        elif not is_valid_choice(name, value):
            known = " or ".join(repr(choice) for choice in REPLICATION_CHOICES[name])
            raise InvalidRequestError(f"{name} is {known}, not {value!r}")
    return replace(before, **changes)


def requested_changes(submission: Submission) -> dict[str, Any]:
    """Return what the user says beside the code, by name."""
    given = {field.name: getattr(submission, field.name) for field in fields(ReplicationSettings)}
    return {name: value for name, value in given.items() if value is not None}


def replication_after_update(spec: JobSpec, submission: Submission) -> ReplicationSettings:
    """Return how a job is replicated after an update. Raises InvalidRequestError.

    All stays as it is, also what the user has once said over the code; but what the new code says otherwise
    than the code before is meant, and so is what the user says now.
    """
    old, new = (
        asdict(replication_in_structure(spec.structure)),
        asdict(replication_in_structure(submission.structure)),
    )
    edited = {name: value for name, value in new.items() if value != old[name]}
    return apply_changes(replication_in_spec(spec), {**edited, **requested_changes(submission)})


def with_replication(spec: JobSpec, wanted: ReplicationSettings) -> JobSpec:
    """Return a job as it is wanted with these replicas. Raises InvalidRequestError when that cannot be.

    A job whose batches were once agreed on goes on so: ``agreed`` is never taken back here.
    """
    made = replace(spec, **asdict(wanted), agreed=spec.agreed or wanted.has_replicas)
    guarantee = spec.structure.get("guarantee", "exactly-once")
    if made.agreed and guarantee != "exactly-once":
        had = "" if wanted.has_replicas else " and it has had some: start from scratch (--fresh)"
        raise InvalidRequestError(f"replicas are exactly-once, and job {spec.name!r} is {guarantee}{had}")
    if wanted.has_replicas and spec.keep == "node":
        raise InvalidRequestError(
            f"replicas need data that all nodes share, and job {spec.name!r} keeps its data with its node"
        )
    contradiction = wanted.contradiction()
    if contradiction is not None:
        _, reason = contradiction
        raise InvalidRequestError(reason)
    if wanted.has_replicas:
        for vertex in _vertices(spec.structure):
            fault = _fault(vertex, wanted)
            if fault:
                raise InvalidRequestError(f"job {spec.name!r}, vertex {vertex.get('name')!r}: {fault}")
    return made


def _vertices(structure: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what can be read of a structure's vertices: who sends it may have made it up."""
    found = structure.get("vertices")
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _fault(vertex: Mapping[str, Any], wanted: ReplicationSettings) -> str:
    """Return why a vertex cannot be in a job with these replicas.

    Who submits code has it validated with all rules; this is for jobs that get replicas without new code.
    """
    if vertex.get("replicable") is False:
        return "several replicas cannot read this source"
    if not wanted.next_window:
        return ""
    window = vertex.get("window")
    timed = isinstance(window, Mapping) and window.get("type") == "TimeWindow"
    if vertex.get("sync") or (vertex.get("stateful") and not timed):
        return "recovery='next-window' is for state in windows of time, and this keeps other state"
    return ""
