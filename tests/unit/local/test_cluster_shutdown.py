"""How a cluster ends: who goes when, who is asked and who is killed."""

from __future__ import annotations

import signal
from pathlib import Path

from penstock.local.cluster_layout import Layout, LayoutOptions, plan
from penstock.local.cluster_shutdown import EndedProcess, end_cluster, keeper_folder, running_folders
from penstock.testing.fake_processes import FakeProcesses

CLUSTER = Path("/home/user/.penstock/cluster")
DRIVER = CLUSTER / "nodes/node-1/instances/word-count-driver-1-2"
EXECUTOR = CLUSTER / "nodes/node-1/instances/word-count-executor-1-1-2"
OTHER = Path("/home/user/.penstock/elsewhere/a-driver-1-1")


class Scene:
    """A cluster whose time passes when somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.hurry = False
        self.machine = FakeProcesses()
        self.layout: Layout = plan(
            LayoutOptions(nodes=1, masters=1, zookeepers=1), CLUSTER, CLUSTER, lambda *_: ["java"]
        )
        self.folders = [Path(daemon.folder) for daemon in self.layout.daemons] + [DRIVER, EXECUTOR, OTHER]
        self.order: list[str] = []
        for folder in self.folders:
            self.machine.start(["program"], folder=folder, environment={}, cwd=CLUSTER)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def end(self, layout: Layout | None) -> list[EndedProcess]:
        return end_cluster(
            layout,
            CLUSTER,
            self.machine,
            tell=self.order.append,
            monotonic=lambda: self.now,
            wait=self.wait,
            hurry=lambda: self.hurry,
        )


def test_everything_of_the_cluster_ends_in_order_and_nothing_else() -> None:
    scene = Scene()
    done = scene.end(scene.layout)
    assert [ended.name for ended in done] == [
        *("node-1", "master-1"),
        *(DRIVER.name, EXECUTOR.name),
        "zookeeper-1",
    ]
    assert not any(ended.killed for ended in done)
    assert running_folders(scene.layout, CLUSTER, scene.machine) == []
    assert scene.machine.alive(OTHER)
    assert scene.order[0] == "ending supervisors and masters: node-1, master-1"
    assert scene.end(scene.layout) == []


def test_who_does_not_go_in_time_is_killed() -> None:
    scene = Scene()
    scene.machine.hang(DRIVER)
    done = scene.end(scene.layout)
    assert [ended.name for ended in done if ended.killed] == [DRIVER.name]
    assert signal.SIGTERM in scene.machine.processes[DRIVER].signals
    assert 30.0 <= scene.now < 31.0


def test_who_is_in_a_hurry_waits_for_nobody() -> None:
    scene = Scene()
    scene.machine.hang(DRIVER)
    scene.hurry = True
    scene.end(scene.layout)
    assert running_folders(scene.layout, CLUSTER, scene.machine) == []
    assert scene.now == 0.0


def test_what_a_dead_worker_has_left_is_killed_too() -> None:
    scene = Scene()
    scene.machine.processes[DRIVER].relatives = 1
    scene.machine.end(DRIVER, -9)
    assert EndedProcess(DRIVER.name, killed=True) in scene.end(scene.layout)
    assert scene.machine.figures(DRIVER) == (0.0, 0)


def test_without_the_file_all_are_found_by_their_marks() -> None:
    scene = Scene()
    scene.end(None)
    assert running_folders(None, CLUSTER, scene.machine) == []
    assert scene.machine.alive(OTHER)


def test_the_keeper_is_not_ended_by_whom_it_may_be() -> None:
    scene = Scene()
    folder = keeper_folder(CLUSTER)
    scene.machine.start(["keeper"], folder=folder, environment={}, cwd=CLUSTER)
    scene.end(scene.layout)
    assert scene.machine.alive(folder)
