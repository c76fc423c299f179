"""What a process imports at its start, which is most of the processor time of a short one."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib import import_module

import pytest

import penstock as ps

_MASTER = """
from penstock.cli.main import run
sys.argv = ["penstock", "master", "--name", "a b", "--connect", "127.0.0.1:1"]
try:
    run()
except SystemExit as ended:
    assert ended.code == 3  # The name is wrong, which is found when all is imported and nothing is started.
"""
_CASES = {
    "the package": (
        "import penstock",
        {"dataclasses", "pydantic", "typer", "penstock.graph", "penstock.engine", "penstock.log"},
    ),
    "the folder of logs": ("from penstock.log import home", {"penstock.log.log", "penstock.log.segment"}),
    "a client": (
        "import penstock.cli.main, penstock.cli.job_status, penstock.web.master_client",
        {"rich", "click", "pygments", "penstock.graph", "penstock.log.log", "penstock.cluster.job_documents"},
    ),
    "a command that changes a job": (
        "import penstock.cli.main, penstock.cli.job_control, penstock.cli.job_submission;"
        "import penstock.web.master_client",
        {"pydantic", "fastapi", "pyspark", "penstock.settings_validation"},
    ),
    "a master": (
        _MASTER,
        {
            "rich.markdown",
            "pygments",
            "penstock.graph.job",
            "penstock.log.log",
            "penstock.supervisor.supervisor",
        },
    ),
    "a supervisor": (
        "import penstock.cli.supervisor_process, penstock.supervisor.supervisor;"
        "import penstock.bundles.bundle_cache",
        {"pydantic", "typer", "rich", "penstock.graph.job", "penstock.log.log", "importlib.metadata"},
    ),
    "a worker": (
        "import penstock.testing.local_engine_worker",
        {"psutil", "http.client", "pyarrow", "numpy", "penstock.backups.snapshots", "penstock.schedule"},
    ),
}


@pytest.mark.parametrize("case", _CASES)
def test_a_process_imports_only_what_it_needs_at_its_start(case: str) -> None:
    code, unneeded = _CASES[case]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*(n for n, m in sys.modules.items() if m))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = set(done.stdout.split())
    assert "penstock" in loaded
    assert sorted(loaded & unneeded) == []


@pytest.mark.parametrize("package", ["penstock", "penstock.log"])
def test_each_public_name_is_found_and_listed(package: str) -> None:
    module = import_module(package)
    names = module.__all__
    assert set(names) <= set(dir(module))
    assert [name for name in names if getattr(module, name, None) is None] == []
    assert set(module._LAZY) == set(names) - {"__version__", "testing"}


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'Jobb'"):
        _ = ps.Jobb


def test_what_is_imported_late_is_pickled_by_its_own_module() -> None:
    assert pickle.loads(pickle.dumps(ps.Count)) is ps.Count
    assert pickle.loads(pickle.dumps(ps.ctx)) is ps.ctx
    assert ps.ctx is import_module("penstock.engine.batch_context").ctx
