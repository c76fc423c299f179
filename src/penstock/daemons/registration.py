"""The registration of a node: which process of the machine has made it, and whether that one is dead."""

from __future__ import annotations

from dataclasses import replace

import psutil

from penstock.cluster.documents import NodeInfo
from penstock.daemons import launcher


def registration_of(info: NodeInfo) -> NodeInfo:
    """Return the registration of a node whose supervisor runs on this machine.

    It tells the process of the supervisor from all others that have had its pid.
    """
    return replace(info, ticks=launcher.ticks(info.pid), boot=launcher.boot())


def is_dead(other: NodeInfo, own: NodeInfo) -> bool:
    """Whether a registration of this node was left by a supervisor that is known to be dead.

    If nothing is known, its session is waited for. That is so for one of another run of the machine, which
    may be another machine with the same address, and for one of an earlier version whose pid is in use.
    """
    if other.host != own.host or (other.boot and other.boot != launcher.boot()):
        return False
    if not psutil.pid_exists(other.pid):
        return True
    begun = launcher.ticks(other.pid)
    # A process that has begun at another moment has only inherited the number.
    return begun is not None and other.ticks is not None and begun != other.ticks
