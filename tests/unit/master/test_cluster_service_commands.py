"""Commands to a leader: what was granted stays granted, whatever else is asked for meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from without_code import AnyBundle, NoLogs

from penstock.cluster.client_requests import InvalidRequestError, NotFoundError, RefusedError
from penstock.cluster.document_codec import decode, encode
from penstock.cluster.job_documents import Alarm, JobSpec, JobStatus
from penstock.cluster.node_documents import MasterInfo
from penstock.cluster.worker_documents import WorkerInfo
from penstock.coord import store_paths
from penstock.coord.coordination_store import Create, Operation, Put
from penstock.master.cluster_service import ClusterService
from penstock.master.master import Master
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore
from support.settings import make_spec, make_submission, replace


class _ContestedStore(MemoryStore):
    """A store in which somebody else may write just before."""

    def __init__(self) -> None:
        super().__init__(MemoryEnsemble())
        self.overtake: Callable[[Sequence[Operation]], None] = lambda operations: None

    def transact(self, operations: Sequence[Operation]) -> None:
        self.overtake(operations)
        super().transact(operations)


class _Leader:
    """A leader and a job that has ended with revision 4."""

    def __init__(self) -> None:
        self.store = _ContestedStore()
        self.master = Master(self.store, MasterInfo("m1", "", 1, 0.0, ""), clock=lambda: 0.0)
        self.service = ClusterService(self.master, AnyBundle(), NoLogs(), lambda: 1.0)
        self.look()
        ended = JobStatus("ENDED", "it was killed", 0.0, 4)
        self.master.write(
            [
                Create(
                    f"{store_paths.JOBS}/job", encode(make_spec("job", "a" * 64, "job.py", wanted="ended"))
                ),
                Create(f"{store_paths.STATUS}/job", encode(ended)),
            ]
        )
        self.look()

    def look(self) -> None:
        for _ in range(3):
            self.master.step(1.0)

    @property
    def spec(self) -> JobSpec:
        self.look()
        return self.master.documents.jobs()["job"]


@pytest.mark.parametrize("again", ["submit", "resubmit"])
def test_what_is_asked_for_later_does_not_take_it_back(again: str) -> None:
    leader = _Leader()
    service = leader.service
    if again == "resubmit":
        service.resubmit("job", fresh=True)
    else:
        service.submit(make_submission("job.py", {"name": "job", "vertices": []}, fresh=True), "b" * 64)
    assert (leader.spec.fresh, leader.spec.forget, leader.spec.after) == (True, 4, 4)
    service.scale("job", {"cores": 2}, None)
    assert (leader.spec.fresh, leader.spec.forget) == (True, 4)
    service.update("job", make_submission("job.py", {"name": "job", "vertices": []}), "c" * 64)
    assert (leader.spec.fresh, leader.spec.forget) == (True, 4)
    service.kill("job", drain=False)
    leader.look()
    service.resubmit("job", fresh=False)
    assert (leader.spec.fresh, leader.spec.forget) == (True, 4), "revisions after 4 are not forgotten"


def _update(leader: _Leader, bundle: str) -> JobSpec:
    leader.service.update("job", make_submission("job.py", {"name": "job", "vertices": []}), bundle)
    return leader.spec


def test_an_update_falls_back_to_the_last_code_that_has_run_well() -> None:
    leader = _Leader()
    leader.service.resubmit("job", fresh=False)
    leader.look()
    first = _update(leader, "b" * 64)
    assert first.before is not None
    assert (first.before.bundle, first.before.generation) == ("a" * 64, 1)
    second = _update(leader, "c" * 64)
    assert second.before == first.before, "the code of the first update has not run well"
    proven = replace(second, before=None)
    leader.master.write([Put(f"{store_paths.JOBS}/job", encode(proven))])
    leader.look()
    third = _update(leader, "d" * 64)
    assert third.before is not None
    assert third.before.bundle == "c" * 64


def test_an_update_to_the_code_that_has_run_well_has_nothing_to_fall_back_to() -> None:
    leader = _Leader()
    leader.service.resubmit("job", fresh=False)
    leader.look()
    assert _update(leader, "b" * 64).before is not None
    assert _update(leader, "a" * 64).before is None


def test_a_job_that_is_submitted_again_gets_all_its_chances() -> None:
    leader = _Leader()
    failed = JobStatus("FAILED", "its worker has failed 8 times", 1.0, 4, chances=3)
    leader.master.write([Put(f"{store_paths.STATUS}/job", encode(failed))])
    leader.look()
    leader.service.resubmit("job", fresh=False)
    known = leader.store.get(f"{store_paths.STATUS}/job")
    assert known is not None
    assert decode(JobStatus, known.data).chances == 0


def test_a_job_that_goes_on_forgets_nothing() -> None:
    leader = _Leader()
    leader.service.resubmit("job", fresh=False)
    assert not leader.spec.fresh


def test_what_is_granted_because_a_job_runs_is_refused_when_it_has_just_failed() -> None:
    leader = _Leader()
    leader.service.resubmit("job", fresh=False)
    leader.look()
    failed = JobStatus("FAILED", "its worker has died 5 times", 1.0, 5)
    leader.master.write([Put(f"{store_paths.STATUS}/job", encode(failed))])
    with pytest.raises(RefusedError, match="at the same time"):
        leader.service.update("job", make_submission("job.py", {"name": "job", "vertices": []}), "c" * 64)
    assert leader.spec.bundle == "a" * 64


def test_an_alarm_that_was_read_before_the_failure_it_is_about_starts_the_job_when_it_is_cleared() -> None:
    leader = _Leader()
    leader.service.resubmit("job", fresh=False)
    leader.look()
    alarm = Alarm("job-failed.job", "job-failed", "job", "it failed", 1.0, {"revision": 5})
    leader.store.create(f"{store_paths.ALARMS}/job-failed.job", encode(alarm))
    leader.master._mirror.refresh()
    leader.store.set(f"{store_paths.STATUS}/job", encode(JobStatus("FAILED", "it failed", 1.0, 5)))
    before = leader.master.documents.jobs()["job"]
    with suppress(RefusedError):  # This leader does not look by itself.
        leader.service.clear("job-failed.job")
    assert leader.store.get(f"{store_paths.ALARMS}/job-failed.job") is not None, "decided on an old status"
    leader.master._mirror.refresh()
    leader.service.clear("job-failed.job")
    assert leader.spec.after > before.after


@pytest.mark.parametrize(("times", "granted"), [(1, True), (4, True), (5, False)])
def test_a_command_is_decided_again_when_the_master_wrote_meanwhile(times: int, granted: bool) -> None:
    """As when a worker that dies all the time is killed: its status changes every few moments."""
    leader = _Leader()
    leader.service.resubmit("job", fresh=False)
    leader.look()
    overtaken = 0

    def change_status(operations: Sequence[Operation]) -> None:
        nonlocal overtaken
        asked = any(isinstance(put, Put) and put.path == f"{store_paths.JOBS}/job" for put in operations)
        if asked and overtaken < times:
            overtaken += 1
            known = leader.store.get(f"{store_paths.STATUS}/job")
            assert known is not None
            status = replace(decode(JobStatus, known.data), reason=f"its worker has died {overtaken} times")
            leader.store.set(f"{store_paths.STATUS}/job", encode(status))

    leader.store.overtake = change_status
    stop = threading.Event()
    runs = threading.Thread(target=leader.master.run, args=(stop,))
    runs.start()
    try:
        if granted:
            leader.service.kill("job", drain=False)
        else:
            with pytest.raises(RefusedError, match="at the same time"):
                leader.service.kill("job", drain=False)
    finally:
        stop.set()
        leader.master.wake()
        runs.join()
    assert overtaken == times
    wanted = leader.store.get(f"{store_paths.JOBS}/job")
    assert wanted is not None
    assert decode(JobSpec, wanted.data).wanted == ("ended" if granted else "running")


def test_what_is_being_drained_can_be_ended_at_once_but_not_twice() -> None:
    leader = _Leader()
    leader.service.resubmit("job", fresh=False)
    leader.look()
    leader.service.kill("job", drain=True)
    leader.look()
    with pytest.raises(RefusedError):
        leader.service.kill("job", drain=True)
    leader.service.kill("job", drain=False)
    assert (leader.spec.wanted, leader.spec.drain) == ("ended", False)
    with pytest.raises(RefusedError):
        leader.service.kill("job", drain=False)


def _running_with(**given: object) -> _Leader:
    leader = _Leader()
    structure = {"name": "job", "vertices": []}
    leader.service.submit(make_submission("job.py", structure, **given), "b" * 64)
    leader.look()
    return leader


def test_parameters_stay_unless_they_are_given_again() -> None:
    leader = _running_with(params={"since": "2025", "region": "eu"}, env={"USER": None, "MODE": "a"})
    service = leader.service
    update = make_submission(
        "job.py", {"name": "job", "vertices": []}, params={"since": "2026"}, env={"MODE": "b"}
    )
    service.update("job", update, "c" * 64)
    wanted = ({"since": "2026", "region": "eu"}, {"USER": None, "MODE": "b"})
    assert (leader.spec.params, leader.spec.env) == wanted
    changes: list[Callable[[], object]] = [
        lambda: service.scale("job", {"cores": 2}, None),
        lambda: service.resubmit("job", fresh=False),
        lambda: service.kill("job", drain=False),
        lambda: service.resubmit("job", fresh=False),
    ]
    for change in changes:
        change()
        assert (leader.spec.params, leader.spec.env) == wanted


def test_other_parameters_of_the_same_code_are_a_new_generation_with_a_way_back() -> None:
    leader = _running_with(params={"since": "2025"})
    generation = leader.spec.generation
    done = leader.service.set_params("job", {"since": "2026"}, {"MODE": "a"})
    assert (done["generation"], done["reason"]) == (generation + 1, "its parameters were changed")
    spec = leader.spec
    assert (spec.bundle, spec.params, spec.env) == ("b" * 64, {"since": "2026"}, {"MODE": "a"})
    assert spec.before is not None
    assert (spec.before.params, spec.before.env, spec.before.generation) == (
        {"since": "2025"},
        {},
        generation,
    )
    with pytest.raises(InvalidRequestError, match="already has these parameters"):
        leader.service.set_params("job", {"since": "2026"}, {})
    same = make_submission("job.py", {"name": "job", "vertices": []}, params={"since": "2027"})
    assert leader.service.update("job", same, "b" * 64)["generation"] == generation + 2


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"params": {"from-date": "1"}}, "'from-date' is not a valid parameter name"),
        ({"env": {"PENSTOCK_TOKEN": None}}, "PENSTOCK_TOKEN is set by Penstock itself"),
        ({"params": {"a": "x" * 70_000}}, "above the limit"),
    ],
)
def test_what_cannot_be_a_parameter_is_refused(given: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        _running_with(**given)
    leader = _running_with()
    with pytest.raises(InvalidRequestError, match=reason):
        leader.service.set_params("job", given.get("params", {}), given.get("env", {}))  # type: ignore[arg-type]


def test_an_entry_that_is_no_file_of_the_bundle_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(bundles: AnyBundle, sha256: str, entry: str) -> None:
        raise InvalidRequestError(f"the entry {entry!r} is not among the files of the bundle")

    leader = _Leader()
    leader.service.resubmit("job", fresh=False)
    leader.look()
    before = leader.spec
    monkeypatch.setattr(AnyBundle, "check_entry", refuse)
    elsewhere = make_submission("/tmp/job.py", {"name": "job", "vertices": []})
    with pytest.raises(InvalidRequestError, match="not among the files"):
        leader.service.update("job", elsewhere, "c" * 64)
    with pytest.raises(InvalidRequestError, match="not among the files"):
        leader.service.submit(elsewhere, "c" * 64)
    assert leader.spec == before


def test_executors_are_not_for_a_job_on_a_spark_master_of_the_users_own() -> None:
    leader = _Leader()
    leader.service.submit(
        make_submission("job.py", {"name": "job", "vertices": []}, spark_master="spark://there:7077"),
        "b" * 64,
    )
    leader.look()
    with pytest.raises(InvalidRequestError, match=r"its own Spark master cannot have executors"):
        leader.service.scale("job", {"executors": 2}, None)
    leader.service.scale("job", {"cores": 2}, None)


def test_a_job_that_is_over_is_on_no_node() -> None:
    leader = _Leader()
    late = WorkerInfo("job", 4, 1, "n1", 1, "stopped", 1.0)
    leader.store.create(store_paths.worker("job", 4, 1), encode(late))
    leader.look()
    [job] = leader.service.jobs()
    assert (job["phase"], job["node"]) == ("ENDED", "")


def test_an_alarm_that_cannot_be_read_can_be_cleared() -> None:
    leader = _Leader()
    leader.store.create(f"{store_paths.ALARMS}/later.job", b'{"schema": 2}')
    leader.look()
    leader.service.clear("later.job")
    assert leader.store.get(f"{store_paths.ALARMS}/later.job") is None
    leader.look()
    with pytest.raises(NotFoundError):
        leader.service.clear("later.job")
