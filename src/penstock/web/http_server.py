"""Runs an application's HTTP server in a thread, for masters and supervisors alike."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import uvicorn

from penstock.errors import SettingError

_STARTING = 10.0
_LEAVING = 3
"""Seconds that requests under way get to end."""


class _QuietServer(uvicorn.Server):
    """A server that wakes up for requests only; uvicorn's own looks ten times a second for its end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self._told = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._told.wait()

    def leave(self) -> None:
        """Have the server end; from any thread."""
        self.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._told.set)


class HttpServer:
    """An application that answers at ``url`` until it is closed."""

    def __init__(self, server: _QuietServer, listener: socket.socket, host: str) -> None:
        self.host = host
        self.port: int = listener.getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        self._server = server
        self._thread = threading.Thread(
            target=server.run, args=([listener],), name=f"http-{self.port}", daemon=True
        )
        self._thread.start()
        if not server.ready.wait(_STARTING):
            self.close()
            raise SettingError(f"the server at {self.url} did not start in {_STARTING:.0f} s")

    def close(self) -> None:
        """End the server: requests under way get some seconds; the port is free afterwards."""
        self._server.leave()
        self._thread.join(_LEAVING + 2)

    def __enter__(self) -> HttpServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(app: Any, host: str, port: int = 0) -> HttpServer:
    """Answer for an ASGI application; port 0 takes a free one. Raises SettingError if it cannot listen."""
    listener = _listen(host, port)
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=200,
        timeout_graceful_shutdown=_LEAVING,
    )
    return HttpServer(_QuietServer(config), listener, host)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sends small answers at once: 2 ms a request instead of 47.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise SettingError(f"cannot listen at {host}, port {port}: {reason}; choose another port") from error
    return listener
