"""A supervisor's agent over real HTTP on loopback."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from served_agent import TOKEN, ServedAgent

from penstock.bundles.blob_store import BlobStore
from penstock.bundles.bundle_limits import MOST_PACKED
from penstock.bundles.bundle_signature import sha256_of
from penstock.bundles.bundle_store import BlobTransport
from penstock.errors import SettingError
from penstock.node_client import NodeRequestError
from penstock.process_logs import redaction
from penstock.web.http_server import serve
from penstock.web.supervisor_api import make_supervisor_api
from penstock.web.supervisor_client import SupervisorClient
from support.waiting import eventually

DATA = b"bundle" * 50_000
SHA = sha256_of(DATA)


class Node(ServedAgent):
    """One supervisor's agent, its folders and a client with the right token."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log.jsonl"
        self.blobs = BlobStore(folder / "blobs")
        agent = make_supervisor_api(self.blobs, lambda: [self.log], TOKEN, "n1", hosts=["node-1.example"])
        super().__init__(agent)
        self.client = SupervisorClient(TOKEN)

    def close(self) -> None:
        self.client.close()
        super().close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.close()


def test_blobs_are_brought_and_fetched(node: Node) -> None:
    blobs: BlobTransport = node.client
    blobs.put(node.url, SHA, DATA)
    blobs.put(node.url, SHA, DATA)
    assert blobs.get(node.url, SHA) == DATA
    assert node.blobs.names() == [SHA]
    with pytest.raises(NodeRequestError, match="404: there is no blob"):
        blobs.get(node.url, "0" * 64)
    with pytest.raises(NodeRequestError, match="422: the content received for blob"):
        blobs.put(node.url, "0" * 64, DATA)
    assert node.blobs.names() == [SHA]


def test_a_blob_damaged_on_disk_is_not_sent(node: Node) -> None:
    node.client.put(node.url, SHA, DATA)
    (node.folder / "blobs" / SHA).write_bytes(DATA[1:])
    with pytest.raises(NodeRequestError, match=r"422: .*damaged"):
        node.client.get(node.url, SHA)


def test_logs_are_given_bit_by_bit(node: Node) -> None:
    lines = [
        {"timestamp": f"2026-01-01T00:00:0{n}.000000Z", "job": "ab"[n % 2], "event": "x"} for n in range(6)
    ]
    node.log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first, cursor = node.client.logs(node.url, "a", limit=2)
    second, cursor = node.client.logs(node.url, "a", cursor, limit=2)
    assert first + second == lines[::2]
    assert node.client.logs(node.url, "a", cursor) == ([], cursor)
    with pytest.raises(NodeRequestError, match="400: this is not a cursor"):
        node.client.logs(node.url, "a", "../../etc/passwd")


def test_what_user_code_has_printed_is_given_without_the_secrets_of_the_cluster(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redaction, "_secrets", {"the-token-of-all"})
    printed = {"timestamp": "2026-01-01T00:00:00.000000Z", "job": "a", "stream": "stdout", "pid": 7}
    node.log.write_text(json.dumps({**printed, "event": "found the-token-of-all"}) + "\n")
    [line], _ = node.client.logs(node.url, "a")
    assert line == {**printed, "event": "found [redacted]"}


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "job=../x", "job=a%2Fb", "cursor=%00"]
)
def test_questions_that_make_no_sense_are_refused(node: Node, query: str) -> None:
    answer = node.http.get(f"/logs?{query}")
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}


def test_alive_needs_no_token_and_all_else_does(node: Node) -> None:
    with httpx.Client(base_url=node.url, trust_env=False, timeout=60) as stranger:
        assert stranger.get("/livez").json() == {"status": "ok", "node": "n1"}
        for method, path in [
            ("GET", f"/blobs/{SHA}"),
            ("PUT", f"/blobs/{SHA}"),
            ("GET", "/logs"),
            ("GET", "/x"),
        ]:
            for given in (None, "", "Bearer", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN):
                headers = {} if given is None else {"Authorization": given}
                answer = stranger.request(
                    method, path, headers=headers, content=b"x" if method == "PUT" else None
                )
                assert answer.status_code == 401, (method, path, given)
                assert answer.json() == {"error": "the token is missing or wrong"}
                assert answer.headers["www-authenticate"] == "Bearer"
    assert node.blobs.names() == []
    with pytest.raises(NodeRequestError, match="401"), SupervisorClient("wrong") as client:
        client.put(node.url, SHA, b"small")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "0.0.0.0", "localhost.:80"])
