"""What a cluster's Spark starts in place of its own daemon of Python workers: ``python -m ... MODULE``.

Functions that a ``ps.DataFrameTask`` has made Spark functions of (UDFs) run in workers that know nothing of
Penstock. What they print and log is kept as that of all other user code, without a vertex: Spark calls
functions of several vertices from one place.
"""

from __future__ import annotations

from socket import socket

from pyspark import daemon

from penstock.engine.context import ctx
from penstock.running_code import code_of
from penstock.user_output import install_in_spark

_work = daemon.worker


def work(sock: socket, authenticated: bool) -> int:
    """Do as a worker of Spark does, in a process that was forked for it."""
    install_in_spark(ctx.running_vertex)
    with code_of(""):
        return _work(sock, authenticated)


if __name__ == "__main__":
    daemon.worker = work
    daemon.manager()
