"""The requested replication of a job: the code's settings, the user's overrides, and their checks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from penstock.cluster.client_requests import InvalidRequestError, Submission
from penstock.cluster.flat_settings import flat_replicas
from penstock.cluster.job_documents import JobSpec
from penstock.errors import SettingError
from penstock.job_settings import JobSettings, Replicas, settings_fault
from penstock.settings_validation import changed, validated


def replicas_of_code(structure: Mapping[str, Any]) -> Replicas:
    """Return the replication that a job's code declares, also from a structure of version 1.

    Raises InvalidRequestError.

    >>> replicas_of_code({"name": "words", "replicas": {"k": 1}}).k
    1
    >>> replicas_of_code({"name": "words", "version": 1, "k": 2, "replication": "standby"}).publisher
    'primary'
    """
    given = structure["replicas"] if "replicas" in structure else flat_replicas(structure)
    try:
        return validated(Replicas, given)
    except SettingError as error:
        raise InvalidRequestError(f"the replicas of the job's code: {error}") from error


def requested_settings(submission: Submission) -> JobSettings:
    """Return the settings of a new job: those of the user override those of the code.

    Raises InvalidRequestError.
    """
    return change_settings(JobSettings(replicas=replicas_of_code(submission.structure)), submission.settings)


def change_settings(settings: JobSettings, changes: Mapping[str, Any]) -> JobSettings:
    """Return settings with some of them changed. Raises InvalidRequestError for an invalid value."""
    try:
        return changed(settings, changes)
    except SettingError as error:
        raise InvalidRequestError(str(error)) from error


def replicas_after_update(spec: JobSpec, submission: Submission) -> Replicas:
    """Return how a job is replicated after an update. Raises InvalidRequestError.

    Settings stay, including earlier overrides by the user, except those that the new code changes and those
    that the user gives now.
    """
    old, new = asdict(replicas_of_code(spec.structure)), asdict(replicas_of_code(submission.structure))
    edited = {name: value for name, value in new.items() if value != old[name]}
    given = submission.settings.get("replicas", {})
    edited_settings = change_settings(spec.settings, {"replicas": edited})
    return change_settings(edited_settings, {"replicas": given}).replicas


def with_settings(spec: JobSpec, settings: JobSettings) -> JobSpec:
    """Return a job with these settings. Raises InvalidRequestError if they do not fit the job.

    ``agreed`` is never reset here: a job whose batches were once agreed on keeps its agreement.
    """
    wanted = settings.replicas
    made = replace(spec, settings=settings, agreed=spec.agreed or wanted.is_replicated)
    guarantee = spec.structure.get("guarantee", "exactly-once")
    if made.agreed and guarantee != "exactly-once":
        had = "" if wanted.is_replicated else " and it has had some: start from scratch (--fresh)"
        raise InvalidRequestError(f"replicas are exactly-once, and job {spec.name!r} is {guarantee}{had}")
    fault = settings_fault(settings)
    if fault is not None:
        raise InvalidRequestError(f"job {spec.name!r}: {fault}")
    if wanted.is_replicated:
        for vertex in _vertices(spec.structure):
            reason = _fault(vertex, wanted)
            if reason:
                raise InvalidRequestError(f"job {spec.name!r}, vertex {vertex.get('name')!r}: {reason}")
    return made


def _vertices(structure: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the valid vertices of a structure, which a client may have written by hand."""
    found = structure.get("vertices")
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _fault(vertex: Mapping[str, Any], wanted: Replicas) -> str:
    """Return why a vertex cannot be in a job with these replicas.

    The client validates new code with all rules; this check serves jobs that get replicas without new code.
    """
    if vertex.get("replicable") is False:
        return "several replicas cannot read this source"
    if not wanted.skips_state:
        return ""
    window = vertex.get("window")
    timed = isinstance(window, Mapping) and window.get("type") == "TimeWindow"
    if vertex.get("sync") or (vertex.get("stateful") and not timed):
        return "recovery='next-window' is for state in windows of time, and this keeps other state"
    return ""
