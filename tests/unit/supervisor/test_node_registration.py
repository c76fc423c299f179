"""Supervisors of one name: one is registered, and the other does nothing and ends with an error."""

from __future__ import annotations

import os
import threading

import pytest
from noting_machine import NotingMachine
from without_code import AnyBundle, NoLogs

from penstock.cli.daemon_process import daemon_errors
from penstock.cluster.document_codec import decode, encode
from penstock.cluster.node_documents import MasterInfo, NodeInfo
from penstock.coord import store_paths
from penstock.local.cluster_keeper import EXIT_REFUSED
from penstock.master.cluster_service import ClusterService
from penstock.master.master import Master
from penstock.processes import process_launcher
from penstock.supervisor.node_registration import NameTakenError, is_dead, registration_of
from penstock.supervisor.supervisor import Supervisor
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore
from support.settings import make_assignment, replace

NODE = NodeInfo("n1", "10.0.0.1", 4, 8 << 30, url="http://10.0.0.1:7720", pid=7)
OTHER = replace(NODE, host="10.0.0.2", url="http://10.0.0.2:7720", pid=8)
ASSIGNED = make_assignment("job", 1, 1, 1, "a" * 64, "job.py", "n1", 1, 1)


class _Node:
    """A supervisor with a machine and a session of its own."""

    def __init__(self, ensemble: MemoryEnsemble, info: NodeInfo) -> None:
        self.store = MemoryStore(ensemble)
        self.machine = NotingMachine()
        self.supervisor = Supervisor(self.store, info, self.machine, self.machine)


def _registered(store: MemoryStore) -> str:
    node = store.get(f"{store_paths.NODES}/n1")
    return decode(NodeInfo, node.data).host if node is not None else ""


@pytest.fixture
def ensemble() -> MemoryEnsemble:
    ensemble = MemoryEnsemble()
    MemoryStore(ensemble).create(f"{store_paths.ASSIGNMENTS}/job", encode(ASSIGNED))
    return ensemble


def test_the_second_supervisor_of_a_name_starts_nothing_and_is_refused(ensemble: MemoryEnsemble) -> None:
    first, second = _Node(ensemble, NODE), _Node(ensemble, OTHER)
    first.supervisor.step(5.0)
    for moment in range(20):
        second.supervisor.step(float(moment))
    with pytest.raises(NameTakenError, match=r"'n1' runs at http://10\.0\.0\.1:7720 \(process 7\).*--name"):
        second.supervisor.step(20.0)
    assert (first.machine.started, second.machine.started) == (["job"], [])
    second.supervisor.leave()
    assert _registered(first.store) == "10.0.0.1"
    report = first.store.get(f"{store_paths.REPORTS}/n1")
    assert report is not None
    assert report.owner == first.store.session_id


def test_the_command_ends_with_an_error_that_is_not_tried_again(
    ensemble: MemoryEnsemble, capsys: pytest.CaptureFixture[str]
) -> None:
    first = _Node(ensemble, NODE)
    first.supervisor.step(0.0)
    moments = iter(range(0, 1000, 30))
    machine = NotingMachine()
    second = Supervisor(MemoryStore(ensemble), OTHER, machine, machine, clock=lambda: float(next(moments)))
    second._wake.wait = lambda timeout=None: True  # type: ignore[method-assign]

    @daemon_errors
    def command() -> None:
        second.run(threading.Event())

    with pytest.raises(SystemExit) as ended:
        command()
    assert ended.value.code == EXIT_REFUSED
    assert "another supervisor of node 'n1' runs" in capsys.readouterr().err
    assert _registered(first.store) == "10.0.0.1"


def test_the_session_of_a_dead_predecessor_is_waited_for(ensemble: MemoryEnsemble) -> None:
    first, second = _Node(ensemble, NODE), _Node(ensemble, OTHER)
    first.supervisor.step(0.0)
    session = first.store.session_id
    first.store.crash()
    second.supervisor.step(1.0)
    assert second.machine.started == []
    ensemble.expire(session)
    second.supervisor.step(6.0)
    assert second.machine.started == ["job"]
    assert _registered(second.store) == "10.0.0.2"


def test_time_without_the_store_is_not_counted(ensemble: MemoryEnsemble) -> None:
    first, second = _Node(ensemble, NODE), _Node(ensemble, OTHER)
    first.supervisor.step(0.0)
    second.supervisor.step(1.0)
    second.store.disconnect()
    with pytest.raises(Exception, match="suspended"):
        second.supervisor.step(25.0)
    second.store.reconnect()
    second.supervisor.step(26.0)
    with pytest.raises(NameTakenError):
        second.supervisor.step(46.0)


