"""The settings of a job in a cluster. Each is declared once, with its type, default, bounds and one sentence.

Options of commands, requests of the REST API, documents of the store and reference tables derive from this
declaration, or hold it as a value. Nothing is checked when a value is made: see
:mod:`penstock.settings_validation` and :func:`settings_fault`. It must stay cheap to import: supervisors,
workers and short commands do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from annotated_types import Ge, Le, MaxLen, MinLen

from penstock.errors import choices, shown
from penstock.setting_values import NAME, name_fault

_CHECKED = {"strict": True, "extra": "forbid"}
"""How pydantic reads these classes: nothing is converted, and unknown settings are refused."""


@dataclass(frozen=True)
class About:
    """What a setting means, in one sentence, and how the command line writes it if not by its name."""

    text: str
    flag: str = ""
    metavar: str = ""
    unit: Literal["", "bytes"] = ""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], dict[str, Any]]) -> Any:
        return {**handler(schema), "description": self.text}


@dataclass(frozen=True)
class Pattern:
    """A pattern that a text has to match, for other programs, and what says why one cannot be."""

    pattern: str
    fault: Callable[[Any], str | None] | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], dict[str, Any]]) -> Any:
        if self.fault is None:
            return {**handler(source), "pattern": self.pattern}
        check = {"type": "no-info", "function": self._checked}
        return {"type": "function-after", "function": check, "schema": handler(source)}

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], dict[str, Any]]) -> Any:
        return {**handler(schema), "pattern": self.pattern}

    def _checked(self, value: Any) -> Any:
        reason = self.fault(value) if self.fault is not None else None
        if reason is not None:
            raise ValueError(reason)
        return value


_Name = Annotated[str, MaxLen(200), Pattern(NAME, name_fault)]
_Text = Annotated[str, MaxLen(4000)]
_STRATEGY = r"^([A-Za-z_][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_]*)?)?$"
_MOST = 10_000
_LEAST_MEMORY, _MOST_MEMORY = 1 << 20, 1 << 50


@dataclass(frozen=True)
class Resources:
    """What a job asks for. Without executors it runs in one process, on one node."""

    __pydantic_config__ = _CHECKED

    cores: Annotated[int, Ge(1), Le(_MOST), About("Cores of the driver's node.")] = 1
    memory: Annotated[
        int,
        Ge(_LEAST_MEMORY),
        Le(_MOST_MEMORY),
        About("Memory of the driver.", metavar="SIZE", unit="bytes"),
    ] = 2 << 30
    executors: Annotated[int, Ge(0), Le(_MOST), About("Number of executors, on any nodes.")] = 0
    executor_cores: Annotated[int, Ge(1), Le(_MOST), About("Cores of each executor.")] = 1
    executor_memory: Annotated[
        int,
        Ge(_LEAST_MEMORY),
        Le(_MOST_MEMORY),
        About("Memory of each executor.", metavar="SIZE", unit="bytes"),
    ] = 1 << 30


@dataclass(frozen=True)
class Placement:
    """Where a job may run, and who decides."""

    __pydantic_config__ = _CHECKED

    nodes: Annotated[
        tuple[_Name, ...],
        MaxLen(1000),
        About("The only nodes that it may use; all if none is given.", flag="--node", metavar="NAME"),
    ] = ()
    labels: Annotated[
        Mapping[_Text, _Text],
        About("Labels that its nodes must have.", flag="--label", metavar="NAME=VALUE"),
    ] = field(default_factory=dict)
    strategy: Annotated[
        str,
        MaxLen(300),
        Pattern(_STRATEGY),
        About("The placement strategy; that of the cluster by default.", metavar="NAME|MODULE:CLASS"),
    ] = ""


@dataclass(frozen=True)
class Replicas:
    """How a job is replicated.

    Making one never raises: :meth:`Job.validate <penstock.graph.job.Job.validate>` reports bad values with
    everything else that is wrong.
    """

    __pydantic_config__ = _CHECKED

    k: Annotated[
        int,
        Ge(0),
        Le(100),
        About("How many nodes may fail without interrupting the job; k + 1 replicas run.", metavar="N"),
    ] = 0
    publisher: Annotated[
        Literal["first", "primary"],
        About("Which replica publishes output: the first to commit a batch, or the primary."),
    ] = "first"
    recovery: Annotated[
        Literal["copy", "next-window"],
        About("How a new replica gets its state: it copies another's, or counts from the next window on."),
    ] = "copy"
    warm_standby: Annotated[
        bool, About("With k=0, keep a started worker with a copy of the state on a second node.")
    ] = False

    @property
    def is_replicated(self) -> bool:
        """Whether there is more than one replica, be it one that waits."""
        return self.k > 0 or self.warm_standby

    @property
    def publishes_by_primary(self) -> bool:
        """Whether the other replicas hold their output as long as the primary publishes its own."""
        return self.publisher == "primary"

    @property
    def skips_state(self) -> bool:
        """Whether a new replica starts without state."""
        return self.recovery == "next-window"

    @classmethod
    def read(cls, given: Any) -> Any:
        """Turn the dict form into one; leave everything else, right or wrong, as it is.

        >>> Replicas.read({"k": 2}).k
        2
        """
        known = {each.name for each in fields(cls)}
        if given is None:
            return cls()
        return cls(**given) if isinstance(given, Mapping) and set(given) <= known else given

    @property
    def sound(self) -> Replicas:
        """These settings without those that cannot be, which are reported elsewhere."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return Replicas(
            **{name: value for name, value in values.items() if value_fault(Replicas, name, value) is None}
        )

    def fault(self) -> tuple[str, str] | None:
        """Return which setting contradicts k, and why; None if none does.

        >>> Replicas(k=1).fault()
        >>> Replicas(publisher="primary").fault()
        ('publisher', "publisher='primary' needs other replicas: set k to 1 or more, or use 'first'")
        """
        if self.k and self.warm_standby:
            return "warm_standby", "warm_standby is for k=0: with k > 0 the other replicas run already"
        if not self.k and self.publishes_by_primary:
            told = "publisher='primary' needs other replicas: set k to 1 or more, or use 'first'"
            return "publisher", told
        return None


