"""What a worker has to restore before it runs its job."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.backups.snapshots.snapshot_client import SnapshotClient
from penstock.backups.snapshots.snapshot_errors import NoCompleteSnapshotError
from penstock.backups.snapshots.snapshot_restore import restored
from penstock.backups.snapshots.snapshot_store import Listed
from penstock.backups.worker import job_home as restoration_module
from penstock.backups.worker.job_home import UNRESERVED_RATE, HomeRestore, restore_source_for
from penstock.cluster.assignment_documents import Assignment, BackupStatus, RestoreSource
from penstock.cluster.worker_policy import WorkerView
from penstock.daemon.store_link import StoreLink
from penstock.daemon.worker_folder import WorkerConfig
from penstock.node_client import NodeRequestError
from penstock.schedule.backup_location.backup_problem import UNKNOWN_BANDWIDTH
from penstock.schedule.backup_location.location_controller import MIN_LINK_SHARE
from support.settings import make_assignment, replace
from support.waiting import eventually

ASSIGNMENT = make_assignment("job", 1, 5, 1, "b", "job.py", "n1", 1, 1, data_location="node")
KEPT = BackupStatus("job", "n1", 4, 1, "n2", "http://n2", 9, 40)


def _instance(folder: Path, assignment: Assignment = ASSIGNMENT) -> WorkerConfig:
    home = folder / "kept" / "job" / "home"
    return WorkerConfig(
        "job", "n1", "h", 5, 1, "", "", "", str(home), "", assignment, str(folder / "snapshots")
    )


def _wanted(
    kept: BackupStatus | None, assignment: Assignment = ASSIGNMENT, *, has_data: bool = False
) -> RestoreSource | None:
    return restore_source_for(assignment, "n1", kept, has_data=has_data)


def test_a_job_that_is_new_or_has_its_data_restores_nothing() -> None:
    assert _wanted(None) is None
    assert _wanted(KEPT, has_data=True) is None


def test_a_job_whose_node_was_lost_restores_what_its_assignment_says() -> None:
    restore = RestoreSource("n3", "http://n3", 4)
    assigned = replace(ASSIGNMENT, restore=restore)
    assert _wanted(replace(KEPT, origin="n9", store="n3", store_url="http://n3"), assigned) == restore
    assert _wanted(None, assigned) == restore


def test_a_copy_that_has_moved_since_is_restored_from_where_it_is() -> None:
    assigned = replace(ASSIGNMENT, restore=RestoreSource("n3", "http://n3", 4))
    moved = BackupStatus("job", "n9", 4, 1, "n5", "http://n5", 12, 44)
    assert _wanted(moved, assigned) == RestoreSource("n5", "http://n5", 4)
    slowly = replace(ASSIGNMENT, restore=RestoreSource("n3", "http://n3", 4, rate=5e6))
    assert _wanted(moved, slowly) == RestoreSource("n5", "http://n5", 4, rate=5e6)
    assert _wanted(replace(moved, store="", store_url=""), assigned) == assigned.restore


def test_a_node_that_has_lost_the_data_itself_restores_the_copy_of_it() -> None:
    assert _wanted(KEPT) == RestoreSource("n2", "http://n2", 4)
    assert _wanted(replace(KEPT, store="")) is None
    assert _wanted(replace(KEPT, origin="n9")) is None


def test_what_is_to_be_forgotten_is_not_restored_and_what_came_after_is() -> None:
    assert _wanted(KEPT, replace(ASSIGNMENT, fresh=True)) is None
    assert _wanted(KEPT, replace(ASSIGNMENT, fresh=True, forget=4)) is None
    since = _wanted(KEPT, replace(ASSIGNMENT, fresh=True, forget=3))
    assert since == RestoreSource("n2", "http://n2", 4)


def test_what_was_restored_and_worked_on_since_is_not_restored_again() -> None:
    assigned = replace(ASSIGNMENT, restore=RestoreSource("n3", "http://n3", 3))
    assert _wanted(KEPT, assigned) == RestoreSource("n2", "http://n2", 4), "it was lost again"
    assert _wanted(KEPT, assigned, has_data=True) is None


class FakeLink(StoreLink):
    """What the store says, without a store."""

    def __init__(self, *, known: bool = True, kept: BackupStatus | None = None) -> None:
        self.view = WorkerView(ASSIGNMENT, known=known)
        self.kept = kept


def test_what_cannot_be_restored_is_told_and_nothing_is_made(tmp_path: Path) -> None:
    instance = _instance(tmp_path, replace(ASSIGNMENT, restore=RestoreSource("n1", "http://n1", 4)))
    restoration = HomeRestore(instance, "token", FakeLink())
    restoration.start()
    with pytest.raises(NoCompleteSnapshotError, match="no complete snapshot of job 'job'"):
        eventually("the end of the restoration", lambda: restoration.wait(0.05))
    assert not Path(instance.storage).exists()
    assert restored(Path(instance.storage)) is None


def test_a_job_without_data_waits_for_the_store_and_one_with_data_does_not(tmp_path: Path) -> None:
    instance = _instance(tmp_path)
    link = FakeLink(known=False)
    restoration = HomeRestore(instance, "token", link)
    restoration.start()
    assert not restoration.wait(0.2)
    link.view = WorkerView(ASSIGNMENT)
    eventually("the end of the restoration", lambda: restoration.wait(0.05))
    (Path(instance.storage) / "cluster-jobs" / "job").mkdir(parents=True)
    restoration = HomeRestore(instance, "token", FakeLink(known=False))
    restoration.start()
    eventually("the end of the restoration", lambda: restoration.wait(0.05))


def test_who_is_told_what_to_restore_does_not_wait_for_the_store_for_ever(tmp_path: Path) -> None:
    instance = _instance(tmp_path, replace(ASSIGNMENT, restore=RestoreSource("n1", "http://n1", 4)))
    restoration = HomeRestore(instance, "token", FakeLink(known=False), store_timeout=0.1)
    restoration.start()
    with pytest.raises(NoCompleteSnapshotError):
        eventually("the end of the restoration", lambda: restoration.wait(0.05))


def test_a_store_that_does_not_answer_is_asked_until_nobody_wants_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[RestoreSource] = []

    def away(self: HomeRestore, wanted: RestoreSource) -> None:
        asked.append(wanted)
        raise NodeRequestError("away", again=True)

    monkeypatch.setattr(HomeRestore, "_restore", away)
    monkeypatch.setattr(restoration_module, "_FIRST_RETRY", 0.01)
    restore = RestoreSource("n2", "http://n2", 4)
    restoration = HomeRestore(_instance(tmp_path, replace(ASSIGNMENT, restore=restore)), "token", FakeLink())
    restoration.start()
    while len(asked) < 3:
        assert not restoration.wait(0.01)
    assert set(asked) == {restore}
    restoration.cancel()


@pytest.mark.parametrize(("set_aside", "limit"), [(5e6, 5e6), (0.0, UNRESERVED_RATE)])
def test_a_copy_is_brought_no_faster_than_was_set_aside_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_aside: float, limit: float
) -> None:
    """Where nothing was, as when a job lands elsewhere than planned, others are still left most of a link."""
    assert limit <= MIN_LINK_SHARE * UNKNOWN_BANDWIDTH
    limits: list[float | None] = []

    class Client(SnapshotClient):
        def __init__(self, url: str, token: str, *, rate: float | None = None) -> None:
            super().__init__(url, token, rate=rate)
            limits.append(rate)

        def manifests(self, *_: object, **__: object) -> Listed:
            raise NodeRequestError("away", again=False)

    monkeypatch.setattr(restoration_module, "SnapshotClient", Client)
    restore = RestoreSource("n2", "http://127.0.0.1:1", 4, rate=set_aside)
    restoration = HomeRestore(_instance(tmp_path, replace(ASSIGNMENT, restore=restore)), "token", FakeLink())
    restoration.start()
    with pytest.raises(NodeRequestError, match="away"):
        eventually("the end of the restoration", lambda: restoration.wait(0.05))
    assert limits == [limit]
