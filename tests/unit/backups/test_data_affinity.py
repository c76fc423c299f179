"""Where a job may run whose data is with its node, and what the leader does when that node is lost."""

from __future__ import annotations

from typing import Any

from penstock.backups.data_affinity import DataAffinity, affinity_of
from penstock.cluster.assignment_documents import Assignment, BackupLocation, BackupStatus, RestoreSource
from penstock.cluster.cluster_state import ClusterState
from penstock.cluster.job_documents import JobSpec, JobStatus
from penstock.cluster.leader_actions import Assign, SetStatus, Unassign
from penstock.cluster.node_documents import NodeInfo
from penstock.cluster.reconcile import reconcile
from penstock.cluster.worker_documents import Failures, WorkerInfo
from penstock.job_settings import Resources
from penstock.schedule.job_placer import JobPlacer
from support.settings import make_assignment, make_spec, make_state, replace

NOW = 100.0
GIB = 1 << 30
SPEC = make_spec("job", "b", "job.py", resources=Resources(1, GIB), data_location="node")
ASSIGNED = make_assignment("job", 1, 3, 1, "b", "job.py", "n1", 1, GIB, data_location="node")
KEPT = BackupStatus("job", "n1", 3, 1, "n3", "http://n3", number=9, batch=40)
RESTORE = RestoreSource("n3", "http://n3", 3)


def _actual(*nodes: str, **changes: Any) -> ClusterState:
    infos = {name: NodeInfo(name, "", 4, 8 * GIB, url=f"http://{name}") for name in nodes}
    given = make_state(
        nodes=infos,
        assignments={"job": ASSIGNED},
        statuses={"job": JobStatus("RUNNING", "", 0.0, 3)},
        kept={"job": KEPT},
        absent_since={name: 0.0 for name in ("n1",) if name not in nodes},
    )
    return replace(given, **changes)


def _assigned(actual: ClusterState, spec: JobSpec = SPEC) -> Assignment | None:
    actions = reconcile({"job": spec}, actual, NOW, epoch=1, placer=JobPlacer())
    return next((action.assignment for action in actions if isinstance(action, Assign)), None)


def test_it_stays_with_its_data_while_that_node_is_there() -> None:
    assert affinity_of(SPEC, ASSIGNED, _actual("n1", "n2", "n3")).only == "n1"
    moved = replace(SPEC, restarts=1, driver="n2")
    found = _assigned(_actual("n1", "n2", "n3"), moved)
    assert found is not None
    assert (found.node, found.restore, found.revision) == ("n1", None, 4)


def test_it_goes_where_it_was_decided_beforehand_and_takes_the_copy_along() -> None:
    location = BackupLocation("job", "n3", "http://n3", "n2", rate=5e6)
    found = _assigned(_actual("n2", "n3", locations={"job": location}))
    assert found is not None
    assert (found.node, found.restore) == ("n2", replace(RESTORE, rate=5e6)), "and at the rate set aside"
    assert _assigned(_actual("n2", "n3")) is not None, "without a location it goes to the copy, or anywhere"


def test_it_goes_elsewhere_when_that_node_cannot_take_it() -> None:
    location = BackupLocation("job", "n3", "http://n3", "n2")
    full = make_assignment("full", 1, 1, 1, "b", "job.py", "n2", 4, GIB)
    actual = _actual("n2", "n3", locations={"job": location}, assignments={"job": ASSIGNED, "full": full})
    found = _assigned(actual)
    assert found is not None
    assert (found.node, found.restore) == ("n3", RESTORE)


def test_it_waits_rather_than_begin_without_its_data() -> None:
    for kept, nodes, why in (
        (replace(KEPT, store="", store_url=""), ("n2", "n3"), "no node has a complete backup"),
        (KEPT, ("n2",), "both nodes are lost"),
    ):
        actual = _actual(*nodes, kept={"job": kept})
        actions = reconcile({"job": SPEC}, actual, NOW, epoch=1, placer=JobPlacer())
        assert not [action for action in actions if isinstance(action, Assign)]
        [status] = [action.status for action in actions if isinstance(action, SetStatus)]
        assert status.phase == "PENDING"
        assert why in status.reason


def test_what_is_being_restored_is_not_given_up_for_another_change() -> None:
    restoring = replace(ASSIGNED, node="n2", revision=4, restore=RESTORE)
    actual = _actual("n2", "n3", assignments={"job": restoring})
    assert affinity_of(SPEC, restoring, actual) == DataAffinity(only="n2", restore=RESTORE)
    found = _assigned(actual, replace(SPEC, restarts=1))
    assert found is not None
    assert (found.node, found.restore) == ("n2", RESTORE)
    # Once it has begun there, that is where its data is; the marker on the node knows that it was restored.
    begun = replace(actual, kept={"job": replace(KEPT, origin="n2", revision=4)})
    found = _assigned(begun, replace(SPEC, restarts=1))
    assert found is not None
    assert (found.node, found.restore) == ("n2", RESTORE)


def test_a_node_that_comes_back_before_anybody_began_elsewhere_has_the_data_still() -> None:
    restoring = replace(ASSIGNED, node="n2", revision=4, restore=RESTORE)
    back = _actual("n1", "n3", assignments={"job": restoring}, absent_since={"n2": 0.0})
    assert affinity_of(SPEC, restoring, back) == DataAffinity(only="n1")
    found = _assigned(back)
    assert found is not None
    assert (found.node, found.restore) == ("n1", None)


