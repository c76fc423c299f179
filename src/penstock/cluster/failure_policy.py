"""The failure policy of workers: when one is restarted, moved to another node, or given up.

Supervisors and the leader share this policy. A failure is any end of a worker that was not requested: an
error, a signal, a worker that hangs, and a start that creates no process. The table of the policy is in
``docs/explanation/high-availability.md``. Pure: the time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.cluster.worker_documents import Failures, Progress, WorkerFailure

_KEPT = 20
"""How many failures are kept for a worker that is never given up."""
_LONGEST_GROWTH = 2
"""How many times the time allowed for a start is doubled at most."""


@dataclass(frozen=True)
class FailurePolicy:
    """The limits of the policy: numbers of failures, and seconds."""

    window: float = 600.0
    """Failures within this time are counted together. A worker that ran for this long has run well."""
    first_retry: float = 0.5
    """The back-off after the first failure; it is doubled with each one in a row."""
    longest_retry: float = 30.0
    move_after: int = 3
    """After this many failures on one node, another node is tried if one has room."""
    fall_back_after: int = 4
    """After this many failures in a row, an update whose code has not run well is rolled back."""
    alarm_after: int = 5
    """After this many failures, an alarm is raised."""
    give_up_after: int = 8
    """After this many failures in a row, the job has failed."""
    first_chance: float = 600.0
    """How long after its failure a failed job is restarted; doubled each time it fails again."""
    longest_chance: float = 3600.0

    def retry(self, consecutive_failures: int) -> float:
        """Return how long to wait before the next start, given the number of failures in a row.

        >>> [FailurePolicy().retry(n) for n in (0, 1, 2, 3, 7, 8, 5000)]
        [0.5, 0.5, 1.0, 2.0, 30.0, 30.0, 30.0]
        """
        return _doubled(self.first_retry, consecutive_failures - 1, self.longest_retry)

    def second_chance(self, chances: int) -> float:
        """Return how long a failed job waits for its restart, given the number of restarts before.

        >>> [FailurePolicy().second_chance(n) for n in (0, 1, 2, 3, 4)]
        [600.0, 1200.0, 2400.0, 3600.0, 3600.0]
        """
        return _doubled(self.first_chance, chances, self.longest_chance)

    def start_limit(self, seconds: float, consecutive_failures: int) -> float:
        """Return how long a start may take: twice as long after a failure, and four times after two.

        >>> [FailurePolicy().start_limit(120.0, n) for n in (0, 1, 2, 3)]
        [120.0, 240.0, 480.0, 480.0]
        """
        return seconds * (1 << min(max(consecutive_failures, 0), _LONGEST_GROWTH))

    def ran_well(self, progress: Progress, seconds: float) -> bool:
        """Return whether a worker with this progress, after so many seconds, has run well.

        It has committed a batch; or it had no input, and has run for the whole window.
        """
        return has_committed(progress) or seconds >= self.window

    def after_failure(
        self, known: Failures | None, job: str, failure: WorkerFailure, reason: str
    ) -> Failures:
        """Return the failures of a worker after one more."""
        recent = (*_failures_of(known), failure)
        # Failures before a worker ran well are dropped after the window, later ones are not: a start that
        # hangs may take longer than the window.
        last_well = max((index for index, one in enumerate(recent) if one.well), default=0)
        kept = tuple(
            one
            for index, one in enumerate(recent)
            if index >= last_well or self._is_recent(one.at, failure.at)
        )[-_KEPT:]
        return Failures(job, failure.revision, len(kept), reason, failure.node, failure.at, kept)

    def moves(self, failures: Failures, revision: int, now: float) -> bool:
        """Return whether a revision failed so often recently that another node is tried."""
        here = [one for one in _failures_of(failures) if one.revision == revision]
        return len(here) >= self.move_after and self._is_recent(failures.at, now)

    def troubled_nodes(self, failures: Failures) -> frozenset[str]:
        """Return the nodes on which the worker failed so often that it avoids them."""
        nodes = [one.node for one in _failures_of(failures)]
        return frozenset(node for node in nodes if nodes.count(node) >= self.move_after)

    def falls_back(self, failures: Failures) -> bool:
        """Return whether an update whose code has not run well is rolled back."""
        return consecutive_failures(failures) >= self.fall_back_after

    def gives_up(self, failures: Failures) -> bool:
        """Return whether a worker is no longer restarted."""
        return consecutive_failures(failures) >= self.give_up_after

    def alarms(self, failures: Failures, now: float) -> bool:
        """Return whether an alarm about failures is due, until a window after the last one."""
        return failures.count >= self.alarm_after and self._is_recent(failures.at, now)

    def is_due(self, since: float, seconds: float, now: float) -> bool:
        """Return whether so many seconds have passed. A clock that was set back causes no delay."""
        return abs(now - since) >= seconds

    def _is_recent(self, at: float, now: float) -> bool:
        return abs(now - at) <= self.window


def has_committed(progress: Progress) -> bool:
    """Return whether a worker has committed a batch of its own.

    Its first batch may have no records, or may have been committed by its predecessor.

    >>> has_committed(Progress(batches=1)), has_committed(Progress(batches=1, records_in=5))
    (False, True)
    """
    return progress.batches > 1 or (
        progress.batches == 1 and bool(progress.records_in or progress.records_out)
    )


def consecutive_failures(failures: Failures | None) -> int:
    """Return the number of failures since a worker last ran well.

    >>> failed = tuple(WorkerFailure(float(at), "n1", 1, well=at == 2) for at in (1, 2, 3))
    >>> consecutive_failures(Failures("job", 1, 3, "", "n1", 3.0, failed))
    1
    """
    count = 0
    for one in reversed(_failures_of(failures)):
        if one.well:
            break
        count += 1
    return count


def has_run_well(failures: Failures | None) -> bool:
    """Return whether one of the workers that failed had run well before."""
    return any(one.well for one in _failures_of(failures))


def describe_failures(failures: Failures) -> str:
    """Describe in one sentence how often a worker failed, and where and why it did last."""
    times = f"{failures.count} times" if failures.count != 1 else "once"
    return f"its worker has failed {times}, last on {failures.node}: {failures.reason}"


def _failures_of(failures: Failures | None) -> tuple[WorkerFailure, ...]:
    """Return the single failures; documents of older versions have only their number."""
    if failures is None or failures.recent:
        return failures.recent if failures is not None else ()
    return (WorkerFailure(failures.at, failures.node, failures.revision),) * min(failures.count, _KEPT)


def _doubled(first: float, times: int, longest: float) -> float:
    return min(first * (1 << min(max(times, 0), 60)), longest)
