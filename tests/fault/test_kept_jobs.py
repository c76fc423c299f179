"""Jobs whose data is with their node: nodes are killed, copies damaged, stores lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import JOB, running_cluster
from kept_lab import NAME, Feeder, KeptLab, check_exact, documents_of, inputs, running_lab

from penstock.cluster.assignment_documents import RestoreSource
from support.engines import EITHER
from support.waiting import eventually


@pytest.fixture(params=EITHER)
def lab(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KeptLab]:
    with running_lab(tmp_path, request.param) as running:
        yield running


def test_a_job_goes_on_where_its_copy_is_without_moving_it(lab: KeptLab) -> None:
    lab.locate("n2", "n2")
    with Feeder(lab.home("n1"), first=0) as feeder:
        lab.assign("n1", 1)
        lab.wait_batches("n1")
        lab.wait_snapshots()
        # In the middle of feeding, working and sending.
        lab.cluster.kill_node("n1")
    kept = lab.kept
    assert kept is not None
    assert (kept.origin, kept.store) == ("n1", "n2")

    lab.assign("n2", 2, RestoreSource("n2", lab.url("n2"), 1))
    lab.wait_running(2)
    lab.locate("n3", "n3")
    restored = lab.restored("n2")
    assert restored is not None
    assert (restored.bytes_moved, restored.skipped) == (0, ())
    assert restored.number >= kept.number
    survived = inputs(lab.home("n2"))
    assert feeder.before(kept.at) <= survived.total() <= inputs(lab.home("n1")).total()
    with Feeder(lab.home("n2"), first=1_000_000):
        lab.wait_batches("n2", 5)
    check_exact(lab.home("n2"))
    assert inputs(lab.home("n2")) > survived

    # Now the copy is on the third node, and the one that is not needed any more is gone.
    kept = lab.wait_covered("n2")
    assert (kept.origin, kept.store, kept.revision) == ("n2", "n3", 2)
    eventually("the old copy is removed", lambda: not lab.snapshots("n2"))

    # A worker that dies without its node has its data.
    home, marker = lab.home("n2").stat().st_ino, lab.restored("n2")
    [driver] = lab.cluster.drivers(NAME)
    driver.kill()
    lab.wait_running(2, attempt=2)
    with Feeder(lab.home("n2"), first=2_000_000):
        lab.wait_batches("n2")
    check_exact(lab.home("n2"))
    assert (lab.home("n2").stat().st_ino, lab.restored("n2")) == (home, marker)
    # The copy that it had is carried on, not begun again.
    kept = lab.wait_covered("n2")
    assert (kept.attempt, kept.store) == (2, "n3")
    assert kept.sent < kept.bytes

    # And one whose disk was replaced under it fetches the copy, though nobody has said so.
    supervisor = lab.cluster.supervisors["n2"]
    supervisor.pause()
    lab.cluster.kill_workers("n2")
    shutil.rmtree(lab.home("n2").parent)
    supervisor.resume()
    lab.wait_running(2, attempt=3)
    again = lab.restored("n2")
    assert again is not None
    assert again.bytes_moved > 0
    with Feeder(lab.home("n2"), first=3_000_000):
        lab.wait_batches("n2")
    check_exact(lab.home("n2"))
    assert inputs(lab.home("n2")).total() > sum(1 for n in inputs(lab.home("n2")) if n >= 3_000_000)


def test_a_job_fetches_its_copy_and_uses_the_last_one_that_is_whole(lab: KeptLab, tmp_path: Path) -> None:
    lab.locate("n2", "n3")
    with Feeder(lab.home("n1"), first=0):
        lab.assign("n1", 1)
        lab.wait_batches("n1")
        lab.wait_snapshots(4)
        lab.cluster.kill_node("n1")
    # What was on its way to the copy is there now, or never will be.
    lab.cluster.supervisors["n2"].kill()
    lab.cluster.supervisors["n2"].start()
    newest, second, *_ = lab.snapshots("n2")
    only = {piece.sha256 for piece in newest.pieces} - {piece.sha256 for piece in second.pieces}
    place = lab.node_folder("n2") / "snapshots" / NAME
    backup = tmp_path / "backup"
    shutil.copytree(place, backup)

    # Nothing is whole: it says so, and changes nothing.
    for manifest in (place / "manifests").iterdir():
        manifest.write_bytes(manifest.read_bytes()[:-7])
    restore = RestoreSource("n2", lab.url("n2"), 1)
    lab.assign("n3", 2, restore)
    eventually("the worker gives up", lambda: lab.exits("n3"))
    [left, *_] = lab.exits("n3")
    assert left.outcome == "failed"
    assert "no complete snapshot" in left.reason
    assert not lab.home("n3").exists()

    # The newest has an object that is not what it was. Whoever still tries finds no better one meanwhile.
    [damaged, *_] = [path for path in place.rglob("*") if path.name in only and path.stat().st_size]
    damaged.write_bytes(bytes(byte ^ 1 for byte in damaged.read_bytes()))
    for manifest in sorted((place / "manifests").iterdir(), reverse=True):
        shutil.copy(backup / "manifests" / manifest.name, manifest)
    lab.assign("n3", 3, restore)
    lab.wait_running(3)
    restored = lab.restored("n3")
    assert restored is not None
    assert (restored.number, restored.batch) == (second.number, second.batch)
    assert restored.bytes_moved > 0
    [reason] = restored.skipped
    assert f"snapshot {newest.number}" in reason
    before = inputs(lab.home("n3"))
    with Feeder(lab.home("n3"), first=1_000_000):
        lab.wait_batches("n3", 5)
    check_exact(lab.home("n3"))
    assert inputs(lab.home("n3")) > before


def test_a_store_that_dies_while_it_is_sent_to_is_replaced(lab: KeptLab) -> None:
    lab.locate("n2", "n2")
    feeder = Feeder(lab.home("n1"), first=0)
    feeder.feed(125_000)
    with feeder:
        # The first snapshot takes several seconds.
        lab.cluster.supervisors["n1"].kill()
        lab.cluster.environment["PENSTOCK_SNAPSHOT_RATE"] = "100KB"
        lab.cluster.supervisors["n1"].start()
        lab.assign("n1", 1)
        parts = lab.node_folder("n2") / "snapshots" / NAME
        eventually("something is sent", lambda: parts.exists() and any(f.is_file() for f in parts.rglob("*")))
        assert not lab.snapshots("n2")
        lab.cluster.kill_node("n2")
        lab.wait_batches("n1")
        eventually("the worker tells its trouble", lambda: lab.words("n1", "snapshot not sent"))
        lab.locate("n3", "n3")
        kept = lab.wait_kept(lambda found: found.store != "", "a whole snapshot")
        assert kept.store == "n3"
        lab.wait_batches("n1")
        lab.cluster.kill_node("n1")
    lab.assign("n3", 2, RestoreSource("n3", lab.url("n3"), 1))
    lab.wait_running(2)
    assert inputs(lab.home("n3")).total() >= feeder.before(kept.at)
    with Feeder(lab.home("n3"), first=1_000_000):
        lab.wait_batches("n3")
    check_exact(lab.home("n3"))


@pytest.mark.parametrize("engine", EITHER)
def test_a_cluster_redeploys_a_job_to_where_it_said_it_would(tmp_path: Path, engine: str) -> None:
    with (
        running_cluster(tmp_path, nodes=3, masters=1, servers=1, idle=True, engine=engine) as cluster,
        documents_of(cluster) as documents,
    ):
        file = tmp_path / "held.py"
        file.write_text(JOB.format(name=NAME))
        cluster.cli("submit", str(file), "--memory", "1g", "--data-location", "node")
        origin = eventually(f"{NAME} runs", lambda: cluster.worker(NAME))["node"]
        with Feeder(documents.home(origin), first=0) as feeder:
            kept = documents.wait_kept(lambda kept: kept.store != "" and kept.batch >= 3, "a copy")
            assert kept.origin == origin
            cluster.kill_node(origin)
        location = documents.location
        assert location is not None
        assert origin not in (location.store, location.redeploy)
        kept = documents.wait_kept(lambda kept: kept.origin == origin, "the last word of the lost worker")

        def again() -> dict[str, Any] | None:
            worker = cluster.worker(NAME)
            return worker if worker is not None and worker["node"] != origin else None

        assert eventually(f"{NAME} runs again", again)["node"] == location.redeploy
        home = documents.home(location.redeploy)
        survived = inputs(home)
        assert survived.total() >= feeder.before(kept.at)
        with Feeder(home, first=1_000_000):
            documents.wait_kept(lambda found: found.origin != origin and found.batch > kept.batch + 3, "more")
        check_exact(home)
        assert inputs(home) > survived
