"""Collects log lines of a job from all nodes and from the masters of this machine, in order of time."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from penstock.cluster.client_requests import InvalidRequestError
from penstock.cluster.node_documents import NodeInfo
from penstock.node_client import NodeRequestError
from penstock.process_logs.log_reader import CursorError, read_lines
from penstock.web.supervisor_client import SupervisorClient

_MASTERS = ""
"""The key of the masters in a cursor; no node has this name."""
_LONGEST_CURSOR = 64 << 10


class ClusterLogs:
    """Implements :class:`penstock.master.cluster_queries.LogReader`.

    A page contains an equal number of lines from each place, sorted by time. A node that does not answer is
    left out; its cursor does not move, so the next page asks it for the same lines.
    """

    def __init__(self, client: SupervisorClient, own_files: Callable[[], list[Path]]) -> None:
        self._client = client
        self._own_files = own_files

    def read(self, job: str, nodes: Mapping[str, NodeInfo], cursor: str, limit: int) -> dict[str, Any]:
        cursors = _decode(cursor)
        places = {name: node.url for name, node in sorted(nodes.items()) if node.url}
        share = max(1, limit // (len(places) + 1))
        try:
            lines, cursors[_MASTERS] = read_lines(self._own_files(), cursors.get(_MASTERS, ""), job, share)
        except CursorError as error:
            raise InvalidRequestError(str(error)) from error

        def ask(name: str) -> tuple[list[dict[str, Any]], str]:
            return self._client.logs(places[name], job, cursors.get(name, ""), share)

        with ThreadPoolExecutor(max_workers=min(8, len(places)) or 1) as pool:
            for name, answer in [(name, pool.submit(ask, name)) for name in places]:
                try:
                    more, cursors[name] = answer.result()
                except NodeRequestError:
                    continue
                lines += more
        lines.sort(key=lambda line: str(line["timestamp"]))
        return {"lines": lines, "cursor": _encode(cursors)}


def _encode(cursors: Mapping[str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(cursors, sort_keys=True).encode()).decode()


def _decode(cursor: str) -> dict[str, str]:
    """Decode a cursor that a client has sent. Raises InvalidRequestError.

    >>> _decode(_encode({"n1": "abc"}))
    {'n1': 'abc'}
    """
    if not cursor:
        return {}
    try:
        if len(cursor) > _LONGEST_CURSOR:
            raise ValueError
        found = json.loads(base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True))
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise ValueError
    except (ValueError, RecursionError):
        raise InvalidRequestError("this is not a cursor of these logs: start again without one") from None
    return found
