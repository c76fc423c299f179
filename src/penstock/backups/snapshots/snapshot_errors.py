"""The errors of snapshots, with what the caller needs to react.

Which objects are missing, from which offset to resume, whether to retry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.errors import PenstockError


class SnapshotError(PenstockError):
    """A snapshot cannot be taken, kept or restored. The root of all such errors."""


class ManifestError(SnapshotError):
    """What should be a manifest is none."""


class SnapshotNameError(SnapshotError):
    """That is not the name of a job, or not that of an object, which is a SHA-256."""


class SnapshotMissingError(SnapshotError):
    """There is no such object or snapshot."""


class SnapshotSizeError(SnapshotError):
    """Something is larger than allowed."""


class SnapshotDamagedError(SnapshotError):
    """What is there, or what came, is not what its digest says."""


class SnapshotFullError(SnapshotError):
    """The disk has no room. Nothing that was kept is lost; it can be tried again when there is room."""


class SnapshotStaleError(SnapshotError):
    """A later worker of the job has sent a snapshot: one of an earlier worker is not taken any more."""


class SnapshotOffsetError(SnapshotError):
    """What was sent does not follow what is there; ``held`` bytes are."""

    def __init__(self, message: str, held: int) -> None:
        self.held = held
        super().__init__(message)


class SnapshotIncompleteError(SnapshotError):
    """A snapshot names objects that are not there, or not whole: send those that ``missing`` lists."""

    def __init__(self, job: str, missing: Iterable[str]) -> None:
        self.job = job
        self.missing = tuple(missing)
        super().__init__(
            f"the snapshot of {job} lacks {len(self.missing)} of its objects: {', '.join(self.missing[:3])}"
        )


class NoWholeSnapshotError(SnapshotError):
    """A job's data cannot be restored; ``reasons`` says of each snapshot why not."""

    def __init__(self, job: str, place: str, reasons: Sequence[str]) -> None:
        self.job = job
        self.reasons = tuple(reasons)
        told = "".join(f"\n  - {reason}" for reason in self.reasons) or " there is none"
        super().__init__(
            f"{place} has no whole snapshot of job {job!r}:{told}\nNothing was changed. Bring the node that"
            " has the job's data back, or start the job from scratch (--fresh)"
        )


class TransferStoppedError(SnapshotError):
    """The caller has stopped a transfer. A later one continues where it ended."""
