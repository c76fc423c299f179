"""The worker state model: each combination of facts has exactly one rule, and a supervisor acts by it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.cluster import worker_supervision
from penstock.cluster.assignment_documents import Assignment, ExecutorSlot, ReplicaAssignment
from penstock.cluster.worker_documents import Failures, WorkerInfo
from penstock.cluster.worker_states import (
    DRIVER_RULES,
    EXECUTOR_RULES,
    HANG_RULES,
    LIVE_RUNNING,
    LIVE_WAITING,
    STANDBY_RUNNING,
    STANDBY_WAITING,
    VOID_RUNNING,
    VOID_WAITING,
    Fact,
    P,
    Q,
    Rule,
    State,
    WorkerAction,
    rule_of,
)
from penstock.cluster.worker_supervision import (
    Kill,
    ObservedProcess,
    RecordFailure,
    RequestStop,
    Start,
    SupervisorStep,
    state_of,
    supervise,
)
from penstock.replicas.replica_id import ReplicaId
from support.settings import make_assignment, replace

JOB = ReplicaId("job")
NOW = 1000.0
LONG_AGO = NOW - 200
ALL = [State(p, q) for p, q in itertools.product(P, Q)]
STEADY = (VOID_WAITING, LIVE_RUNNING)
TABLES: dict[str, tuple[Sequence[Rule[Any]], Sequence[Any]]] = {
    "DRIVER_RULES": (DRIVER_RULES, ALL),
    "HANG_RULES": (HANG_RULES, [Q.RUNNING]),
    "EXECUTOR_RULES": (EXECUTOR_RULES, list(Q)),
}
STEP_OF: dict[WorkerAction, type[SupervisorStep] | None] = {
    WorkerAction.KEEP: None,
    WorkerAction.NEW: Start,
    WorkerAction.CODE_CHANGED: Start,
    WorkerAction.TASK_CHANGED: Start,
    WorkerAction.GONE: RequestStop,
    WorkerAction.KILL: Kill,
    WorkerAction.RECORD: RecordFailure,
}


def _combinations(rules: Sequence[Rule[Any]]) -> Iterator[frozenset[Fact]]:
    """Every combination of the facts that a table names."""
    named = sorted({fact for rule in rules for fact in rule.when + rule.unless}, key=lambda fact: fact.name)
    for chosen in itertools.product((False, True), repeat=len(named)):
        yield frozenset(fact for fact, so in zip(named, chosen, strict=True) if so)


@pytest.mark.parametrize("table", TABLES)
def test_every_combination_of_facts_has_exactly_one_rule(table: str) -> None:
    rules, states = TABLES[table]
    reached = set()
    for state, facts in itertools.product(states, _combinations(rules)):
        [rule] = [rule for rule in rules if rule.applies(state, facts)]
        assert rule_of(rules, state, facts) is rule
        reached.add(rule)
    assert reached == set(rules), "a rule that no combination reaches"


def test_every_fact_is_one_of_some_rule() -> None:
    assert {
        fact for rules, _ in TABLES.values() for rule in rules for fact in rule.when + rule.unless
    } == set(Fact)


def test_a_combination_without_a_rule_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"no rule for LIVE\|running with \['left'\]"):
        rule_of(DRIVER_RULES[:1], LIVE_RUNNING, frozenset({Fact.LEFT}))


def test_the_steady_states_are_those_in_which_nothing_is_ever_done() -> None:
    acting = {rule.state for rule in DRIVER_RULES if rule.action is not WorkerAction.KEEP}
    assert [state for state in ALL if state not in acting] == list(STEADY)
    for rule in DRIVER_RULES:
        assert (rule.leads_to == rule.state) == (rule.action in (WorkerAction.KEEP, WorkerAction.RECORD))


def test_time_and_actions_lead_every_state_to_a_steady_one() -> None:
    """But for two in which somebody else has to act: the worker that was moved away, and the leader."""
    rests = set()
    for state, facts in itertools.product(ALL, _combinations(DRIVER_RULES)):
        seen = [(state, facts)]
        while seen[-1][0] not in STEADY:
            at, known = seen[-1]
            rule = rule_of(DRIVER_RULES, at, known)
            known |= {Fact.OVERDUE, Fact.RETRY_DUE}  # Time has passed.
            known |= {Fact.RECORDED} if rule.action is WorkerAction.RECORD else set()
            if (rule.leads_to, known) in seen:
                rests.add(rule.reason)
                break
            seen.append((rule.leads_to, known))
    assert rests == {
        "its job was moved: it leaves by itself when its successor is ready",
        "it has failed too often in a row: the leader decides",
    }


def test_the_papers_actions_lead_where_they_lead_there() -> None:
    ours = {(rule.state, rule.action, rule.leads_to) for rule in DRIVER_RULES}
    assert ours >= {
        (VOID_WAITING, WorkerAction.KEEP, VOID_WAITING),
        (LIVE_RUNNING, WorkerAction.KEEP, LIVE_RUNNING),
        (STANDBY_WAITING, WorkerAction.NEW, LIVE_RUNNING),
        (STANDBY_RUNNING, WorkerAction.CODE_CHANGED, LIVE_RUNNING),
        (STANDBY_RUNNING, WorkerAction.TASK_CHANGED, LIVE_RUNNING),
        (LIVE_WAITING, WorkerAction.NEW, LIVE_RUNNING),
        (VOID_RUNNING, WorkerAction.GONE, VOID_WAITING),
    }


@dataclass(frozen=True)
class Case:
    """What a supervisor may find of one job."""

    assignment: Assignment | None
    processes: tuple[ObservedProcess, ...]
    failures: Failures | None = None
    workers: tuple[WorkerInfo, ...] = ()

    def supervise(self) -> list[SupervisorStep]:
        return supervise(
            "n1",
            {JOB: self.assignment} if self.assignment else {},
            {JOB: self.workers},
            {JOB: self.failures} if self.failures else {},
            self.processes,
            NOW,
        )

    def state(self, role: str = "driver") -> State:
        return state_of("n1", self.assignment, role, [one for one in self.processes if one.role == role])

    def after(self, steps: list[SupervisorStep]) -> Case:
        """Return what is so when the steps have had their effect."""
        processes = list(self.processes)
        for step in steps:
            if isinstance(step, Start):
                app = step.driver.app_id if step.driver else ""
                revision = step.assignment.revision
                processes.append(
                    _process(role=step.role, revision=revision, attempt=step.attempt, app_id=app)
                )
                continue
            at = processes.index(step.instance)
            recorded = isinstance(step, RecordFailure)
            processes[at] = replace(step.instance, counted=recorded, alive=False)
        return replace(self, processes=tuple(processes))


def _process(**changes: Any) -> ObservedProcess:
    made = ObservedProcess(
        "job", "driver", 3, 1, 1, alive=True, started=NOW - 300, heartbeat=NOW - 1, phase="running"
    )
    return replace(made, **changes)


def _dead(**changes: Any) -> ObservedProcess:
    return _process(alive=False, **changes)


HERE = make_assignment("job", 1, 3, 1, "a" * 64, "job.py", "n1", 1, 1 << 30, reason="it was {submitted}")


def _driver_cases() -> Iterator[Case]:
    asked = (0.0, NOW - 1, LONG_AGO)
    assignments = (None, replace(HERE, node="n2"), HERE, replace(HERE, membership=ReplicaAssignment(1)))
    before = [
        None,
        _dead(revision=2, died=LONG_AGO),
        *(
            _process(revision=2, generation=generation, asked_to_end=at)
            for generation, at in itertools.product((1, 2), asked)
        ),
    ]
    latest = [
        None,
        *(_process(asked_to_end=at) for at in asked),
        *(
            _dead(attempt=2, outcome=outcome, counted=counted, died=died)
            for outcome, counted, died in itertools.product(
                ("", "stopped", "drained", "refused", "superseded"), (False, True), (NOW, LONG_AGO)
            )
        ),
    ]
    failures = (None, *(Failures("job", 3, count, "it died", "n1", NOW) for count in (1, 8)))
    workers = ((), (WorkerInfo("job", 2, 1, "n2", 1, "running", NOW),))
    for assignment, old, new, failed, known in itertools.product(
        assignments, before, latest, failures, workers
    ):
        processes = tuple(one for one in (old, new) if one is not None)
        if assignment is not None or processes:
            yield Case(assignment, processes, failed, known)


def _hang_cases() -> Iterator[Case]:
    for assignment, phase, heartbeat, pulse, tried in itertools.product(
        (None, replace(HERE, node="n2"), HERE),
        ("", "starting", "ready", "running", "stopping", "stopped"),
        (0.0, NOW - 1, NOW - 29, NOW - 31, NOW - 179, NOW - 181, NOW - 250),
        (0.0, NOW - 1, NOW - 119, NOW - 121),
        (0, 1, 8),
    ):
        failures = Failures("job", 3, tried, "it died", "n1", NOW) if tried else None
        process = _process(phase=phase, heartbeat=heartbeat, pulse=pulse, asked_to_end=NOW)
        yield Case(assignment, (process,), failures)


def _executor_cases() -> Iterator[Case]:
    slot = ExecutorSlot(1, "n1", 1, 1 << 30)
    over = replace(HERE, node="n2")
    assignments = (None, *(replace(over, executors=slots) for slots in ((), (slot,))))
    processes = [
        *(
            _process(role="executor-1", app_id="app-3", asked_to_end=asked, size=size, heartbeat=0.0)
            for asked, size in itertools.product((0.0, NOW - 1, LONG_AGO), (None, (1, 1 << 30), (2, 1 << 30)))
        ),
        *(
            _dead(role="executor-1", app_id=app, died=died, heartbeat=0.0)
            for app, died in itertools.product(("app-2", "app-3"), (NOW, LONG_AGO))
        ),
    ]
    drivers = {
        revision: WorkerInfo("job", revision, 1, "n2", 1, "running", NOW, "spark://d", f"app-{revision}")
        for revision in (2, 3)
    }
    for assignment, process, known in itertools.product(
        assignments, (None, *processes), ((), (2,), (3,), (2, 3))
    ):
        own = (process,) if process is not None else ()
        yield Case(assignment, own, workers=tuple(drivers[revision] for revision in known))
        if process is not None:  # One of the driver that makes way, and maybe its successor.
            earlier = replace(process, app_id="app-2", revision=2)
            yield Case(assignment, (earlier,), workers=tuple(drivers[revision] for revision in known))


CASES = {"DRIVER_RULES": _driver_cases, "HANG_RULES": _hang_cases, "EXECUTOR_RULES": _executor_cases}


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Rule[Any]]]:
    """The states and rules that ``supervise`` looks up, in order."""
    found: list[tuple[Any, Rule[Any]]] = []

    def look_up(rules: Sequence[Rule[Any]], state: Any, facts: frozenset[Fact]) -> Rule[Any]:
        found.append((state, rule_of(rules, state, facts)))
        return found[-1][1]

    monkeypatch.setattr(worker_supervision, "rule_of", look_up)
    return found


def _starts_driver(step: SupervisorStep) -> bool:
    return isinstance(step, Start) and step.role == "driver"


def _expected(case: Case) -> State:
    """Return the state of the driver's place, from the page's words and not from the code."""
    drivers = [one for one in case.processes if one.role == "driver"]
    if case.assignment is None or case.assignment.node != "n1":
        return VOID_RUNNING if any(one.alive for one in drivers) else VOID_WAITING
    latest = [one for one in drivers if one.revision == case.assignment.revision]
    if latest:
        return LIVE_RUNNING if latest[0].alive else LIVE_WAITING
    return STANDBY_RUNNING if any(one.alive for one in drivers) else STANDBY_WAITING


@pytest.mark.parametrize("table", TABLES)
def test_a_supervisor_does_what_the_rules_say_and_nothing_else(
    table: str, looked_up: list[tuple[Any, Rule[Any]]]
) -> None:
    rules, _ = TABLES[table]
    reached = set()
    for case in CASES[table]():
        looked_up.clear()
        steps = case.supervise()
        due = [STEP_OF[rule.action] for _, rule in looked_up]
        assert [type(step) for step in steps] == [kind for kind in due if kind is not None], case
        acting = [rule for _, rule in looked_up if rule.action is not WorkerAction.KEEP]
        for step, rule in zip(steps, acting, strict=True):
            told = f"{rule.state}: {rule.action.value}, " if _starts_driver(step) else ""
            assert step.reason.startswith(told + rule.reason.partition("{")[0])
        reached |= {rule for _, rule in looked_up}
    assert reached >= set(rules), "a rule that no place has"


def test_the_rule_of_a_driver_leads_where_it_says(looked_up: list[tuple[Any, Rule[Any]]]) -> None:
    for case in _driver_cases():
        looked_up.clear()
        steps = case.supervise()
        place = [(state, rule) for state, rule in looked_up if rule in DRIVER_RULES]
        assert {state for state, _ in place} == {_expected(case)} == {case.state()}
        living = [one for one in case.processes if one.alive]
        assert len(place) == (len(living) if case.state() == VOID_RUNNING else 1)
        [p] = {rule.leads_to.p for _, rule in place}
        running = any(rule.leads_to.q is Q.RUNNING for _, rule in place)
        assert case.after(steps).state() == State(p, Q.RUNNING if running else Q.WAITING), case


def test_a_hung_process_dies_whatever_is_assigned() -> None:
    killed = 0
    for case in _hang_cases():
        kills = [step for step in case.supervise() if isinstance(step, Kill)]
        after = case.after(list(kills)).state()
        assert after == State(case.state().p, Q.WAITING if kills else Q.RUNNING)
        killed += len(kills)
    assert killed


@pytest.mark.parametrize("table", TABLES)
def test_a_supervisor_does_nothing_where_no_rule_says_so(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (rules, _) in TABLES.items():
        idle = tuple(replace(rule, action=WorkerAction.KEEP) for rule in rules)
        monkeypatch.setattr(worker_supervision, name, idle)
    for case in CASES[table]():
        assert case.supervise() == []


def test_an_assignment_changes_every_state_at_once() -> None:
    """Events do not wait for a steady state: P is what is assigned now, whatever the state was before."""
    before = set()
    for case in _driver_cases():
        before.add(case.state())
        moved = replace(HERE, node="n2", revision=4)
        for assignment, p in ((None, P.VOID), (moved, P.VOID), (replace(HERE, revision=4), P.STANDBY)):
            changed = replace(case, assignment=assignment).state()
            assert changed == State(p, Q.RUNNING if any(one.alive for one in case.processes) else Q.WAITING)
    assert before == set(ALL)


def test_a_job_that_is_killed_before_it_was_started_never_is() -> None:
    submitted = Case(HERE, ())
    assert submitted.state() == STANDBY_WAITING
    killed = replace(submitted, assignment=None)
    assert killed.state() == VOID_WAITING
    assert killed.supervise() == []
