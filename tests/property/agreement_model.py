"""All that replicas of a job can do to each other, as states and steps; what decides is the code that runs.

A step is one access to what is shared: a replica that is between two of them may be paused for as long as
the others need for anything, or die. What it does by itself in between, as running a batch, has no step of
its own. The replicas' decisions are ``core``'s; the shared place is modelled here as ``folder`` makes it, and
the same cases are tried with real files in ``test_agreement_races``.

What a batch reads and what it gives is a number: 0 for the first plan ever made of a batch, more for any
other; an output is all plans up to its own batch. So a wrong state or a second output can be seen, and
states that differ only in who did what are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from penstock.replicas.agreement import agreement_protocol
from penstock.replicas.agreement.agreement_protocol import (
    AgreementStatus,
    BatchAction,
    BatchStatus,
    JoinAction,
)

# The phases of a replica are what it does next. A dead one does nothing.
DEAD, ENTER, CREATE, INSTALL, SEE, PROPOSE, READ_PLAN = range(7)
RAN, COMMIT, READ_COMMIT, KEEP, PUBLISH, MARK, STRAY = range(7, 14)

Values = tuple[int, ...]
Output = tuple[int, Values]
"""The number of the attempt that has made it, and the plans that are in it."""
NOTHING: Output = (-1, ())
ANOTHERS = 1
LACKING = 9
T = TypeVar("T")


class Replica(NamedTuple):
    """What a replica keeps (its ledger, and the state by the plans that are in it), and what it remembers."""

    phase: int
    done: Values = ()
    """The plans of all batches in its ledger: its state."""
    receipt: Output = NOTHING
    """Of its last batch."""
    plan: int = -1
    taken: tuple[Values, Output] = ((), NOTHING)
    """A copy that is being made, or in ``KEEP`` the output that counts."""

    def at(self, phase: int) -> Replica:
        """Return it in another phase, with nothing in its memory."""
        return Replica(phase, self.done, self.receipt)


class Place(NamedTuple):
    """What is shared. Batches below ``floor`` have been forgotten."""

    begin: int
    """-1 before there is a shared place."""
    floor: int
    plans: Values
    """By batch, -1 for none."""
    commits: tuple[Output, ...]
    outs: tuple[bool, ...]
    sink: tuple[frozenset[Output], ...]
    """All that anybody could ever read."""
    planned: Values
    """How many plans there have been of a batch,"""
    committed: Values
    """and how many commits. Nobody knows, but the one who checks."""


@dataclass(frozen=True)
class Rules:
    """What is checked: the decisions, and what the shared place promises."""

    batches: int
    most: int
    """Replicas at a time."""
    margin: int = 1
    """How many of the batches that it has settled a replica leaves when it forgets; it does so before the
    last of them is in its ledger."""
    far: int = 1
    stateless: bool = False
    new: bool = False
    strays: bool = False
    """Whether replicas find, without a reason, that their output differs from the one that counts."""
    before: Callable[..., BatchAction] = agreement_protocol.before_batch
    after: Callable[..., BatchAction] = agreement_protocol.after_batch
    enter: Callable[..., tuple[JoinAction, str]] = agreement_protocol.enter
    leaves_alone: bool = False
    """Whether what a replica keeps is removed though none that stays can go on without it."""
    plan_once: bool = True
    commit_once: bool = True
    renames: bool = True
    """Whether forgetting shows in the name of the folder."""
    checks_floor: bool = True
    """Whether a batch is looked up only after the name of the folder."""
    founds_once: bool = True
    keeps_winner: bool = True
    """Whether the receipts of the output that counts are kept, not the own ones."""
    leaves_publishing: bool = False
    """Whether the output that counts is left to who made it."""
    copies_over: bool = False
    """Whether a replica says that it has what it had until it has what it copies."""
    marks_first: bool = False
    """Whether an output is said to be out before it is."""


def first(rules: Rules, history: int = 0) -> tuple[Place, Replica]:
    """Return how it is before the first replica starts, which has done some batches alone."""
    count = rules.batches
    values = (0,) * history
    outputs = [(0, values[: batch + 1]) for batch in range(history)]
    place = Place(
        begin=-1,
        floor=0,
        plans=(-1,) * count,
        commits=(NOTHING,) * count,
        outs=(False,) * count,
        sink=tuple(frozenset({output}) for output in outputs) + (frozenset(),) * (count - history),
        planned=(1,) * history + (0,) * (count - history),
        committed=(1,) * history + (0,) * (count - history),
    )
    return place, Replica(DEAD, values, outputs[-1] if outputs else NOTHING)


def shared(place: Place) -> AgreementStatus | None:
    """Return what a replica sees that comes in."""
    if place.begin < 0:
        return None
    plans = [batch for batch, plan in enumerate(place.plans) if plan >= 0]
    commits = [batch for batch, commit in enumerate(place.commits) if commit != NOTHING]
    return AgreementStatus(
        place.begin, place.floor, max(plans, default=place.floor - 1), max(commits, default=place.floor - 1)
    )


def own_step(
    rules: Rules, place: Place, me: Replica, others: Sequence[Replica], number: int
) -> tuple[Place, Replica] | None:
    """Return the shared place and a replica after its next access to it; None when it has to wait.

    The ``others`` count only for one that comes in.
    """
    if me.phase in (ENTER, STRAY):
        found = _enter(rules, place, me, others, number)
        return None if found is None else (place, found)
    return _STEPS[me.phase](rules, place, me)


def _enter(rules: Rules, place: Place, me: Replica, others: Sequence[Replica], number: int) -> Replica | None:
    found = shared(place)
    # One that has gone stray says so before it looks at the others: so no two copy each other.
    lasts = {str(other): -1 if it.phase == STRAY else len(it.done) - 1 for other, it in enumerate(others)}
    entrance, whom = rules.enter(
        number,
        len(me.done) - 1,
        found,
        lasts,
        stray=me.phase == STRAY,
        stateless=rules.stateless,
        new=rules.new,
        far=rules.far,
    )
    if entrance is JoinAction.WAIT:
        return None
    if entrance is JoinAction.CREATE:
        return me.at(CREATE)
    if entrance is JoinAction.COPY:
        # What it has goes first: if it dies over the copy, it has nothing.
        gone = me if rules.copies_over else Replica(INSTALL)
        return gone._replace(phase=INSTALL, taken=(others[int(whom)].done, others[int(whom)].receipt))
    if entrance is JoinAction.SKIP:
        assert found is not None
        commit = place.commits[found.done]
        skipped = commit[1][len(me.done) :]
        # Where there is a state, it lacks what was skipped.
        state = commit[1] if rules.stateless else me.done + (LACKING,) * len(skipped)
        return Replica(INSTALL, taken=(state, commit))
    return me.at(PUBLISH if me.done else SEE)


def _found(rules: Rules, place: Place, me: Replica) -> tuple[Place, Replica]:
    if place.begin < 0 or not rules.founds_once:
        place = _forget(rules, place._replace(begin=len(me.done)), len(me.done))
    return place, me.at(ENTER)


def _install(_: Rules, place: Place, me: Replica) -> tuple[Place, Replica]:
    return place, Replica(ENTER, *me.taken)


def _see(rules: Rules, place: Place, me: Replica) -> tuple[Place, Replica] | None:
    batch = len(me.done)
    if batch == rules.batches:
        return None
    move = rules.before(batch, _seen(rules, place, batch), work=True)
    phases = {BatchAction.FOLLOW: READ_PLAN, BatchAction.PROPOSE: PROPOSE, BatchAction.REBUILD: ENTER}
    return (place, me.at(phases[move])) if move in phases else None


def _propose(rules: Rules, place: Place, me: Replica) -> tuple[Place, Replica]:
    batch = len(me.done)
    if _is_history(rules, place, batch):
        return place, me.at(ENTER)
    if place.plans[batch] < 0 or not rules.plan_once:
        made = place.planned[batch]
        place = place._replace(
            plans=_put(place.plans, batch, made), planned=_put(place.planned, batch, min(made + 1, 2))
        )
    return place, me.at(READ_PLAN)


def _read_plan(rules: Rules, place: Place, me: Replica) -> tuple[Place, Replica]:
    batch = len(me.done)
    if _is_history(rules, place, batch):
        return place, me.at(ENTER)
    plan = place.plans[batch]
    return place, (me.at(RAN)._replace(plan=plan) if plan >= 0 else me.at(SEE))


def _ran(rules: Rules, place: Place, me: Replica) -> tuple[Place, Replica] | None:
    move = rules.after(len(me.done), _seen(rules, place, len(me.done)))
    if move is BatchAction.REBUILD:
        return place, me.at(ENTER)
    if move is BatchAction.ACCEPT and rules.leaves_publishing:
        return place, me._replace(phase=READ_COMMIT, taken=((ANOTHERS,), NOTHING))
    phases = {BatchAction.COMMIT: COMMIT, BatchAction.ACCEPT: READ_COMMIT}
    return (place, me._replace(phase=phases[move])) if move in phases else None


def _commit(rules: Rules, place: Place, me: Replica) -> tuple[Place, Replica]:
    batch = len(me.done)
    if _is_history(rules, place, batch):
        return place, me.at(ENTER)
    if place.commits[batch] == NOTHING or not rules.commit_once:
        made = place.committed[batch]
        place = place._replace(
            commits=_put(place.commits, batch, (made, (*me.done, me.plan))),
            committed=_put(place.committed, batch, min(made + 1, 2)),
        )
    return place, me._replace(phase=READ_COMMIT)


def _read_commit(rules: Rules, place: Place, me: Replica) -> tuple[Place, Replica]:
    batch = len(me.done)
    if _is_history(rules, place, batch):
        return place, me.at(ENTER)
    winner = place.commits[batch]
    if winner == NOTHING:
        return place, me._replace(phase=RAN)
    if not rules.keeps_winner and place.sink[batch]:
        winner = (winner[0] + 1, (*me.done, me.plan))
    after = KEEP if me.taken[0] == (ANOTHERS,) else PUBLISH
    return place, me._replace(phase=after, taken=((), winner))


def _publish(rules: Rules, place: Place, me: Replica) -> tuple[Place, Replica]:
    batch, output = _at_hand(me)
    if batch < place.floor or place.outs[batch]:
        return place, _published(me)
    if rules.marks_first:
        place = place._replace(outs=_put(place.outs, batch, True))
    else:
        place = place._replace(sink=_put(place.sink, batch, place.sink[batch] | {output}))
    return place, me._replace(phase=MARK)


def _mark(rules: Rules, place: Place, me: Replica) -> tuple[Place, Replica]:
    batch, output = _at_hand(me)
    if rules.marks_first:
        return place._replace(sink=_put(place.sink, batch, place.sink[batch] | {output})), _published(me)
    if batch >= place.floor:
        place = place._replace(outs=_put(place.outs, batch, True))
    return place, _published(me)


def _at_hand(me: Replica) -> tuple[int, Output]:
    """Return what is published: the batch that was run, or the last one of a replica that has come in."""
    return (len(me.done), me.taken[1]) if me.plan >= 0 else (len(me.done) - 1, me.receipt)


def _published(me: Replica) -> Replica:
    return me._replace(phase=KEEP) if me.plan >= 0 else me.at(SEE)


def _keep(_: Rules, place: Place, me: Replica) -> tuple[Place, Replica]:
    return place, Replica(SEE, (*me.done, me.plan), me.taken[1])


def floors(rules: Rules, place: Place, me: Replica) -> Iterator[Place]:
    """Yield the shared place as a replica can leave it that forgets."""
    if me.phase == KEEP:
        for floor in range(place.floor + 1, len(me.done) + 2 - rules.margin):
            yield _forget(rules, place, floor)


def strays(rules: Rules, me: Replica) -> bool:
    """Whether a replica may find now that its output is another than the one that counts."""
    return rules.strays and me.phase == READ_COMMIT


def may_leave(rules: Rules, place: Place, me: Replica, others: Sequence[Replica]) -> bool:
    """Whether a replica that does not run any more may be removed, with what it keeps.

    That is done by hand, with the rule that is documented: one that stays must be able to go on without it.
    One that copies another has nothing until it is done, for it gives up what it has.
    """
    known = shared(place)
    able = known is not None and any(
        agreement_protocol.can_go_on(len(other.done) - 1, known) for other in others
    )
    return bool(others) and (not me.done or able or rules.leaves_alone)


def wrong_place(place: Place) -> str:
    """Return what must never be; nothing when all is right."""
    right = (0,) * len(place.plans)
    for batch, outputs in enumerate(place.sink):
        if len(outputs) > 1:
            return f"batch {batch} has two outputs"
        if outputs and outputs != {(0, right[: batch + 1])}:
            return f"batch {batch} has an output that is not the run of the plans in order"
        if batch and (outputs or place.committed[batch]) and not place.sink[batch - 1]:
            return f"batch {batch - 1} has been skipped"
        if batch < place.floor and not outputs:
            return f"batch {batch} is forgotten and not out"
        if place.outs[batch] and not outputs:
            return f"batch {batch} is marked as out and is not"
        if place.planned[batch] > 1 or place.committed[batch] > 1:
            return f"batch {batch} has been agreed on twice"
    return ""


def wrong_replica(replica: Replica) -> str:
    """Return what must never be; nothing when all is right."""
    if any(replica.done):
        return "the state of a replica is not the run of the plans in order"
    return ""


def finished(place: Place) -> bool:
    """Whether the output of all batches is out."""
    return all(place.sink)


def _seen(rules: Rules, place: Place, batch: int) -> BatchStatus:
    if _is_history(rules, place, batch):
        return BatchStatus(place.floor)
    floor = place.floor if rules.checks_floor else 0
    return BatchStatus(floor, place.plans[batch] >= 0, place.commits[batch] != NOTHING)


def _is_history(rules: Rules, place: Place, batch: int) -> bool:
    return rules.checks_floor and batch < place.floor


def _forget(rules: Rules, place: Place, floor: int) -> Place:
    gone = range(floor)
    return place._replace(
        floor=floor if rules.renames else place.floor,
        plans=tuple(-1 if batch in gone else plan for batch, plan in enumerate(place.plans)),
        commits=tuple(NOTHING if batch in gone else commit for batch, commit in enumerate(place.commits)),
        outs=tuple(batch not in gone and out for batch, out in enumerate(place.outs)),
    )


def _put(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    return (*items[:index], item, *items[index + 1 :])


_STEPS: Mapping[int, Callable[[Rules, Place, Replica], tuple[Place, Replica] | None]] = {
    DEAD: lambda _rules, _place, _me: None,
    CREATE: _found,
    INSTALL: _install,
    SEE: _see,
    PROPOSE: _propose,
    READ_PLAN: _read_plan,
    RAN: _ran,
    COMMIT: _commit,
    READ_COMMIT: _read_commit,
    KEEP: _keep,
    PUBLISH: _publish,
    MARK: _mark,
}
