"""Whether a daemon can listen somewhere on this machine."""

from __future__ import annotations

import socket


def address_fault(host: str, port: int) -> str:
    """Say why nobody can listen at an address; nothing when one can."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(1)
        except OSError as error:
            if error.errno == 99 or "assign" in (error.strerror or ""):
                return (
                    f"this machine has no address {host}. Linux has all of 127.0.0.0/8; on macOS add it:"
                    f" sudo ifconfig lo0 alias {host}"
                )
            if error.errno == 98 or "in use" in (error.strerror or ""):
                return f"{host}:{port} is used by another program: end that, or choose other ports by --port"
            return f"{host}:{port}: {error.strerror}"
    return ""
