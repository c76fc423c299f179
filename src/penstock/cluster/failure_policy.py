"""The failure policy of workers: when one is restarted, moved to another node, or given up.

Supervisors and the leader decide by this one policy. A failure is every end of a worker that nobody has asked
for: an error, a signal, a worker that hangs, and a start that does not come to a process. The table of the
policy is in ``docs/explanation/high-availability.md``. Pure: the time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.cluster.worker_documents import Failures, Progress, WorkerFailure

_KEPT = 20
"""So many failures are kept of a worker that is never given up."""
_LONGEST_GROWTH = 2
"""The patience with a start is doubled this many times at the most."""


@dataclass(frozen=True)
class FailurePolicy:
    """Numbers of failures, and seconds."""

    window: float = 600.0
    """Failures within this time count together. A worker that has run for this long has run well."""
    first_retry: float = 0.5
    """The back-off after the first failure; it is doubled with each one in a row."""
    longest_retry: float = 30.0
    move_after: int = 3
    """So many failures on one node, and another node is tried, if one can take the job."""
    fall_back_after: int = 4
    """So many failures in a row of code that has not run well, and the code before an update runs again."""
    alarm_after: int = 5
    """So many failures, and people are told."""
    give_up_after: int = 8
    """So many failures in a row, and the job has failed."""
    first_chance: float = 600.0
    """How long after it has failed a job is tried again; doubled each time it fails again."""
    longest_chance: float = 3600.0

    def retry(self, consecutive_failures: int) -> float:
        """Return how long to wait before the next start, after so many failures in a row.

        >>> [FailurePolicy().retry(n) for n in (0, 1, 2, 3, 7, 8, 5000)]
        [0.5, 0.5, 1.0, 2.0, 30.0, 30.0, 30.0]
        """
        return _doubled(self.first_retry, consecutive_failures - 1, self.longest_retry)

    def second_chance(self, chances: int) -> float:
        """Return how long a job that has failed is left alone, after so many second chances.

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
        """Whether a worker that has run for some seconds has run well.

        It has committed a batch; or it has had nothing to do, and has run for the whole window.
        """
        return has_committed(progress) or seconds >= self.window

    def after_failure(
        self, known: Failures | None, job: str, failure: WorkerFailure, reason: str
    ) -> Failures:
        """Return what is known of a job's failures after one more."""
        recent = (*_failures_of(known), failure)
        # What happened before a worker ran well is forgotten after a while, and what happened since is not:
        # a start that hangs may take longer than the window.
        last_well = max((index for index, one in enumerate(recent) if one.well), default=0)
        kept = tuple(
            one
            for index, one in enumerate(recent)
            if index >= last_well or self._is_recent(one.at, failure.at)
        )[-_KEPT:]
        return Failures(job, failure.revision, len(kept), reason, failure.node, failure.at, kept)

    def moves(self, failures: Failures, revision: int, now: float) -> bool:
        """Whether a worker of a revision has lately failed so often that another node is tried."""
        here = [one for one in _failures_of(failures) if one.revision == revision]
        return len(here) >= self.move_after and self._is_recent(failures.at, now)

    def troubled_nodes(self, failures: Failures) -> frozenset[str]:
        """Return the nodes on which a job's worker has failed so often that others are tried first."""
        nodes = [one.node for one in _failures_of(failures)]
        return frozenset(node for node in nodes if nodes.count(node) >= self.move_after)

    def falls_back(self, failures: Failures) -> bool:
        """Whether code that has not run well is given up for the code before."""
        return consecutive_failures(failures) >= self.fall_back_after

    def gives_up(self, failures: Failures) -> bool:
        """Whether a worker is not started any more."""
        return consecutive_failures(failures) >= self.give_up_after

    def alarms(self, failures: Failures, now: float) -> bool:
        """Whether people are told that a worker keeps failing: until that is a whole window ago."""
        return failures.count >= self.alarm_after and self._is_recent(failures.at, now)

    def is_due(self, since: float, seconds: float, now: float) -> bool:
        """Whether some time has passed. A clock that was set back delays nothing."""
        return abs(now - since) >= seconds

    def _is_recent(self, at: float, now: float) -> bool:
        return abs(now - at) <= self.window


def has_committed(progress: Progress) -> bool:
    """Whether a worker has committed a batch of its own.

    Its first batch may be one without records, or one that its predecessor has committed.

    >>> has_committed(Progress(batches=1)), has_committed(Progress(batches=1, records_in=5))
    (False, True)
    """
    return progress.batches > 1 or (
        progress.batches == 1 and bool(progress.records_in or progress.records_out)
    )


def consecutive_failures(failures: Failures | None) -> int:
    """Return how many failures there were since a worker last ran well.

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
    """Whether one of the workers that failed had run well before."""
    return any(one.well for one in _failures_of(failures))


def describe_failures(failures: Failures) -> str:
    """Return how often a job's worker has failed, where last and why, for people."""
    times = f"{failures.count} times" if failures.count != 1 else "once"
    return f"its worker has failed {times}, last on {failures.node}: {failures.reason}"


def _failures_of(failures: Failures | None) -> tuple[WorkerFailure, ...]:
    """Return failures one by one; documents of older versions have their number only."""
    if failures is None or failures.recent:
        return failures.recent if failures is not None else ()
    return (WorkerFailure(failures.at, failures.node, failures.revision),) * min(failures.count, _KEPT)


def _doubled(first: float, times: int, longest: float) -> float:
    return min(first * (1 << min(max(times, 0), 60)), longest)
