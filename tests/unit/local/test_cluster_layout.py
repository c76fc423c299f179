"""A cluster on one machine, on paper."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pytest

from penstock.errors import SettingError
from penstock.local.cluster_layout import LayoutOptions, plan, read_layout, write_layout

CLUSTER, STORAGE = Path("/home/user/.penstock/cluster"), Path("/data")


def java(number: int, folder: Path) -> Sequence[str]:
    return ["java", str(number), str(folder)]


def test_zookeeper_comes_first_and_everybody_has_a_place_of_its_own() -> None:
    layout = plan(LayoutOptions(nodes=3, masters=2, zookeepers=3), CLUSTER, STORAGE, java)
    assert [daemon.name for daemon in layout.daemons] == [
        *("zookeeper-1", "zookeeper-2", "zookeeper-3"),
        *("master-1", "master-2"),
        *("node-1", "node-2", "node-3"),
    ]
    places = [{(daemon.host, port) for port in daemon.ports} for daemon in layout.daemons]
    assert all(not (one & other) for one, other in combinations(places, 2))
    assert len({daemon.folder for daemon in layout.daemons}) == 8
    assert [daemon.host for daemon in layout.of("supervisor")] == ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
    assert layout.connect == "127.0.0.1:7740,127.0.0.1:7743,127.0.0.1:7746"
    assert layout.of("zookeeper")[1].argv == ("java", "2", str(CLUSTER / "zookeeper" / "2"))


def test_daemons_are_told_all_they_need() -> None:
    requested = LayoutOptions(nodes=3, masters=1, cores=4, memory=1024, racks=("left", "right"), port=9000)
    layout = plan(requested, CLUSTER, STORAGE, java)
    last = layout.daemons[-1].argv
    options = dict(zip(last[4::2], last[5::2], strict=True))
    assert last[3] == "supervisor"
    assert options == {
        "--name": "node-3",
        "--host": "127.0.0.4",
        "--port": "9020",
        "--cores": "4",
        "--memory": "1024",
        "--rack": "left",
        "--storage": "/data",
        "--connect": layout.connect,
        "--root": "/penstock",
        "--cluster-folder": str(CLUSTER),
    }


def test_masters_are_told_what_to_keep() -> None:
    layout = plan(LayoutOptions(masters=1, retain_days=0.5, retain_jobs=20), CLUSTER, STORAGE, java)
    [master] = layout.of("master")
    options = dict(zip(master.argv[4::2], master.argv[5::2], strict=True))
    assert (options["--retain-days"], options["--retain-jobs"]) == ("0.5", "20")


def test_an_ensemble_that_runs_already_is_used() -> None:
    layout = plan(LayoutOptions(connect="zk1:2181,zk2:2181"), CLUSTER, STORAGE, java)
    assert layout.of("zookeeper") == ()
    assert layout.connect == "zk1:2181,zk2:2181"
    assert not layout.embedded


@pytest.mark.parametrize(
    ("requested", "words"),
    [
        (LayoutOptions(nodes=0), "1 to 200 nodes"),
        (LayoutOptions(nodes=201), "1 to 200 nodes"),
        (LayoutOptions(masters=0), "1 to 20 masters"),
        (LayoutOptions(zookeepers=2), "1 or 3 ZooKeeper"),
        (LayoutOptions(port=80), "the first port must be"),
        (LayoutOptions(port=65500), "the first port must be"),
        (LayoutOptions(cores=0), "at least 1 core"),
    ],
)
def test_what_cannot_be_is_refused(requested: LayoutOptions, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        plan(requested, CLUSTER, STORAGE, java)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert read_layout(tmp_path) is None
    layout = plan(LayoutOptions(), tmp_path, STORAGE, java, started=12.5)
    write_layout(layout, tmp_path)
    assert read_layout(tmp_path) == layout
    assert tmp_path.joinpath("up.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"schema": 2}', '{"schema": 1, "daemons": [{}]}'])
def test_what_cannot_be_understood_is_told(tmp_path: Path, content: str) -> None:
    tmp_path.joinpath("up.json").write_text(content)
    with pytest.raises(SettingError, match=r"up\.json"):
        read_layout(tmp_path)
