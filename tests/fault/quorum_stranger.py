"""Somebody who speaks ZooKeeper's protocol between servers, knows no secret, and tells what it was given.

``python -I quorum_stranger.py MARKER HOST:PEER:ELECTION …``: as an observer it asks each server for its data
at the peer port, and for the leader at the election port. Prints a JSON object by port. Needs no package.
"""

from __future__ import annotations

import json
import socket
import struct
import sys

OBSERVER_INFO, LEADER_INFO, ACK_EPOCH = 16, 17, 18
LOOKING = 0
SERVER = 99
"""A number that none of the servers has."""
PATIENCE = 10.0


def packet(kind: int, zxid: int, data: bytes) -> bytes:
    """Return a QuorumPacket without authentication information."""
    return struct.pack(">iqi", kind, zxid, len(data)) + data + struct.pack(">i", -1)


def receive(connection: socket.socket, size: int) -> bytes:
    """Return so many bytes, or fewer when the other side has hung up or says nothing."""
    read = b""
    try:
        while len(read) < size and (chunk := connection.recv(min(size - len(read), 65536))):
            read += chunk
    except (TimeoutError, ConnectionResetError):
        pass
    return read


def ask_for_data(host: str, port: int, marker: bytes) -> str:
    """Join as an observer, as far as the server lets one."""
    try:
        connection = socket.create_connection((host, port), PATIENCE)
    except ConnectionRefusedError:
        return "nobody listens"  # Only the leader does.
    with connection:
        connection.sendall(packet(OBSERVER_INFO, 0, struct.pack(">qiq", SERVER, 0x10000, 0)))
        answer = receive(connection, 16)
        if len(answer) < 16:
            return f"refused after {len(answer)} bytes"
        kind, zxid, size = struct.unpack(">iqi", answer)
        if kind != LEADER_INFO:
            return f"packet {kind}"
        receive(connection, size + 4)
        connection.sendall(packet(ACK_EPOCH, 0, struct.pack(">i", zxid >> 32)))
        data = b""
        while marker not in data and (more := receive(connection, 1)):
            data += more
        return "data" if marker in data else "accepted"


def ask_for_leader(host: str, port: int) -> str:
    """Take part in an election, as far as the server lets one."""
    own = b"127.0.0.1:9"
    vote = struct.pack(">iqqqqii", LOOKING, SERVER, 0, 0, 0, 2, 0)
    with socket.create_connection((host, port), PATIENCE) as connection:
        connection.sendall(struct.pack(">qqi", -65536, SERVER, len(own)) + own)
        connection.sendall(struct.pack(">i", len(vote)) + vote)
        answer = receive(connection, 4)
        return "answered" if answer else "refused after 0 bytes"


def main() -> None:
    """Ask everywhere."""
    marker, *servers = sys.argv[1:]
    told = {}
    for server in servers:
        host, peer, election = server.split(":")
        told[f"{host}:{peer}"] = ask_for_data(host, int(peer), marker.encode())
        told[f"{host}:{election}"] = ask_for_leader(host, int(election))
    print(json.dumps(told))


if __name__ == "__main__":
    main()
