"""Bodies of requests and their validation. Types are strict: ``"1"`` is not a number."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from fastapi import Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, create_model

from penstock.cluster.client_requests import InvalidRequestError, Submission
from penstock.job_settings import JobSettings, Replicas, Resources
from penstock.parameters import LARGEST, LONGEST_NAME, PATTERN
from penstock.setting_values import NAME, name_fault

DIGEST = r"^[0-9a-f]{64}$"
_ENTRY = r"^[^/\\:.\x00-\x1f][^/\\:\x00-\x1f]*(/[^/\\:.\x00-\x1f][^/\\:\x00-\x1f]*)*(:[^/\\:\x00-\x1f]+)?$"
_DEEPEST = 50


def _check_name(value: str) -> str:
    fault = name_fault(value)
    if fault is not None:
        raise ValueError(fault)
    return value


def _check_json(value: dict[str, Any]) -> dict[str, Any]:
    """Reject values that JSON parsers accept but that could not be stored or returned."""
    _check_value(value, 0)
    return value


def _check_value(value: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"it is nested more than {_DEEPEST} levels deep")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it contains a number that is not finite")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("it contains half of a surrogate pair") from None
    elif isinstance(value, list):
        for item in value:
            _check_value(item, depth + 1)
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_value(name, depth + 1)
            _check_value(item, depth + 1)


_IS_NAME = StringConstraints(pattern=NAME, max_length=200)
Name = Annotated[str, _IS_NAME, AfterValidator(_check_name)]
Digest = Annotated[str, StringConstraints(pattern=DIGEST)]
Text = Annotated[str, StringConstraints(max_length=4000)]
Value = Annotated[str, StringConstraints(max_length=LARGEST)]
_ParamName = Annotated[str, StringConstraints(pattern=PATTERN, max_length=LONGEST_NAME)]
Params = dict[_ParamName, Value]
Env = dict[_ParamName, Value | None]

JobName = Annotated[Name, Path(description="The job's name.")]
NodeName = Annotated[Name, Path(description="The node's name.")]
AlarmId = Annotated[Name, Path(description="The alarm's id, as the list of alarms shows it.")]


class _Request(BaseModel):
    """Rejects unknown fields, most of which are typing errors."""

    model_config = ConfigDict(strict=True, extra="forbid")


def _partial(kind: type) -> type[_Request]:
    """Return a request model for the settings of a class, in which every setting is optional."""
    hints = get_type_hints(kind, include_extras=True)
    plain = get_type_hints(kind)
    found: dict[str, Any] = {}
    for each in fields(kind):
        inner = plain[each.name]
        hint = (
            _partial(inner)
            if is_dataclass(inner) and isinstance(inner, type)
            else _json_type(hints[each.name])
        )
        found[each.name] = (hint | None, None)
    return create_model(
        f"{kind.__name__}Request", __base__=_Request, __doc__=(kind.__doc__ or "").split("\n\n")[0], **found
    )


def _json_type(hint: Any) -> Any:
    """Return the JSON form of a type: a list in place of a tuple."""
    inner, extras = (get_args(hint)[0], hint.__metadata__) if hasattr(hint, "__metadata__") else (hint, ())
    if get_origin(inner) is tuple:
        inner = list.__class_getitem__(get_args(inner)[0])
    for extra in extras:
        inner = Annotated[inner, extra]
    return inner


if TYPE_CHECKING:
    SettingsRequest = _Request
else:
    SettingsRequest = _partial(JobSettings)


class SubmissionRequest(_Request):
    """A job, and the bundle with its code, which was stored before."""

    bundle: Digest = Field(description="SHA-256 of the bundle.")
    entry: Annotated[str, StringConstraints(pattern=_ENTRY, max_length=1000)] = Field(
        description="FILE[:JOB] inside the bundle."
    )
    structure: Annotated[dict[str, Any], AfterValidator(_check_json)] = Field(
        description="job.to_dict(); its name is the job's.",
        json_schema_extra={
            "required": ["name"],
            "properties": {"name": {"type": "string", "pattern": NAME, "maxLength": 200}},
        },
    )
    settings: SettingsRequest | None = Field(
        default=None,
        description="Settings of the job; those left out are taken from its code or the defaults.",
    )
    params: Params = Field(default={}, description="Parameters that its code reads from ps.params.")
    env: Env = Field(default={}, description="Environment variables; null takes the value of the node.")
    fresh: bool = Field(
        default=False, description="Start from scratch: delete the state and positions of this name."
    )

    def submission(self) -> Submission:
        """Return the submission. Raises InvalidRequestError when the structure has no valid name."""
        fault = name_fault(self.structure.get("name"))
        if fault is not None:
            raise InvalidRequestError(f"structure.name: {fault}")
        return Submission(
            entry=self.entry,
            structure=self.structure,
            settings=self.settings.model_dump(exclude_none=True) if self.settings else {},
            params=self.params,
            env=self.env,
            fresh=self.fresh,
        )


class ParamsRequest(_Request):
    """Parameters and environment variables to change; those left out keep their values."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    params: Params = Field(default={}, description="What its code reads as ps.params, by name.")
    env: Env = Field(
        default={}, description="Variables of its environment; null for the value that the node has."
    )


class MigrateRequest(_Request):
    """The node to move a job's driver to."""

    node: Name = Field(description="The node that the driver moves to.")


class RebalanceRequest(_Request):
    """Whether drivers are moved, or the moves only returned."""

    dry_run: bool = Field(default=False, description="Only tell which drivers would move.")


class ScaleRequest(_partial(Resources)):  # type: ignore[misc]
    """Resources of a job to change; those left out keep their values."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    nodes: Annotated[list[Name], Field(max_length=1000)] | None = Field(
        default=None, description="The only nodes it may use; an empty list allows all."
    )

    def changes(self) -> dict[str, int]:
        """Return the resources to change. Raises InvalidRequestError when nothing is to change."""
        if all(value is None for value in self.model_dump().values()):
            raise InvalidRequestError("nothing to change was given: give executors, cores, memory or nodes")
        changes: dict[str, int] = self.model_dump(exclude_none=True, exclude={"nodes"})
        return changes


class ReplicateRequest(_partial(Replicas)):  # type: ignore[misc]
    """Replica settings of a job to change; those left out keep their values."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    def changes(self) -> dict[str, Any]:
        """Return the settings to change. Raises InvalidRequestError when nothing is to change."""
        found: dict[str, Any] = self.model_dump(exclude_none=True)
        if not found:
            known = ", ".join(field.name for field in fields(Replicas))
            raise InvalidRequestError(f"nothing to change was given: give some of {known}")
        return found


class ForgetRequest(_Request):
    """What to remove of a job that has ended or failed."""

    data: bool = Field(default=False, description="Delete its positions, state and other data as well.")


class ResubmitRequest(_Request):
    """How to restart a job."""

    fresh: bool = Field(default=False, description="Start from scratch: delete its state and positions.")
