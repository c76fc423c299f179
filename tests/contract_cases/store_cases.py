"""What every store does, whatever it is made of. A test module says how to open one."""

from __future__ import annotations

from lock_cases import LockCases
from many_cases import ManyCases
from mirror_cases import MirrorCases
from node_cases import NodeCases
from session_cases import SessionCases
from transaction_cases import TransactionCases
from watch_cases import WatchCases


class StoreCases(NodeCases, ManyCases, TransactionCases, WatchCases, SessionCases, LockCases, MirrorCases):
    """All of it."""