@dataclass(frozen=True)
class SparkSettings:
    """What is said to Spark."""

    __pydantic_config__ = _CHECKED

    master: Annotated[
        Annotated[str, MinLen(1), MaxLen(1000)] | None,
        About("The master of your own Spark cluster to run on.", flag="--spark-master", metavar="URL"),
    ] = None
    conf: Annotated[Mapping[_Text, _Text], About("Spark settings.", metavar="NAME=VALUE")] = field(
        default_factory=dict
    )


@dataclass(frozen=True)
class JobSettings:
    """All that a user can set of a job in a cluster, beside its code and parameters."""

    __pydantic_config__ = _CHECKED

    resources: Resources = field(default_factory=Resources)
    placement: Placement = field(default_factory=Placement)
    spark: SparkSettings = field(default_factory=SparkSettings)
    until: Annotated[
        Literal["drained"] | None, About("End the job when all input is processed.", metavar="drained")
    ] = None
    data_location: Annotated[
        Literal["shared", "node"],
        About("Where its data is: on storage that all nodes share, or on one node with a backup on another."),
    ] = "shared"
    replicas: Replicas = field(default_factory=Replicas)


def _replicas_rule(settings: JobSettings) -> str | None:
    contradiction = settings.replicas.fault()
    return contradiction[1] if contradiction else None


def _spark_master_rule(settings: JobSettings) -> str | None:
    if settings.spark.master and settings.resources.executors:
        return (
            "a job with its own Spark master cannot have executors: that master manages them, so set their "
            "number with --conf spark.executor.instances=N"
        )
    return None


def _data_location_rule(settings: JobSettings) -> str | None:
    if settings.data_location != "node":
        return None
    if settings.resources.executors or settings.spark.master:
        return "a job that keeps its data with its node cannot have executors: it runs on that node only"
    if settings.replicas.is_replicated:
        return "replicas need data that all nodes share, and this job keeps its data with its node"
    return None


RULES: tuple[Callable[[JobSettings], str | None], ...] = (
    _replicas_rule,
    _spark_master_rule,
    _data_location_rule,
)
"""What cannot go together, in the order in which it is reported."""


def settings_fault(settings: JobSettings) -> str | None:
    """Return why settings cannot go together; None if they can.

    >>> settings_fault(JobSettings(data_location="node", replicas=Replicas(k=1)))
    'replicas need data that all nodes share, and this job keeps its data with its node'
    """
    return next((reason for rule in RULES if (reason := rule(settings)) is not None), None)


@dataclass(frozen=True)
class Declaration:
    """One setting as it is declared."""

    path: tuple[str, ...]
    kind: Any
    """Its type without annotations,"""
    default: Any
    about: About
    bounds: tuple[int | None, int | None]
    """its least and its largest value, if it is a number."""

    @property
    def name(self) -> str:
        """Its name, without that of the group it is in."""
        return self.path[-1]

    @property
    def flag(self) -> str:
        """The option of commands that gives it."""
        return self.about.flag or f"--{self.name.replace('_', '-')}"

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts that it can be, if they are known."""
        kinds = get_args(self.kind) if get_origin(self.kind) is not Literal else (self.kind,)
        return next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())


@cache
def declarations(kind: type, path: tuple[str, ...] = ()) -> tuple[Declaration, ...]:
    """Return the settings of a class, those of the classes in it included, in their order.

    >>> [(found.name, found.flag, found.bounds) for found in declarations(Replicas)][:2]
    [('k', '--k', (0, 100)), ('publisher', '--publisher', (None, None))]
    """
    return tuple(_declarations(kind, path))


def _declarations(kind: type, path: tuple[str, ...]) -> Iterator[Declaration]:
    annotated, plain = get_type_hints(kind, include_extras=True), get_type_hints(kind)
    for each in fields(kind):
        inner, here = plain[each.name], (*path, each.name)
        if is_dataclass(inner) and isinstance(inner, type):
            yield from declarations(inner, here)
            continue
        extras = getattr(annotated[each.name], "__metadata__", ())
        about = next(one for one in extras if isinstance(one, About))
        least: Any = next((one.ge for one in extras if isinstance(one, Ge)), None)
        most: Any = next((one.le for one in extras if isinstance(one, Le)), None)
        yield Declaration(here, inner, getattr(kind(), each.name), about, (least, most))


def value_fault(kind: type, name: str, value: Any) -> str | None:
    """Return why a number, a switch or one of several texts cannot be the value of a setting.

    It is for jobs that are loaded where pydantic is not.

    >>> value_fault(Replicas, "k", -1), value_fault(Replicas, "k", 1)
    ('k must be a whole number from 0 to 100, not -1', None)
    >>> value_fault(Replicas, "recovery", "never")
    "recovery must be one of 'copy', 'next-window', not 'never'"
    """
    declared = next(each for each in declarations(kind) if each.path == (name,))
    if declared.choices:
        sound = isinstance(value, str) and value in declared.choices
        return None if sound else f"{name} must be one of {choices(declared.choices)}, not {shown(value)}"
    if declared.kind is bool:
        return None if isinstance(value, bool) else f"{name} must be True or False, not {shown(value)}"
    least, most = declared.bounds
    assert least is not None, "a number has bounds"
    assert most is not None, "a number has bounds"
    sound = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    return None if sound else f"{name} must be a whole number from {least} to {most}, not {shown(value)}"