def test_other_hosts_are_refused(node: Node, host: str) -> None:
    for path in ("/livez", "/logs"):
        assert node.http.get(path, headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:99", "[::1]:80", "node-1.example:80", "127.0.0.1"])
def test_its_own_hosts_are_served(node: Node, host: str) -> None:
    assert node.http.get("/logs", headers={"Host": host}).status_code == 200


def test_browsers_are_refused_and_get_no_cors(node: Node) -> None:
    for origin in ("http://evil.example", "null", node.url):
        answer = node.http.get("/logs", headers={"Origin": origin})
        assert answer.status_code == 403
        assert not [name for name in answer.headers if name.startswith("access-control")]
    preflight = {"Origin": "http://evil.example", "Access-Control-Request-Method": "PUT"}
    assert node.http.options("/logs", headers=preflight).status_code == 403


def raw_request(node: Node, target: str, *, method: str = "GET") -> tuple[int, bytes]:
    """Send a path as it is, without what a client would tidy up."""
    connection = http.client.HTTPConnection("127.0.0.1", node.served.port, timeout=60)
    connection.putrequest(method, target, skip_host=True)
    connection.putheader("Host", "127.0.0.1")
    connection.putheader("Authorization", f"Bearer {TOKEN}")
    connection.putheader("Content-Length", "0")
    connection.endheaders()
    answer = connection.getresponse()
    result = answer.status, answer.read()
    connection.close()
    return result


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize(
    "name",
    [
        "../log.jsonl",
        "..%2flog.jsonl",
        "%2e%2e%2flog.jsonl",
        "%252e%252e%252flog.jsonl",
        "..%5clog.jsonl",
        "%2fetc%2fpasswd",
        "x%00",
        "A" * 64,
        "%c0%ae%c0%ae%c0%af",
        "",
        ".",
    ],
)
def test_no_path_leads_out_of_the_folder(node: Node, method: str, name: str) -> None:
    node.log.write_text('{"secret line": 1}\n')
    status, body = raw_request(node, f"/blobs/{name}", method=method)
    assert status in (400, 404)
    assert set(json.loads(body)) == {"error"}
    assert b"secret line" not in body
    assert sorted(path.name for path in node.folder.iterdir()) == ["blobs", "log.jsonl"]
    assert node.blobs.names() == []


def test_other_methods_and_paths_are_answered_in_json(node: Node) -> None:
    for method, path, status in [
        ("DELETE", f"/blobs/{SHA}", 405),
        ("POST", "/logs", 405),
        ("GET", "/", 404),
        ("GET", "/logs/", 404),
    ]:
        answer = node.http.request(method, path)
        assert (answer.status_code, set(answer.json())) == (status, {"error"})


def test_bodies_that_are_too_large_are_refused_at_once_or_on_the_way(node: Node) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", node.served.port, timeout=60)
    connection.putrequest("PUT", f"/blobs/{SHA}")
    connection.putheader("Authorization", f"Bearer {TOKEN}")
    connection.putheader("Content-Length", str(MOST_PACKED + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    node.served.close()
    small = BlobStore(node.folder / "blobs", max_size=100_000)
    with serve(make_supervisor_api(small, list, TOKEN, "n1"), "127.0.0.1") as served:

        def chunks() -> Iterator[bytes]:
            for _ in range(3):
                yield b"x" * 50_000

        answer = httpx.put(
            f"{served.url}/blobs/{SHA}",
            content=chunks(),
            headers={"Authorization": f"Bearer {TOKEN}"},
            trust_env=False,
            timeout=60,
        )
    assert answer.status_code == 413
    assert list((node.folder / "blobs").iterdir()) == []


def test_a_client_that_goes_away_leaves_nothing(node: Node) -> None:
    with socket.create_connection(("127.0.0.1", node.served.port)) as connection:
        head = f"PUT /blobs/{SHA} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        connection.sendall(f"{head}Content-Length: 1000000\r\n\r\n".encode() + b"x" * 1000)
        eventually("a part of the blob", lambda: any((node.folder / "blobs").iterdir()))
    eventually("the part is removed", lambda: not any((node.folder / "blobs").iterdir()))
    node.client.put(node.url, SHA, DATA)


def test_failures_say_nothing_of_their_cause(node: Node) -> None:
    def broken() -> list[Path]:
        raise RuntimeError("inner secret")

    with (
        serve(make_supervisor_api(node.blobs, broken, TOKEN, "n1"), "127.0.0.1") as served,
        pytest.raises(NodeRequestError, match="500: the supervisor failed to answer") as raised,
        SupervisorClient(TOKEN) as client,
    ):
        client.logs(served.url, "a")
    assert "inner secret" not in str(raised.value)


def test_refusals_are_logged_without_the_token(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), caplog.at_level(logging.WARNING, logger="penstock"):
        node.http.get("/logs", headers={"Authorization": "Bearer almost-the-token"})
    assert "request refused" in caplog.text
    assert "almost-the-token" not in caplog.text


class Liar:
    """A server that is no agent: it answers whatever is asked with the same."""

    def __init__(self, answer: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._answer = answer
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.recv(65536)
            try:
                connection.sendall(self._answer)
            except OSError:
                return

    def close(self) -> None:
        self._listener.close()
        self._thread.join(10)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "sent other content"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", "does not answer"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "answered 302"),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\n[]", "no reason was given"),
        (b"garbage\r\n\r\n", "does not answer"),
    ],
)
def test_the_client_trusts_no_answer(answer: bytes, reason: str) -> None:
    liar = Liar(answer)
    try:
        with SupervisorClient(TOKEN) as client, pytest.raises(NodeRequestError, match=reason):
            client.get(liar.url, SHA)
    finally:
        liar.close()


def test_the_client_says_who_does_not_answer() -> None:
    with SupervisorClient(TOKEN, connect=0.5) as client:
        for url in ("http://127.0.0.1:1", "no url", "file:///etc/passwd", "http://[bad"):
            with pytest.raises(NodeRequestError, match="does not answer"):
                client.get(url, SHA)


def test_a_port_in_use_is_named_and_free_after_the_end(node: Node) -> None:
    port = node.served.port
    with pytest.raises(SettingError, match=f"port {port}: .*choose another port"):
        serve(None, "127.0.0.1", port)
    node.served.close()
    node.served.close()
    with serve(make_supervisor_api(node.blobs, list, TOKEN, "n1"), "127.0.0.1", port) as again:
        assert httpx.get(f"{again.url}/livez", trust_env=False, timeout=60).status_code == 200


def test_an_agent_loads_nothing_heavy() -> None:
    """A supervisor has 50 MB for all that it does."""
    code = (
        "import sys, penstock.web.supervisor_api, penstock.web.http_server, penstock.bundles.bundle_store;"
        "from penstock.web.supervisor_client import SupervisorClient;"
        "SupervisorClient('token').close(); print(*sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    heavy = {"rich", "pygments", "httpx", "fastapi", "pydantic", "pyspark", "pandas", "numpy", "pyarrow"}
    assert heavy & set(run.stdout.split()) == set()


def test_a_server_that_nobody_asks_does_nothing(node: Node) -> None:
    assert node.http.get("/livez").status_code == 200
    # Not at once perhaps: what the question has left may be tidied up yet. What ticks does so all the time.
    assert any(_is_idle(node) for _ in range(5))


def _is_idle(node: Node) -> bool:
    before = _spent(node)
    # This is about what happens while nothing does: there is no condition to wait for.
    time.sleep(2.0)
    return _spent(node) - before < 0.015  # the system counts in hundredths


def _spent(node: Node) -> float:
    """Return the seconds of CPU that the server's thread has used: other tests may have left others."""
    (thread,) = [each for each in threading.enumerate() if each.name == f"http-{node.served.port}"]
    (spent,) = [each for each in psutil.Process().threads() if each.id == thread.native_id]
    return spent.user_time + spent.system_time