def test_who_has_lost_its_name_to_another_starts_nothing_more(ensemble: MemoryEnsemble) -> None:
    first, second = _Node(ensemble, NODE), _Node(ensemble, OTHER)
    first.supervisor.step(0.0)
    ensemble.expire(first.store.session_id)
    second.supervisor.step(1.0)
    first.machine.started.clear()
    first.supervisor.step(2.0)
    assert first.machine.started == []
    with pytest.raises(NameTakenError):
        first.supervisor.step(22.0)


def test_a_registration_whose_answer_was_lost_is_ones_own(ensemble: MemoryEnsemble) -> None:
    node = _Node(ensemble, NODE)
    node.store.lose_next_answer()
    with pytest.raises(Exception, match="before the servers answered"):
        node.supervisor.step(0.0)
    node.supervisor.step(1.0)
    assert node.machine.started == ["job"]


HERE = replace(NODE, pid=os.getpid(), started=1_700_000_000.0)
"""A node whose supervisor is this process, and was started when the time of day was said to be this."""
NOBODY = 2**22 + 1
"""More than the largest pid of Linux."""


def _read_again(info: NodeInfo) -> NodeInfo:
    return decode(NodeInfo, encode(info))


@pytest.mark.parametrize("jump", [-1e9, -3600.0, 3600.0, 1e9])
def test_a_clock_that_is_set_makes_no_living_supervisor_dead(jump: float) -> None:
    registered = _read_again(registration_of(replace(HERE, started=HERE.started + jump)))
    assert registered.ticks is not None
    assert not is_dead(registered, HERE)


def test_a_process_that_only_has_the_pid_of_a_supervisor_is_not_it() -> None:
    registered = registration_of(HERE)
    assert registered.ticks is not None
    assert is_dead(_read_again(replace(registered, ticks=registered.ticks - 1)), HERE)
    assert is_dead(_read_again(replace(registered, pid=NOBODY)), HERE)


def test_a_supervisor_of_another_machine_or_run_of_it_is_not_known_to_be_dead() -> None:
    gone = replace(registration_of(HERE), pid=NOBODY)
    assert not is_dead(replace(gone, host="10.0.0.2"), HERE)
    assert not is_dead(replace(gone, boot="another"), HERE), "its address may be that of every machine"


def test_a_registration_of_an_earlier_version_is_dead_only_without_a_process() -> None:
    assert not is_dead(_read_again(HERE), HERE)
    assert is_dead(_read_again(replace(HERE, pid=NOBODY)), HERE)


def test_a_registration_tells_its_process_from_all_others_that_have_had_its_pid() -> None:
    registered = registration_of(HERE)
    assert (registered.ticks, registered.boot) == (
        process_launcher.ticks(os.getpid()),
        process_launcher.boot(),
    )
    assert replace(registered, ticks=HERE.ticks, boot=HERE.boot) == HERE


def test_what_a_dead_supervisor_of_this_machine_has_registered_is_replaced_at_once(
    ensemble: MemoryEnsemble,
) -> None:
    other, own = MemoryStore(ensemble), MemoryStore(ensemble)
    left = replace(registration_of(HERE), pid=NOBODY)
    other.create(f"{store_paths.NODES}/n1", encode(left), ephemeral=True)
    machine = NotingMachine()
    registration = registration_of(HERE)
    supervisor = Supervisor(
        own, registration, machine, machine, is_dead=lambda found: is_dead(found, registration)
    )
    supervisor.step(1.0)
    node = own.get(f"{store_paths.NODES}/n1")
    assert node is not None
    assert decode(NodeInfo, node.data) == registration
    assert machine.started == ["job"]


@pytest.mark.parametrize("in_order", [True, False])
def test_a_node_without_work_is_missed_unless_its_supervisor_has_left_in_order(in_order: bool) -> None:
    ensemble = MemoryEnsemble()
    master = Master(MemoryStore(ensemble), MasterInfo("m1", "", 1, 0.0, ""))
    service = ClusterService(master, AnyBundle(), NoLogs())
    node = _Node(ensemble, NODE)
    node.supervisor.step(0.0)
    for moment in (1.0, 2.0):
        master.step(moment)
    if in_order:
        node.supervisor.leave()
    session = node.store.session_id
    node.store.crash()
    ensemble.expire(session)

    def alarms() -> list[str]:
        return [alarm["id"] for alarm in service.alarms()]

    for moment in (10.0, 15.0, 16.0):
        master.step(moment)
    assert alarms() == ([] if in_order else ["node-lost.n1"])
    if not in_order:
        service.clear("node-lost.n1")
        for moment in (20.0, 25.0, 30.0):
            master.step(moment)
        assert alarms() == [], "who clears it does not expect the node any more"
        again = _Node(ensemble, NODE)
        again.supervisor.step(40.0)
        master.step(41.0)
        assert [found["name"] for found in service.nodes()] == ["n1"]
