"""The client of the masters.

It tries them in turn, waits while a leader is elected, and never repeats a change that may have been made.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import httpx

from penstock.node_client import http_client
from penstock.web.cluster_access import ClientError, UnreachableError

if TYPE_CHECKING:
    from penstock.cluster.client_requests import Submission


_BASE = "/api/v1"
_PAUSE = 0.5
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Errors after which no request was sent, so that it can safely be sent to another master."""
_NOTHING_CHANGED = frozenset({"no_leader", "leader_unreachable"})


class MasterClient:
    """Sends requests to masters; methods correspond to :class:`penstock.master.master_service.MasterService`.

    While the masters elect a leader it waits, for ``patience`` seconds at most. A change that may have been
    made is never sent twice. Raises ClientError when a request is refused, UnreachableError when no master
    answers.
    """

    def __init__(
        self, urls: Sequence[str], token: str, *, patience: float = 15.0, timeout: float = 60.0
    ) -> None:
        self.token = token
        self._urls = list(urls)
        self._patience = patience
        self._http = http_client(
            token,
            timeout=timeout,
            connect=3.0,
            certificates=any(url.lower().startswith("https:") for url in urls),
        )

    def __enter__(self) -> MasterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def cluster(self) -> dict[str, Any]:
        """Return the state of the cluster."""
        return self._object("GET", "/cluster")

    def nodes(self) -> list[dict[str, Any]]:
        """Return all nodes."""
        return self._list("/nodes")

    def node(self, name: str) -> dict[str, Any]:
        """Return a node."""
        return self._object("GET", f"/nodes/{_part(name)}")

    def jobs(self) -> list[dict[str, Any]]:
        """Return all jobs."""
        return self._list("/jobs")

    def job(self, name: str) -> dict[str, Any]:
        """Return a job."""
        return self._object("GET", f"/jobs/{_part(name)}")

    def logs(self, name: str, cursor: str = "", limit: int = 500) -> dict[str, Any]:
        """Return a page of a job's log."""
        return self._object("GET", f"/jobs/{_part(name)}/logs", params={"cursor": cursor, "limit": limit})

    def alarms(self) -> list[dict[str, Any]]:
        """Return all alarms."""
        return self._list("/alarms")

    def put_bundle(self, sha256: str, signature: str, data: bytes) -> dict[str, Any]:
        """Store a bundle."""
        headers = {"X-Penstock-Signature": signature, "Content-Type": "application/zip"}
        return self._object("PUT", f"/bundles/{_part(sha256)}", content=data, headers=headers, again=True)

    def submit(self, submission: Submission, bundle: str) -> dict[str, Any]:
        """Submit a job whose bundle was stored before."""
        return self._object("POST", "/jobs", json=_document(submission, bundle))

    def update(self, name: str, submission: Submission, bundle: str) -> dict[str, Any]:
        """Replace the code of a job."""
        return self._object("POST", f"/jobs/{_part(name)}/update", json=_document(submission, bundle))

    def set_params(
        self, name: str, params: Mapping[str, str], env: Mapping[str, str | None]
    ) -> dict[str, Any]:
        """Change parameters and environment variables of a job; others keep their values."""
        wanted = {"params": dict(params), "env": dict(env)}
        return self._object("POST", f"/jobs/{_part(name)}/params", json=wanted)

    def replicate(self, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change replica settings of a job: fields of :class:`penstock.job_settings.Replicas`."""
        return self._object("POST", f"/jobs/{_part(name)}/replicate", json=dict(changes))

    def migrate(self, name: str, node: str) -> dict[str, Any]:
        """Move a job's driver."""
        return self._object("POST", f"/jobs/{_part(name)}/migrate", json={"node": node})

    def scale(self, name: str, changes: Mapping[str, int], nodes: Sequence[str] | None) -> dict[str, Any]:
        """Change the resources of a job, and the nodes that it may use."""
        wanted = {**changes, **({} if nodes is None else {"nodes": list(nodes)})}
        return self._object("POST", f"/jobs/{_part(name)}/scale", json=wanted)

    def kill(self, name: str, drain: bool) -> dict[str, Any]:
        """End a job."""
        return self._object("DELETE", f"/jobs/{_part(name)}", params={"drain": drain})

    def resubmit(self, name: str, fresh: bool) -> dict[str, Any]:
        """Restart a job."""
        return self._object("POST", f"/jobs/{_part(name)}/resubmit", json={"fresh": fresh})

    def forget(self, name: str, data: bool) -> dict[str, Any]:
        """Remove a job that has ended or failed, and with ``data`` its positions, state and other data."""
        return self._object("POST", f"/jobs/{_part(name)}/forget", json={"data": data})

    def placement(self, name: str) -> dict[str, Any]:
        """Return the placement of a job and the reasons for it."""
        return self._object("GET", f"/jobs/{_part(name)}/placement")

    def rebalance(self, dry_run: bool) -> dict[str, Any]:
        """Move drivers to emptier nodes, or only return the moves."""
        return self._object("POST", "/rebalance", json={"dry_run": dry_run})

    def clear(self, alarm: str) -> None:
        """Clear an alarm."""
        self._ask("DELETE", f"/alarms/{_part(alarm)}")

    def _object(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        found = self._ask(method, path, **options)
        if not isinstance(found, dict):
            raise UnreachableError("the response is not that of a Penstock master")
        return found

    def _list(self, path: str) -> list[dict[str, Any]]:
        found = self._ask("GET", path)
        if not isinstance(found, list):
            raise UnreachableError("the response is not that of a Penstock master")
        return found

    def _ask(self, method: str, path: str, *, again: bool = False, **options: Any) -> Any:
        """Send a request until a master answers; ``again`` marks a change that may safely be made twice."""
        repeatable = again or method == "GET"
        deadline = time.monotonic() + self._patience
        while True:
            reasons: list[str] = []
            electing = False
            for url in self._urls:
                try:
                    return _read(self._http.request(method, f"{url}{_BASE}{path}", **options))
                except _NOT_SENT:
                    reasons.append(f"{url} cannot be reached")
                except httpx.HTTPError as error:
                    if not repeatable:
                        raise _unknown_outcome(f"{url} did not answer ({type(error).__name__})") from error
                    reasons.append(f"{url} did not answer")
                except ClientError as error:
                    if error.status not in (502, 503):
                        raise
                    if not repeatable and error.code not in _NOTHING_CHANGED:
                        raise _unknown_outcome(str(error)) from error
                    electing = True
                    reasons.append(f"{url}: {error}")
            # Only an election is worth waiting for; a master that does not listen will not start soon.
            if not electing or time.monotonic() >= deadline:
                raise UnreachableError("no master can serve this: " + "; ".join(reasons))
            time.sleep(_PAUSE)


def _unknown_outcome(reason: str) -> UnreachableError:
    return UnreachableError(f"{reason}: the change may have been made; check before you repeat it")


def _read(response: httpx.Response) -> Any:
    """Return the content of a response. Raises ClientError when the request was refused."""
    if response.status_code == httpx.codes.NO_CONTENT:
        return {}
    try:
        content = response.json()
    except ValueError:
        content = None
    if response.is_success and content is not None:
        return content
    error = content.get("error") if isinstance(content, dict) else None
    if not isinstance(error, dict):
        raise ClientError(
            f"{response.url.copy_with(query=None)} answered with status {response.status_code}, "
            "but not in the format of a Penstock master",
            "not_penstock",
            response.status_code if not response.is_success else 500,
        )
    message = str(error.get("message", ""))
    if response.status_code == httpx.codes.UNAUTHORIZED:
        message += " (set PENSTOCK_TOKEN, or copy the file token to the cluster's folder)"
    raise ClientError(message, str(error.get("code", "")), response.status_code)


def _part(name: str) -> str:
    """Return a name for use in a path; names need no encoding. Raises ClientError for an invalid name."""
    if not name or not all(
        character.isascii() and (character.isalnum() or character in "._-") for character in name
    ):
        raise ClientError(f"{name!r} is not a valid name", "unknown", 404)
    return name


def _document(submission: Submission, bundle: str) -> dict[str, Any]:
    return {**asdict(submission), "bundle": bundle}


@dataclass(frozen=True)
class ProbeAnswer:
    """The response to a probe."""

    content: Any
    """Decoded JSON, or the text."""


def probe_url(url: str, *, token: str = "") -> ProbeAnswer | None:
    """Return the response to a GET request; None when no server answers, or with an error status."""
    try:
        with http_client(token, timeout=2.0, connect=2.0, certificates=url.startswith("https:")) as http:
            answer = http.get(url)
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    if not answer.is_success:
        return None
    try:
        return ProbeAnswer(answer.json())
    except ValueError:
        return ProbeAnswer(answer.text)
