"""``ps.params``: given, read, missing, shipped with a job's code, and never shown where they are secret."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.cli.main import command_line
from penstock.engine.blueprint import make_blueprint
from penstock.engine.execution.blueprint_transfer import load_program, pack_blueprint, unpack_blueprint
from penstock.errors import MissingParameterError, SettingError
from penstock.graph.vertex import SIDE_STREAMS
from penstock.parameters import LARGEST, params_fault, params_set_to, read_env, read_params, set_params

AT_MODULE_LEVEL = """
import penstock as ps

SINCE = ps.params["since"]
job = ps.Job("dated")
source = job.source("in", ps.MemorySource())
source >> job.task("date", lambda r: [SINCE + " " + ps.params["since"]]) >> job.sink("out", ps.MemorySink())
"""

IN_A_TASK = """
import penstock as ps
from penstock import params

class Filter(ps.Task):
    def prepare(self, config):
        self.limit = int(ps.params.get("limit", "1"))

    def execute(self, inputs, outputs):
        for record in inputs.get():
            outputs.emit(None, [params["since"] for _ in range(self.limit)])

job = ps.Job("dated")
job.source("in", ps.MemorySource()) >> job.task("date", Filter()) >> job.sink("out", ps.MemorySink())
"""

OPTIONAL = """
import penstock as ps

def asks(r):
    return ps.params["since"] if "since" in ps.params else "never"

def catches(r):
    try:
        return ps.params["until"]
    except KeyError:
        return "never"

def unused(r):
    return ps.params["other"]

job = ps.Job("dated")
source = job.source("in", ps.MemorySource())
for task in (asks, catches):
    source >> job.task(task.__name__, task) >> job.sink(f"of_{task.__name__}", ps.MemorySink())
"""


@pytest.fixture(autouse=True)
def own_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    with params_set_to({}):
        yield


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "dated.py"


def test_parameters_are_a_read_only_mapping() -> None:
    with params_set_to({"since": "2026-01-01"}):
        assert dict(ps.params) == {"since": "2026-01-01"}
        assert ps.params.get("limit") is None
        assert "limit" not in ps.params
        with pytest.raises(TypeError):
            ps.params["since"] = "later"  # type: ignore[index]
        with pytest.raises(
            KeyError, match="parameter 'limit' is not given: give it with --param limit=VALUE"
        ):
            ps.params["limit"]
        assert copy.deepcopy(ps.params) is ps.params
        assert pickle.loads(pickle.dumps(ps.params)) is ps.params
    assert not ps.params


def test_secrets_are_not_shown() -> None:
    with params_set_to({"db_password": "hush", "since": "now"}):
        assert repr(ps.params) == "ps.params({'db_password': '*(hidden)*', 'since': 'now'})"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["since"], "--param takes NAME=VALUE, not 'since'"),
        (["a=1", "a=2"], "--param a is given twice"),
        (["from-date=1"], "'from-date' is not a valid parameter name"),
        (["1st=1"], "'1st' is not a valid parameter name"),
        (["=1"], "'' is not a valid parameter name"),
        ([f"a={'x' * LARGEST}"], f"above the limit of {LARGEST}: let the job read a file instead"),
        (["a=\x00"], "is not text that can be stored"),
    ],
)
def test_what_cannot_be_a_parameter_is_refused(words: list[str], reason: str) -> None:
    with pytest.raises(SettingError) as refused:
        read_params(words)
    assert reason in str(refused.value)


@pytest.mark.parametrize("name", ["PENSTOCK_HOME", "TMPDIR", "_SPARK_AUTH_SECRET", "PYTHONPATH"])
def test_variables_that_penstock_sets_cannot_be_given(name: str) -> None:
    with pytest.raises(SettingError, match=f"--env: the variable {name} is set by Penstock itself"):
        read_env([f"{name}=x"])


def test_names_have_a_limit() -> None:
    assert params_fault({"a" * 100: ""}) is None
    assert "at most 100 characters" in str(params_fault({"a" * 101: ""}))


@pytest.mark.parametrize(("text", "line"), [(AT_MODULE_LEVEL, 4), (IN_A_TASK, 11)])
@pytest.mark.parametrize("command", ["run", "explain", "submit"])
def test_a_missing_parameter_is_told_before_anything_starts(
    file: Path, text: str, line: int, command: str
) -> None:
    file.write_text(text)
    done = CliRunner().invoke(command_line(), [command, str(file), "--param", "limit=3"])
    assert done.exit_code == 1
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"error: {file}, line {line}")
    assert "parameter 'since' is not given: give it with --param since=VALUE" in said


def test_what_code_can_do_without_is_not_missing(file: Path) -> None:
    file.write_text(OPTIONAL)
    result = ps.testing.run(ps.testing.load(file), {"in": [1]}, engine="local")
    assert [result[name][0].value for name in ("of_asks", "of_catches")] == ["never", "never"]


def test_explain_loads_a_job_with_its_parameters(file: Path) -> None:
    file.write_text(AT_MODULE_LEVEL)
    done = CliRunner().invoke(command_line(), ["explain", str(file), "--param", "since=2026-01-01"])
    assert (done.exit_code, done.stdout.partition(":")[0]) == (0, "Job dated")
    assert not ps.params, "the next command has its own"


def test_wrong_usage_is_exit_code_2(file: Path) -> None:
    file.write_text(AT_MODULE_LEVEL)
    done = CliRunner().invoke(command_line(), ["run", str(file), "--param", "since"])
    assert done.exit_code == 2
    assert "--param takes NAME=VALUE, not 'since'" in done.stderr


@pytest.mark.parametrize(("text", "values"), [(AT_MODULE_LEVEL, ["then now"]), (IN_A_TASK, [["now", "now"]])])
def test_tasks_read_them_in_tests(file: Path, text: str, values: list[object]) -> None:
    file.write_text(text)
    job = ps.testing.load(file, {"since": "then"})
    params = {"since": "now", "limit": "2"}
    result = ps.testing.run(job, {"in": [1]}, engine="local", params=params)
    assert [record.value for record in result["out"]] == values
    assert not ps.params


@pytest.mark.parametrize(
    ("values", "reason"), [({"n": 1}, "parameter 'n' is not text"), ({"a-b": ""}, "not a valid")]
)
def test_wrong_parameters_of_a_test_are_refused(file: Path, values: dict[str, str], reason: str) -> None:
    file.write_text(OPTIONAL)
    with pytest.raises(SettingError, match=reason):
        ps.testing.load(file, values)


def test_a_process_that_loads_a_blueprint_has_the_parameters_of_its_job(file: Path, tmp_path: Path) -> None:
    """The job's file is imported there, too, and jobs that run side by side share the process."""
    file.write_text(AT_MODULE_LEVEL)
    packed = {}
    for since in ("2025", "2026"):
        with params_set_to({"since": since}):
            job = ps.testing.load(file, {"since": since})
            sides = {stream: ps.MemorySink() for stream in SIDE_STREAMS}
            blueprint = make_blueprint(job, folder=tmp_path / since, buckets=1, sides=sides)
            packed[since] = pack_blueprint(blueprint.for_workers())
    sys.modules.pop("dated", None)
    set_params({})
    assert unpack_blueprint(packed["2025"]).params == {"since": "2025"}
    assert ps.params["since"] == "2025"
    for since in ("2026", "2025", "2026"):
        load_program(packed[since])
        assert ps.params["since"] == since


def test_the_error_of_a_missing_parameter_can_travel() -> None:
    error = pickle.loads(pickle.dumps(MissingParameterError("since")))
    assert (error.name, str(error)) == ("since", str(MissingParameterError("since")))
