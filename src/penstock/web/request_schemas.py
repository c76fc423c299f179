"""Bodies of requests, validated before a master sees them. Nothing is converted: ``"1"`` is not a number."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from penstock.cluster.client_requests import InvalidRequestError, Submission
from penstock.cluster.documents import Resources
from penstock.parameters import LARGEST, LONGEST_NAME, PATTERN
from penstock.setting_values import NAME, name_fault

DIGEST = r"^[0-9a-f]{64}$"
_STRATEGY = r"^([A-Za-z_][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_]*)?)?$"
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
Count = Annotated[int, Field(ge=1, le=10_000)]
Bytes = Annotated[int, Field(ge=1 << 20, le=1 << 50)]
Lost = Annotated[int, Field(ge=0, le=100)]
Recovery = Literal["snapshot", "next-window"]
Output = Literal["active", "standby"]
Standby = Literal["", "warm"]

JobName = Annotated[Name, Path(description="The job's name.")]
NodeName = Annotated[Name, Path(description="The node's name.")]
AlarmId = Annotated[Name, Path(description="The alarm's id, as the list of alarms shows it.")]


class _Request(BaseModel):
    """Unknown fields are refused: most are typing errors."""

    model_config = ConfigDict(strict=True, extra="forbid")


class ResourcesRequest(_Request):
    """What a job asks for. Without executors it runs in one process, on one node."""

    cores: Count = 1
    memory: Bytes = 2 << 30
    executors: Annotated[int, Field(ge=0, le=10_000)] = 0
    executor_cores: Count = 1
    executor_memory: Bytes = 1 << 30


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
    resources: ResourcesRequest = ResourcesRequest()
    nodes: list[Name] = Field(default=[], max_length=1000, description="The only nodes it may use, if any.")
    labels: dict[Text, Text] = Field(default={}, description="Labels that its nodes must have.")
    spark_master: Annotated[str, StringConstraints(min_length=1, max_length=1000)] | None = None
    conf: dict[Text, Text] = Field(default={}, description="Spark settings.")
    params: Params = Field(default={}, description="What its code reads as ps.params.")
    env: Env = Field(
        default={}, description="Variables of its environment; null for the value that the node has."
    )
    until: Literal["drained"] | None = None
    fresh: bool = Field(
        default=False, description="Start from scratch: delete the state and positions of this name."
    )
    keep: Literal["shared", "node"] = Field(default="shared", description="Where its data is.")
    strategy: Annotated[str, StringConstraints(pattern=_STRATEGY, max_length=300)] = Field(
        default="", description="The placement strategy: a name or MODULE:CLASS."
    )
    k: Lost | None = Field(
        default=None,
        description="How many nodes may be lost without a gap; null, also below: as its code says.",
    )
    recovery: Recovery | None = Field(default=None, description="How a new replica gets its state.")
    replication: Output | None = Field(default=None, description="Which replica publishes output.")
    standby: Standby | None = Field(
        default=None, description="warm: with k=0, a second replica is ready and waits."
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
            resources=Resources(**self.resources.model_dump()),
            nodes=tuple(self.nodes),
            labels=self.labels,
            spark_master=self.spark_master,
            conf=self.conf,
            params=self.params,
            env=self.env,
            until=self.until,
            fresh=self.fresh,
            keep=self.keep,
            strategy=self.strategy,
            k=self.k,
            recovery=self.recovery,
            replication=self.replication,
            standby=self.standby,
        )


class ParamsRequest(_Request):
    """Parameters and variables that change; those that are left out stay."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    params: Params = {}
    env: Env = {}


class MigrateRequest(_Request):
    """Where a job's driver shall go."""

    node: Name


class RebalanceRequest(_Request):
    """Whether moves are made or only told."""

    dry_run: bool = False


class ScaleRequest(_Request):
    """What shall change of a job's resources; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    cores: Count | None = None
    memory: Bytes | None = None
    executors: Annotated[int, Field(ge=0, le=10_000)] | None = None
    executor_cores: Count | None = None
    executor_memory: Bytes | None = None
    nodes: Annotated[list[Name], Field(max_length=1000)] | None = Field(
        default=None, description="The only nodes it may use; an empty list allows all."
    )

    def changes(self) -> dict[str, int]:
        """Return the resources that change. Raises InvalidRequestError when nothing at all does."""
        if all(value is None for value in self.model_dump().values()):
            raise InvalidRequestError("nothing to change was given: give executors, cores, memory or nodes")
        return self.model_dump(exclude_none=True, exclude={"nodes"})


class ReplicateRequest(_Request):
    """What shall change of a job's replicas; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    k: Lost | None = None
    recovery: Recovery | None = None
    replication: Output | None = None
    standby: Standby | None = None

    def changes(self) -> dict[str, Any]:
        """Return what changes. Raises InvalidRequestError when nothing does."""
        found = self.model_dump(exclude_none=True)
        if not found:
            raise InvalidRequestError("nothing to change was given: give k, recovery, replication or standby")
        return found


class ForgetRequest(_Request):
    """What is removed of a job that is over."""

    data: bool = Field(default=False, description="Remove what the job has done as well.")


class ResubmitRequest(_Request):
    """How a job shall start again."""

    fresh: bool = Field(default=False, description="Forget what the job has done before.")
