"""The errors of snapshots, with the facts that callers need to handle them.

Such as the missing objects, or the offset from which to resume.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.errors import PenstockError


class SnapshotError(PenstockError):
    """A snapshot cannot be taken, stored or restored. The base class of all such errors."""


class ManifestError(SnapshotError):
    """A manifest is not valid."""


class SnapshotNameError(SnapshotError):
    """The name of a job, or of an object (a SHA-256), is not valid."""


class SnapshotMissingError(SnapshotError):
    """An object or snapshot does not exist."""


class SnapshotSizeError(SnapshotError):
    """An object is larger than allowed."""


class SnapshotDamagedError(SnapshotError):
    """Stored or received content does not match its digest."""


class SnapshotFullError(SnapshotError):
    """The disk is full. Stored snapshots are not affected; retry when there is space."""


class SnapshotStaleError(SnapshotError):
    """A later worker of the job has sent a snapshot, so those of earlier workers are refused."""


class SnapshotOffsetError(SnapshotError):
    """An upload does not continue at the end of the stored data, which has ``held`` bytes."""

    def __init__(self, message: str, held: int) -> None:
        self.held = held
        super().__init__(message)


class SnapshotIncompleteError(SnapshotError):
    """Objects of a snapshot are missing or incomplete: ``missing`` lists those to send."""

    def __init__(self, job: str, missing: Iterable[str]) -> None:
        self.job = job
        self.missing = tuple(missing)
        super().__init__(
            f"the snapshot of {job} lacks {len(self.missing)} of its objects: {', '.join(self.missing[:3])}"
        )


class NoCompleteSnapshotError(SnapshotError):
    """A job's data cannot be restored; ``reasons`` has the reason for each snapshot."""

    def __init__(self, job: str, place: str, reasons: Sequence[str]) -> None:
        self.job = job
        self.reasons = tuple(reasons)
        listed = "".join(f"\n  - {reason}" for reason in self.reasons) or " there is none"
        super().__init__(
            f"{place} has no complete snapshot of job {job!r}:{listed}\nNothing was changed. Start the node"
            " that has the job's data again, or start the job from scratch (--fresh)"
        )


class TransferStoppedError(SnapshotError):
    """The caller has stopped a transfer. A later transfer resumes it."""