def test_a_job_that_keeps_dying_is_not_moved_away_from_its_data() -> None:
    failures = {"job": Failures("job", 3, 3, "it died", "n1", NOW)}
    assert _assigned(_actual("n1", "n2", failures=failures)) is None
    missed = _actual("n2", failures=failures, absent_since={"n1": NOW})
    assert _assigned(missed) is None, "its node is missed, and not given up yet"


def test_a_job_follows_its_data_if_a_worker_elsewhere_went_on_with_it() -> None:
    moved_on = replace(KEPT, origin="n2", revision=4)
    back = replace(ASSIGNED, revision=5)
    found = _assigned(_actual("n1", "n2", assignments={"job": back}, kept={"job": moved_on}))
    assert found is not None
    assert (found.node, found.restore) == ("n2", None)


def test_a_job_waits_for_room_where_its_newer_data_is() -> None:
    """A worker where the older data is would exit each time, and be started again."""
    moved_on = replace(KEPT, origin="n2", revision=4)
    back = replace(ASSIGNED, revision=5)
    full = make_assignment("full", 1, 1, 1, "b", "job.py", "n2", 4, GIB)
    actual = _actual("n1", "n2", assignments={"job": back, "full": full}, kept={"job": moved_on})
    actions = reconcile({"job": SPEC}, actual, NOW, epoch=1, placer=JobPlacer())
    [gone] = [action for action in actions if isinstance(action, Unassign) and action.job == "job"]
    [status] = [action.status for action in actions if isinstance(action, SetStatus)]
    assert status.phase == "PENDING"
    assert gone.reason == status.reason
    assert status.reason.startswith("its data is on n2, of revision 4, and no node can take it")
    working = WorkerInfo("job", 3, 1, "n1", pid=1, phase="running", since=0.0)
    actions = reconcile(
        {"job": SPEC}, replace(actual, workers={"job": (working,)}), NOW, epoch=1, placer=JobPlacer()
    )
    left = [action for action in actions if isinstance(action, Unassign) and action.job == "job"]
    assert not left, "what still works is left alone"


def test_a_job_whose_copy_is_lost_waits_for_room_where_its_data_is_back() -> None:
    """A worker that asks a node for the copy that is gone would never start."""
    restoring = replace(ASSIGNED, node="n2", revision=4, restore=RESTORE)
    full = make_assignment("full", 1, 1, 1, "b", "job.py", KEPT.origin, 4, GIB)
    assert RESTORE.store not in ("n2", KEPT.origin)
    actual = _actual("n2", KEPT.origin, assignments={"job": restoring, "full": full})
    actions = reconcile({"job": SPEC}, actual, NOW, epoch=1, placer=JobPlacer())
    assert [action.job for action in actions if isinstance(action, Unassign)] == ["job", "full"]
    [status] = [action.status for action in actions if isinstance(action, SetStatus)]
    assert (status.phase, "the backup to restore cannot be reached" in status.reason) == ("PENDING", True)


def test_a_job_that_is_restored_elsewhere_does_not_go_back_when_its_node_does() -> None:
    restoring = replace(ASSIGNED, node="n2", revision=4, restore=RESTORE)
    actual = _actual("n1", "n2", "n3", assignments={"job": restoring})
    assert affinity_of(SPEC, restoring, actual) == DataAffinity(only="n2", restore=RESTORE)


def test_a_job_that_may_not_use_the_node_with_its_data_waits() -> None:
    elsewhere = replace(SPEC, nodes=("n2", "n3"))
    actual = _actual("n1", "n2", "n3")
    assert _assigned(actual, elsewhere) is None
    assert "allow that node" in affinity_of(elsewhere, ASSIGNED, actual).waits


def test_what_is_to_be_forgotten_holds_nobody() -> None:
    forgetting = replace(SPEC, fresh=True, forget=3)
    assert affinity_of(forgetting, None, _actual("n2", "n3")) == DataAffinity()


def test_jobs_whose_data_is_everywhere_go_anywhere() -> None:
    assert affinity_of(replace(SPEC, data_location="shared"), ASSIGNED, _actual("n1", "n2")) == DataAffinity()


def test_a_job_goes_back_to_its_data_when_the_copy_that_it_restores_is_gone() -> None:
    """It would wait for the copy for ever, though the node with the data itself is there again."""
    restoring = replace(ASSIGNED, node="n2", revision=4, restore=RESTORE)
    back = _actual("n1", "n2", assignments={"job": restoring})
    assert affinity_of(SPEC, restoring, back) == DataAffinity(only="n1")
    found = _assigned(back)
    assert found is not None
    assert (found.node, found.restore, found.revision) == ("n1", None, 5)
    moved = _actual("n1", "n2", assignments={"job": restoring}, kept={"job": replace(KEPT, store="n2")})
    assert _assigned(moved) is None, "it was copied elsewhere in the end, and that node is there"
    gone = _actual("n2", assignments={"job": restoring})
    assert _assigned(gone) is None, "there is nowhere else to go"
