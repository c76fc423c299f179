"""What a worker has to restore before it runs its job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cluster.documents import Assignment, Kept, Restore
from penstock.daemons import restoration as restoration_module
from penstock.daemons.instance import Instance
from penstock.daemons.restoration import Restoration, wanted_restore
from penstock.snapshots.errors import NoWholeSnapshotError, TransferError
from penstock.snapshots.restoring import restored

ASSIGNMENT = Assignment("job", 1, 5, 1, "b", "job.py", "n1", 1, 1, keep="node")
KEPT = Kept("job", "n1", 4, 1, "n2", "http://n2", 9, 40)


def _instance(folder: Path, assignment: Assignment = ASSIGNMENT) -> Instance:
    home = folder / "kept" / "job" / "home"
    return Instance("job", "n1", "h", 5, 1, "", "", "", str(home), "", assignment, str(folder / "snapshots"))


def test_a_job_that_is_new_or_has_its_data_restores_nothing(tmp_path: Path) -> None:
    instance = _instance(tmp_path)
    assert wanted_restore(instance, None) is None
    (Path(instance.storage) / "cluster-jobs" / "job").mkdir(parents=True)
    assert wanted_restore(instance, KEPT) is None


def test_a_job_whose_node_was_lost_restores_what_its_assignment_says(tmp_path: Path) -> None:
    restore = Restore("n3", "http://n3", 4)
    assigned = replace(ASSIGNMENT, restore=restore)
    assert wanted_restore(_instance(tmp_path, assigned), KEPT) == restore
    shared = replace(ASSIGNMENT, keep="shared")
    assert wanted_restore(_instance(tmp_path, shared), KEPT) is None


def test_a_node_that_has_lost_the_data_itself_restores_the_copy_of_it(tmp_path: Path) -> None:
    instance = _instance(tmp_path)
    assert wanted_restore(instance, KEPT) == Restore("n2", "http://n2", 4)
    assert wanted_restore(instance, replace(KEPT, store="")) is None
    assert wanted_restore(instance, replace(KEPT, origin="n9")) is None
    assert wanted_restore(_instance(tmp_path, replace(ASSIGNMENT, fresh=True)), KEPT) is None


def test_what_cannot_be_restored_is_told_and_nothing_is_made(tmp_path: Path) -> None:
    instance = _instance(tmp_path)
    restoration = Restoration(instance, Restore("n1", "http://n1", 4), "token")
    restoration.start()
    with pytest.raises(NoWholeSnapshotError, match="no whole snapshot of job 'job'"):
        restoration.wait(10.0)
    assert not Path(instance.storage).exists()
    assert restored(Path(instance.storage)) is None


def test_a_store_that_does_not_answer_is_asked_until_nobody_wants_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def away(self: Restoration) -> None:
        asked.append("again")
        raise TransferError("away", again=True)

    monkeypatch.setattr(Restoration, "_restore", away)
    monkeypatch.setattr(restoration_module, "_FIRST_RETRY", 0.01)
    restoration = Restoration(_instance(tmp_path), Restore("n2", "http://n2", 4), "token")
    restoration.start()
    while len(asked) < 3:
        assert not restoration.wait(0.01)
    restoration.cancel()
    assert restoration.wait(1.0)
