"""Bodies of requests, validated before a master sees them. Nothing is converted: ``"1"`` is not a number."""

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


def _named(value: str) -> str:
    fault = name_fault(value)
    if fault is not None:
        raise ValueError(fault)
    return value


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse what JSON's grammar lets through, and what could not be stored or shown again."""
    _walk(value, 0)
    return value


def _walk(value: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"it is nested more than {_DEEPEST} deep")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it holds a number that is not finite")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half of a surrogate pair") from None
    elif isinstance(value, list):
        for item in value:
            _walk(item, depth + 1)
    elif isinstance(value, dict):
        for name, item in value.items():
            _walk(name, depth + 1)
            _walk(item, depth + 1)


_IS_NAME = StringConstraints(pattern=NAME, max_length=200)
Name = Annotated[str, _IS_NAME, AfterValidator(_named)]
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
    """Unknown fields are refused: most are typing errors."""

    model_config = ConfigDict(strict=True, extra="forbid")


def _part_of(kind: type) -> type[_Request]:
    """Return the request that gives some settings of a class; those that are left out are not in it."""
    hints = get_type_hints(kind, include_extras=True)
    plain = get_type_hints(kind)
    found: dict[str, Any] = {}
    for each in fields(kind):
        inner = plain[each.name]
        hint = (
            _part_of(inner) if is_dataclass(inner) and isinstance(inner, type) else _of_json(hints[each.name])
        )
        found[each.name] = (hint | None, None)
    return create_model(
        f"{kind.__name__}Request", __base__=_Request, __doc__=(kind.__doc__ or "").split("\n\n")[0], **found
    )


def _of_json(hint: Any) -> Any:
    """Return a type as JSON has it: a list in place of a tuple."""
    inner, extras = (get_args(hint)[0], hint.__metadata__) if hasattr(hint, "__metadata__") else (hint, ())
    if get_origin(inner) is tuple:
        inner = list.__class_getitem__(get_args(inner)[0])
    for extra in extras:
        inner = Annotated[inner, extra]
    return inner


if TYPE_CHECKING:
    SettingsRequest = _Request
else:
    SettingsRequest = _part_of(JobSettings)


class SubmissionRequest(_Request):
    """A job, and the bundle with its code, which was put before."""

    bundle: Digest = Field(description="SHA-256 of the bundle.")
    entry: Annotated[str, StringConstraints(pattern=_ENTRY, max_length=1000)] = Field(
        description="FILE[:JOB] inside the bundle."
    )
    structure: Annotated[dict[str, Any], AfterValidator(_plain)] = Field(
        description="job.to_dict(); its name is the job's.",
        json_schema_extra={
            "required": ["name"],
            "properties": {"name": {"type": "string", "pattern": NAME, "maxLength": 200}},
        },
    )
    settings: SettingsRequest | None = Field(
        default=None,
        description="What is given of the job's settings; its code and the defaults say the rest.",
    )
    params: Params = Field(default={}, description="What its code reads as ps.params.")
    env: Env = Field(
        default={}, description="Variables of its environment; null for the value that the node has."
    )
    fresh: bool = Field(
        default=False, description="Start from scratch: delete the state and positions of this name."
    )

    def submission(self) -> Submission:
        """Return it as a master takes it. Raises InvalidRequestError when the structure has no usable
        name."""
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
    """Parameters and variables that change; those that are left out stay."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    params: Params = Field(default={}, description="What its code reads as ps.params, by name.")
    env: Env = Field(
        default={}, description="Variables of its environment; null for the value that the node has."
    )


class MigrateRequest(_Request):
    """Where a job's driver shall go."""

    node: Name = Field(description="The node that the driver moves to.")


class RebalanceRequest(_Request):
    """Whether moves are made or only told."""

    dry_run: bool = Field(default=False, description="Only tell which drivers would move.")


class ScaleRequest(_part_of(Resources)):  # type: ignore[misc]
    """What shall change of a job's resources; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    nodes: Annotated[list[Name], Field(max_length=1000)] | None = Field(
        default=None, description="The only nodes it may use; an empty list allows all."
    )

    def changes(self) -> dict[str, int]:
        """Return the resources that change. Raises InvalidRequestError when nothing at all does."""
        if all(value is None for value in self.model_dump().values()):
            raise InvalidRequestError("nothing to change was given: give executors, cores, memory or nodes")
        changes: dict[str, int] = self.model_dump(exclude_none=True, exclude={"nodes"})
        return changes


class ReplicateRequest(_part_of(Replicas)):  # type: ignore[misc]
    """What shall change of a job's replicas; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    def changes(self) -> dict[str, Any]:
        """Return what changes. Raises InvalidRequestError when nothing does."""
        found: dict[str, Any] = self.model_dump(exclude_none=True)
        if not found:
            known = ", ".join(field.name for field in fields(Replicas))
            raise InvalidRequestError(f"nothing to change was given: give some of {known}")
        return found


class ForgetRequest(_Request):
    """What is removed of a job that is over."""

    data: bool = Field(default=False, description="Remove what the job has done as well.")


class ResubmitRequest(_Request):
    """How a job shall start again."""

    fresh: bool = Field(default=False, description="Forget what the job has done before.")
