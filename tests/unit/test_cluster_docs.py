"""The pages about clusters leave out no node of the store, alarm, state or time that the code has."""

from __future__ import annotations

import itertools
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.routing import Route

from penstock.backups.snapshots.snapshot_store import SnapshotStore
from penstock.bundles.blob_store import BlobStore
from penstock.cluster import (
    alarms,
    assignment_documents,
    job_documents,
    node_documents,
    worker_documents,
    worker_policy,
)
from penstock.cluster.assignment_backoff import ASSIGNED_TOO_OFTEN
from penstock.cluster.cluster_state import Rules
from penstock.cluster.worker_states import (
    DRIVER_RULES,
    EXECUTOR_RULES,
    HANG_RULES,
    Fact,
    P,
    Q,
    Rule,
    WorkerAction,
)
from penstock.cluster.worker_supervision import SupervisionTimeouts
from penstock.coord import store_paths
from penstock.daemon import step_loop, store_link
from penstock.master.master import MasterSettings
from penstock.supervisor.supervisor import SupervisorSettings
from penstock.web.supervisor_api import make_supervisor_api

DOCS = Path(__file__).parents[2] / "docs"


def _page(name: str) -> str:
    return (DOCS / name).read_text()


def test_the_page_on_the_store_has_every_node_and_every_field() -> None:
    page = _page("reference/store.md")
    roots = [value for name, value in vars(store_paths).items() if name.isupper()]
    assert [root for root in roots if f"`{root}" not in page] == []
    kinds = [
        kind
        for module in (assignment_documents, job_documents, node_documents, worker_documents)
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    ]
    assert len(kinds) > 20
    for kind in kinds:
        assert [field.name for field in fields(kind) if f"`{field.name}`" not in page] == [], kind.__name__


def test_every_kind_of_alarm_is_explained() -> None:
    page = _page("how-to/handle-failures.md")
    values = [value for name, value in vars(alarms).items() if name.isupper() and isinstance(value, str)]
    kinds = [value for value in values if re.fullmatch("[a-z]+(-[a-z]+)*", value)]
    assert len(kinds) > 8
    assert [kind for kind in (*kinds, ASSIGNED_TOO_OFTEN) if f"| `{kind}` |" not in page] == []


def _table(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    lines = page[page.index(f"\n{heading}\n") :].splitlines()[2:]
    begin = next(number for number, line in enumerate(lines) if line.startswith("|"))
    rows = list(itertools.takewhile(lambda line: line.startswith("|"), lines[begin:]))[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def _row(rule: Rule[Any]) -> list[str]:
    facts = [*(fact.value for fact in rule.when), *(f"not {fact.value}" for fact in rule.unless)]
    state, leads_to = (f"`{of}`".replace("|", r"\|") for of in (rule.state, rule.leads_to))
    target = "itself" if rule.leads_to == rule.state else leads_to
    return [state, ", ".join(facts), rule.action.value, target, rule.reason]


@pytest.mark.parametrize(
    ("heading", "rules"),
    [
        ("### Drivers", DRIVER_RULES),
        ("### Processes that hang", HANG_RULES),
        ("### Executors", EXECUTOR_RULES),
    ],
)
def test_the_page_on_worker_states_has_the_rules_of_the_code(heading: str, rules: tuple[Rule[Any]]) -> None:
    assert _table(_page("explanation/worker-states.md"), heading) == [_row(rule) for rule in rules]


def test_the_page_on_worker_states_has_every_state_fact_and_action() -> None:
    page = _page("explanation/worker-states.md")
    assert [row[0] for row in _table(page, "## The states")] == [f"`{p.value}`" for p in P]
    assert re.findall(r"^\| `(waiting|running)` \|", page[: page.index("\n## Events")], re.M) == [
        q.value for q in Q
    ]
    assert [row[0] for row in _table(page, "## Actions")] == [action.value for action in WorkerAction]
    assert [row[0] for row in _table(page, "## Facts")] == [fact.value for fact in Fact]


def test_times_are_those_of_the_code() -> None:
    page = _page("explanation/high-availability.md")
    times = dict(re.findall(r"^\| (.+?) \| ([\d., ]+) \| .+ \|$", page, re.M))
    patience, rules = SupervisionTimeouts(), Rules()
    expected = {
        "a node is missed": rules.node_grace,
        "a master looks up": MasterSettings().tick,
        "a supervisor looks": SupervisorSettings().tick,
        "a supervisor reports": SupervisorSettings().report,
        "a worker writes its progress": store_link._PROGRESS_SECONDS,
        "a master or supervisor rests": step_loop.LEAST_PAUSE,
        "a running worker without heartbeat": patience.heartbeat,
        "a worker that starts or stops": patience.start,
        "a start whose process lives": patience.starting,
        "a worker that has run this long": patience.failures.window,
        "a worker whose job was killed": patience.leave,
        "an executor that is drained": patience.drain,
        "a ready worker waits": worker_policy.TAKE_OVER_AFTER,
    }
    for begin, seconds in expected.items():
        [told] = [told for what, told in times.items() if what.startswith(begin)]
        assert told == f"{seconds:g}", begin
    policy = rules.failures
    assert f"{policy.first_retry:g}, {policy.longest_retry:g}" in times.values()
    assert f"{policy.first_chance:g}, {policy.longest_chance:g}" in times.values()
    counts = f"{policy.move_after} until another node is tried, {policy.fall_back_after} until an update goes"
    assert f"{counts} back, {policy.give_up_after} until the job" in page


def test_the_page_on_rest_has_every_route_of_the_supervisors() -> None:
    page = _page("reference/rest-api.md")
    snapshots = SnapshotStore(Path("nowhere"))
    api = make_supervisor_api(cast(BlobStore, None), list, "token", "node", snapshots=snapshots)
    for route in cast(list[Route], api.routes):
        named = route.path.replace("{job}", "JOB").replace("{sha256}", "SHA256")
        for method in sorted((route.methods or set()) - {"HEAD"}):
            assert re.search(rf"`{method} {re.escape(named)}[`?]", page), f"{method} {route.path}"
