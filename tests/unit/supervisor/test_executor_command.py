"""How an executor is started."""

from __future__ import annotations

import re
from pathlib import Path
from zipfile import ZipFile

import pytest

from penstock.cluster.assignment_documents import ExecutorSlot
from penstock.cluster.worker_documents import WorkerInfo
from penstock.java_runtime import spark_jars
from penstock.supervisor import executor_command as executors
from penstock.supervisor.executor_command import MODULE_OPTIONS, executor_command, executor_id

INFO = WorkerInfo(
    "job", 2, 3, "n1", 7, "running", 0.0, "spark://CoarseGrainedScheduler@127.0.0.1:4000", "app-1"
)
SECRET = "of-nobody-elses-business"


def _command() -> tuple[list[str], dict[str, str]]:
    return executor_command(
        INFO,
        ExecutorSlot(4, "n2", 3, 768 << 20),
        executor_id(4, 1),
        host="127.0.0.2",
        secret=SECRET,
        bundle=Path("/bundle"),
        storage=Path("/storage"),
        folder=Path("/instance"),
        environment={
            "PATH": "/bin",
            "PYTHONPATH": "/more",
            "AWS_SECRET": "x",
            "PENSTOCK_HOME": "/other",
            "PENSTOCK_JAVA_OPTIONS": "-XX:+UseZGC '-Dplace=a b'",
        },
    )


def test_an_executor_reports_to_the_driver_as_its_slot_says() -> None:
    command, _ = _command()
    main = command.index("org.apache.spark.executor.CoarseGrainedExecutorBackend")
    options = command[main + 1 :]
    assert dict(zip(options[::2], options[1::2], strict=True)) == {
        "--driver-url": INFO.driver_url,
        "--executor-id": "4001",
        "--hostname": "127.0.0.2",
        "--bind-address": "127.0.0.2",
        "--cores": "3",
        "--app-id": "app-1",
        "--resourceProfileId": "0",
    }
    assert "-Xmx768m" in command
    assert "-Dspark.authenticate=true" in command
    assert "-Dspark.network.crypto.enabled=true" in command


def test_the_secret_is_in_the_environment_alone() -> None:
    command, environment = _command()
    assert not any(SECRET in word for word in command)
    assert environment["_SPARK_AUTH_SECRET"] == SECRET


def test_the_environment_is_whole_and_has_nothing_of_the_supervisors() -> None:
    _, environment = _command()
    assert environment["PATH"] == "/bin"
    assert "AWS_SECRET" not in environment
    assert environment["PENSTOCK_HOME"] == "/storage"
    assert environment["PYTHONPATH"].startswith("/bundle:")
    assert environment["PYTHONPATH"].endswith(":/more")
    assert environment["SPARK_LOCAL_DIRS"] == "/instance/scratch"
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.2"


def test_java_gets_the_options_of_the_node() -> None:
    command, _ = _command()
    main = command.index("org.apache.spark.executor.CoarseGrainedExecutorBackend")
    assert {"-XX:+UseZGC", "-Dplace=a b"} <= set(command[:main])


def test_an_archive_of_classes_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "archive_options", lambda: ["-XX:SharedArchiveFile=/a.jsa"])
    command, _ = _command()
    main = command.index("org.apache.spark.executor.CoarseGrainedExecutorBackend")
    assert "-XX:SharedArchiveFile=/a.jsa" in command[:main]
    first, rest = command[main - 1].split(":")
    assert Path(first).name.startswith("slf4j-api-"), "as a driver has it, or the archive does not fit"
    assert rest == f"{spark_jars()}/*"


def test_java_is_opened_as_far_as_spark_itself_opens_it() -> None:
    jar = next(spark_jars().glob("spark-launcher_*.jar"))
    with ZipFile(jar) as archive:
        known = archive.read("org/apache/spark/launcher/JavaModuleOptions.class")
    words = re.findall(rb"-(?:-[a-z]|XX:|D)[\w.:/=+-]+", known)
    assert sorted(word.decode() for word in words) == sorted(MODULE_OPTIONS)
