"""The main program of a worker, the process that runs one job as a Spark driver.

``python -m penstock.worker.worker_main INSTANCE_FOLDER``. This module sets up the process and its log, loads
the job, and reports how the worker ended.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from penstock.bundles.bundle_manifest import find_entry
from penstock.bundles.bundle_signature import BundleAccessError, BundleError
from penstock.coord.coordination_store import Store
from penstock.daemon.worker_folder import (
    EXIT_ENDED,
    EXIT_FAILED,
    EXIT_REFUSED,
    LOG_FILE,
    OUTPUT_FILE,
    WORKER,
    WorkerConfig,
    read_worker_config,
    write_exit,
)
from penstock.engine.batch_context import ctx
from penstock.errors import GraphError, IncompatibleJobError, PenstockError, SettingError, cause_of, trace_of
from penstock.graph.job import Job
from penstock.graph.job_loader import load_job
from penstock.keyring import Keyring, open_keyring
from penstock.parameters import is_secret, set_params
from penstock.process_logs.output_capture import capture_user_output as install_output
from penstock.process_logs.output_capture import flush_partial_line, is_user_record
from penstock.process_logs.process_log import bind, configure, get_logger
from penstock.process_logs.redaction import SHORTEST_SECRET, redact, register_secret
from penstock.process_logs.user_output import OutputPlace
from penstock.worker.worker_engine import EngineOf, SparkEngine
from penstock.worker.worker_lifecycle import Worker, install_signal_handlers

_MAX_REASON = 1000
_CLOSE_SECONDS = 20.0

_log = get_logger("penstock.worker.worker_main")


def main(
    arguments: list[str],
    connect: Callable[[WorkerConfig, Keyring], Store] | None = None,
    engine_of: EngineOf = SparkEngine,
) -> int:
    """Run the worker of an instance folder, and return its exit code."""
    if len(arguments) != 1:
        print("usage: python -m penstock.worker.worker_main INSTANCE_FOLDER", file=sys.stderr)  # noqa: T201
        return 2
    folder = Path(arguments[0]).absolute()
    os.umask(0o077)
    try:
        instance = read_worker_config(folder)
        ring = open_keyring(Path(instance.key_folder))
    except PenstockError as error:
        return _report_exit(folder, "failed", error, EXIT_FAILED)
    _set_up_process(folder, instance)
    configure(
        "worker",
        file=folder / LOG_FILE,
        node=instance.node,
        job=instance.job,
        accepts=lambda record: not is_user_record(record),
    )
    bind(revision=instance.revision, attempt=instance.attempt)
    register_secrets(instance, ring)
    place = OutputPlace.of_environment(os.environ)
    install_output(place or OutputPlace(str(folder), instance.node, instance.job, WORKER), ctx.running_vertex)
    connecting = connect or _connect
    return _work(
        folder, Worker(folder, instance, ring, lambda: connecting(instance, ring), engine_of), instance
    )


def register_secrets(instance: WorkerConfig, ring: Keyring) -> None:
    """Keep the secrets of the cluster, and secret parameters and variables of the job, out of the log.

    Short values are not registered: they occur in other words, and replacing them there would reveal them.
    """
    for secret in (*ring.secrets, ring.spark_secret(instance.job, instance.revision, instance.attempt)):
        register_secret(secret)
    given = [*instance.assignment.params.items()]
    given += [(name, os.environ.get(name, "")) for name in instance.assignment.env]
    for name, value in given:
        if is_secret(name) and len(value) >= SHORTEST_SECRET:
            register_secret(value)


def _work(folder: Path, worker: Worker, instance: WorkerConfig) -> int:
    install_signal_handlers(worker)
    try:
        worker.begin()
        ended = worker.run(_load(instance))
        write_exit(folder, ended.outcome, ended.reason)
        _log.info("ended", outcome=ended.outcome, reason=ended.reason)
    except PenstockError as error:
        if worker.superseded(error):
            return _report_exit(folder, "superseded", error, EXIT_ENDED)
        if isinstance(error, GraphError | IncompatibleJobError | _UnusableError):
            code = _report_exit(folder, "refused", error, EXIT_REFUSED)
            worker.refuse(one_line(error))
            return code
        return _report_exit(folder, "failed", error, EXIT_FAILED)
    except Exception as error:
        return _report_exit(folder, "failed", error, EXIT_FAILED)
    finally:
        worker.close()
    return EXIT_ENDED


def _report_exit(folder: Path, outcome: str, error: Exception, code: int) -> int:
    reason = one_line(error)
    trace = getattr(error, "trace", "") or ("" if isinstance(error, PenstockError) else trace_of(error))
    write = _log.info if code == EXIT_ENDED else _log.error
    write(outcome, reason=reason, **({"trace": trace} if trace else {}))
    if folder.is_dir():
        write_exit(folder, outcome, reason)
    return code


def one_line(error: Exception) -> str:
    """Return the message of an error in one line and without secrets, as the status of the job shows it.

    >>> one_line(SettingError("there is no key:\\n  - copy it"))
    'there is no key: - copy it'
    """
    message = str(error) if isinstance(error, PenstockError) else cause_of(error)
    text = redact(" ".join(message.split()))
    return text if len(text) <= _MAX_REASON else text[:_MAX_REASON] + "…"


class _UnusableError(SettingError):
    """The bundle contains no job that can run; another attempt would fail in the same way."""


class _NodeFaultError(PenstockError):
    """The job cannot be loaded on this node now; another attempt or another node may succeed."""


def _load(instance: WorkerConfig) -> Job:
    """Load the job from its bundle.

    Raises _UnusableError for errors that occur on every node, and _NodeFaultError for errors that may be
    specific to this node: a damaged copy of the bundle, a missing module or file.
    """
    try:
        return _load_from_bundle(instance)
    except BundleAccessError as error:
        raise _NodeFaultError(f"node {instance.node} cannot load the job: {error}") from error
    except (SettingError, BundleError) as error:
        if _is_node_fault(error):
            raise _NodeFaultError(f"node {instance.node} cannot load the job: {error}") from error
        raise _UnusableError(str(error)) from error


def _is_node_fault(error: BaseException) -> bool:
    """Return whether an error was caused by a module, a file or a connection that another node may have."""
    cause = error.__cause__
    return cause is not None and (isinstance(cause, ImportError | OSError) or _is_node_fault(cause))


def _load_from_bundle(instance: WorkerConfig) -> Job:
    set_params(instance.assignment.params)
    bundle = Path(instance.bundle)
    file = find_entry(bundle, instance.assignment.entry)
    sys.path.insert(0, str(bundle))
    _, colon, name = instance.assignment.entry.partition(":")
    job = load_job(f"{file}{colon}{name}")
    job.validate()
    wanted = instance.replica.job
    if job.name != wanted:
        raise SettingError(f"{instance.assignment.entry} defines job {job.name!r}, not {wanted!r}")
    return job


def _set_up_process(folder: Path, instance: WorkerConfig) -> None:
    """Set the home, the working folder and the output of this process and its children."""
    os.environ["PENSTOCK_HOME"] = instance.storage
    os.chdir(folder)
    descriptor = os.open(folder / OUTPUT_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _connect(instance: WorkerConfig, ring: Keyring) -> Store:
    from penstock.coord.zookeeper_store import ZooKeeperStore

    return ZooKeeperStore.connect(instance.connect, ring.store_password, root=instance.root)


def exit_worker(code: int) -> NoReturn:
    """Exit the process even if user threads still run; stop Java first if it responds within 20 seconds."""
    threading.Timer(_CLOSE_SECONDS, os._exit, (code,)).start()
    if "penstock.spark.spark_session" in sys.modules:
        from penstock.spark.spark_session import close_session

        close_session()
    flush_partial_line()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    exit_worker(main(sys.argv[1:]))
