"""``penstock simulate``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import command_line
from penstock.schedule.simulation.scenario_file import parse_scenario

SMALL = {
    "name": "small",
    "nodes": [
        {"name": "n1", "cores": 8, "memory": 1 << 34, "rack": "a"},
        {"name": "n2", "cores": 8, "memory": 1 << 34, "rack": "b"},
    ],
    "duration": 60,
    "submit_every": 20,
    "failures": {"between": 30, "repair": 20},
    "backup": {},
}


@pytest.fixture
def small(tmp_path: Path) -> str:
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps(SMALL))
    return str(file)


def _penstock(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(command_line(["simulate"]), ["simulate", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_a_table_has_each_strategy_with_its_interval(small: str) -> None:
    code, shown, _ = _penstock(
        "--file", small, "--seeds", "2", "--strategy", "packed", "--strategy", "traffic"
    )
    assert code == 0
    assert "small: 2 runs, mean and 95 % confidence interval" in shown
    lines = [line for line in shown.splitlines() if "±" in line]
    assert [line.split()[0] for line in lines] == ["packed", "traffic"]
    assert "imbalance S" in shown
    assert "recovery s" in shown


def test_json_has_figures_differences_and_curves(small: str) -> None:
    code, shown, _ = _penstock(
        "--file", small, "--seeds", "2", "--strategy", "packed", "--strategy", "traffic", "-o", "json"
    )
    assert code == 0
    found = json.loads(shown)
    assert (found["scenario"], found["seeds"], list(found["strategies"])) == (
        "small",
        2,
        ["packed", "traffic"],
    )
    packed, traffic = found["strategies"]["packed"], found["strategies"]["traffic"]
    imbalance = packed["figures"]["imbalance"]
    assert imbalance["low"] <= imbalance["mean"] <= imbalance["high"]
    apart = traffic["figures"]["imbalance"]["mean"] - imbalance["mean"]
    assert traffic["difference"]["imbalance"]["mean"] == pytest.approx(apart)
    assert packed["difference"] == {}
    assert [point["at"] for point in packed["curves"]["cross_switch"]] == [5.0 * at for at in range(1, 13)]


def test_the_same_seeds_give_the_same(small: str) -> None:
    arguments = ("--file", small, "--seeds", "2", "--strategy", "balanced", "-o", "json")
    assert _penstock(*arguments)[1] == _penstock(*arguments)[1]


def test_plots_are_written(small: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "plots"
    code, _, told = _penstock("--file", small, "--seeds", "2", "--strategy", "packed", "--plots", str(folder))
    assert code == 0
    names = ["small-cross-node.svg", "small-cross-switch.svg", "small-imbalance.svg"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert all(f"wrote {folder / name}" in told for name in names)
    assert "packed" in (folder / names[0]).read_text()


def test_without_matplotlib_it_says_what_is_missing(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, shown, told = _penstock("--file", small, "--plots", str(tmp_path / "plots"))
    assert (code, shown) == (1, "")
    assert "pip install 'penstock[plots]'" in told
    assert not (tmp_path / "plots").exists()


def test_a_scenario_can_be_printed_and_changed() -> None:
    code, shown, _ = _penstock("--scenario", "failures", "--print-scenario")
    assert code == 0
    assert parse_scenario(shown).name == "failures"


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("--scenario", "nowhere"), 2, "there is no scenario 'nowhere'"),
        (("--scenario", "failures", "--file", "x"), 2, "exclude each other"),
        (("--strategy", "fastest"), 2, "there is no strategy 'fastest'"),
        (("--strategy", "s4-hash"), 2, "there is no strategy 's4-hash'"),
        (("--file", "/does/not/exist.json"), 1, "No such file"),
        (("--seeds", "0"), 2, "--seeds"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(arguments: tuple[str, ...], code: int, reason: str) -> None:
    found, _, told = _penstock(*arguments)
    assert found == code
    assert reason in told
    assert "Traceback" not in told


def test_a_file_that_is_no_scenario_is_refused_with_its_reason(tmp_path: Path) -> None:
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps({**SMALL, "fil": 0.9}))
    code, _, told = _penstock("--file", str(file))
    assert code == 1
    assert "the scenario has no 'fil'" in told
