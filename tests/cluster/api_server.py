"""Serves a master's application on a port of loopback that the system chooses, in a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from support.waiting import eventually


@contextmanager
def serving(make: Callable[[int], ASGIApp], deadline: float = 120.0) -> Iterator[str]:
    """Serve what ``make(port)`` returns; gives the URL."""
    # asyncio sends without delay only where the socket says that it is TCP; answers else take 40 ms each.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    port: int = listener.getsockname()[1]
    config = uvicorn.Config(
        make(port), log_level="critical", access_log=False, server_header=False, lifespan="on"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        eventually("the server has started", lambda: server.started or not thread.is_alive(), every=0.005)
        assert thread.is_alive(), "the server ended before it began"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(deadline)
        listener.close()
        assert not thread.is_alive(), "the server did not end in time"
