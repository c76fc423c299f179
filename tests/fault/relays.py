"""A line to a server that can be cut by who may not touch the network: connections stay, and nothing goes."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

_PIECE = 65536


class Relay:
    """Listens on this machine and hands on to a server, unless it is cut."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._open = threading.Event()
        self._open.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listening]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        """Where it listens, as ``host:port``."""
        host, port = self._listening.getsockname()
        return f"{host}:{port}"

    def cut(self) -> None:
        """Hand nothing on any more; who is connected is not told."""
        self._open.clear()

    def heal(self) -> None:
        """Undo :meth:`cut`; what came meanwhile is handed on."""
        self._open.set()

    def close(self) -> None:
        """End all connections."""
        self._open.set()
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self._open.wait()
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                self._sockets += [client, server]
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._hand_on, args=ends, daemon=True).start()

    def _hand_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE):
                self._open.wait()
                target.sendall(piece)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
