"""Executors of a job over several nodes: the command that a supervisor starts one with.

The driver has no executors of its own and takes those that report to it with the right secret. Spark itself
starts them like this too, only that it decides where.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from penstock.cluster.assignment_documents import ExecutorSlot
from penstock.cluster.worker_documents import WorkerInfo
from penstock.java_runtime import archive_options, find_java, java_options, spark_jars

_MAIN = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_SPARK = Path(__file__).parents[1] / "spark"
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "JAVA_HOME", "TMPDIR", "USER", "LD_LIBRARY_PATH")
"""The variables of the supervisor's environment that executors inherit."""

MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.invoke=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.cs=ALL-UNNAMED",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
    "--add-opens=java.base/sun.util.calendar=ALL-UNNAMED",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
)
"""What Spark opens to itself in Java: its own list, ``org.apache.spark.launcher.JavaModuleOptions``."""


def executor_id(ordinal: int, attempt: int) -> int:
    """Return a number for an executor that Spark has never used before.

    >>> executor_id(2, 17)
    2017
    """
    return ordinal * 1000 + attempt


def executor_command(
    info: WorkerInfo,
    slot: ExecutorSlot,
    number: int,
    *,
    host: str,
    secret: str,
    bundle: Path,
    storage: Path,
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> tuple[list[str], dict[str, str]]:
    """Return the command and the whole environment of an executor of a worker that has a driver.

    ``host`` is the node's address, ``bundle`` the folder with the job's code on that node, ``folder`` the
    executor's own. The secret is in the environment only, where no other user sees it.
    """
    given = os.environ if environment is None else environment
    command = [
        str(find_java()),
        *MODULE_OPTIONS,
        *archive_options(),
        f"-Xmx{max(slot.memory >> 20, 256)}m",
        "-Djdk.lang.Process.launchMechanism=VFORK",
        f"-Dlog4j2.configurationFile={(_SPARK / 'log4j2.properties').as_uri()}",
        *java_options(given),
        "-Dspark.authenticate=true",
        "-Dspark.network.crypto.enabled=true",
        "-cp",
        _class_path(),
        _MAIN,
        "--driver-url",
        info.driver_url,
        "--executor-id",
        str(number),
        "--hostname",
        host,
        "--bind-address",
        host,
        "--cores",
        str(slot.cores),
        "--app-id",
        info.app_id,
        "--resourceProfileId",
        "0",
    ]
    paths = [str(bundle), str(Path(__file__).parents[2]), given.get("PYTHONPATH", "")]
    return command, {
        **{name: given[name] for name in _PASSED_ON if name in given},
        "PENSTOCK_HOME": str(storage),
        "PENSTOCK_WORKER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_HOSTNAME": host,
        "_SPARK_AUTH_SECRET": secret,
    }


def _class_path() -> str:
    """Return the jars in the driver's order: a class data archive fits one order only."""
    jars = spark_jars()
    return os.pathsep.join([*map(str, sorted(jars.glob("slf4j-api-*.jar"))), f"{jars}/*"])
