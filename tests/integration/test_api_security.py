"""What a master refuses, over real HTTP: each is refused, logged, and changes nothing."""

from __future__ import annotations

import copy
import hashlib
import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import api_cases
import pytest
from api_cases import Target, ask
from api_server import serving
from fake_master import FakeMaster
from logged_events import logged_events

from penstock.bundles.bundle_signature import sign
from penstock.cluster.client_requests import RefusedError
from penstock.coord.coordination_store import DisconnectedError
from penstock.keyring import signing_key
from penstock.web.master_api import make_master_api
from penstock.web.request_guard import Limits

TOKEN = "5ec7e7" * 10 + "beef"
CODE = b"the code of a job"
DIGEST = hashlib.sha256(CODE).hexdigest()
LIMITS = Limits(bundle=1 << 20, document=1 << 18)


@pytest.fixture
def logged() -> Iterator[list[Mapping[str, Any]]]:
    with logged_events() as entries:
        yield entries


@pytest.fixture
def master() -> FakeMaster:
    master = FakeMaster(TOKEN)
    master.put_bundle(DIGEST, signature(CODE), CODE)
    return master


def signature(data: bytes) -> str:
    return sign(data, signing_key(TOKEN))


@pytest.fixture
def target(master: FakeMaster, logged: list[Mapping[str, Any]]) -> Iterator[Target]:
    def state() -> Any:
        return copy.deepcopy((master.changes, master.bundles, master.specs, master.phases, master.alarm_list))

    def refusals() -> list[Mapping[str, Any]]:
        return [entry for entry in logged if entry["event"] == "request refused"]

    with serving(lambda _: make_master_api(master, TOKEN, hosts=["127.0.0.1"], limits=LIMITS)) as url:
        yield Target(url, TOKEN, state, refusals)


def submitted(target: Target, name: str = "counting", **more: Any) -> api_cases.Reply:
    content = {"bundle": DIGEST, "entry": "job.py", "structure": {"name": name}, **more}
    body = json.dumps(content).encode()
    return ask(target, "POST", "/api/v1/jobs", body=body, Content_Type="application/json")


def test_without_a_token(target: Target) -> None:
    api_cases.check_no_token(target)


def test_with_a_wrong_token(target: Target) -> None:
    api_cases.check_wrong_token(target)


def test_for_a_wrong_host(target: Target) -> None:
    api_cases.check_wrong_host(target)


def test_from_a_wrong_origin(target: Target) -> None:
    api_cases.check_wrong_origin(target)


def test_delete_from_a_browser(target: Target, master: FakeMaster) -> None:
    assert submitted(target).status == 201
    api_cases.check_delete_from_browser(target, "counting")
    assert master.phases["counting"].phase == "RUNNING"
    assert ask(target, "DELETE", "/api/v1/jobs/counting").status == 200
    assert master.phases["counting"].phase == "ENDED"


def test_paths_that_lead_elsewhere(target: Target) -> None:
    api_cases.check_traversal(target)


def test_bodies_that_are_too_large(target: Target) -> None:
    api_cases.check_oversized(target, LIMITS.document, LIMITS.bundle)
    api_cases.check_declared_only(target)


def test_bundles_that_were_tampered_with(target: Target, master: FakeMaster) -> None:
    data = b"some other code"
    api_cases.check_tampered_bundle(target, data, signature(data))
    path = f"/api/v1/bundles/{hashlib.sha256(data).hexdigest()}"
    headers = {"Content_Type": "application/zip", "X_Penstock_Signature": signature(data)}
    assert ask(target, "PUT", path, body=data, **headers).status == 201
    assert len(master.bundles) == 2


def test_what_is_open_shows_no_secret(target: Target) -> None:
    for path in ("/livez", "/readyz", "/metrics"):
        reply = ask(target, "GET", path, token=None)
        assert reply.status == 200
        assert TOKEN.encode() not in reply.body
        assert ask(target, "HEAD", path, token=None).status == 200
    assert b"penstock_jobs 0" in ask(target, "GET", "/metrics", token=None).body


def test_every_answer_has_the_headers(target: Target) -> None:
    for path, token in (("/api/v1/jobs", ""), ("/api/v1/jobs", None), ("/livez", None), ("/nothing", "")):
        headers = ask(target, "GET", path, token=token).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        "1" * 5_000,
        '{"bundle": BUNDLE, "entry": "job.py", "structure": {}}',
        '{"bundle": BUNDLE, "entry": "job.py", "structure": {"name": "a", "x": NaN}}',
        '{"bundle": BUNDLE, "entry": "job.py", "structure": {"name": "a", "x": [-Infinity]}}',
        '{"bundle": BUNDLE, "entry": "job.py", "structure": {"name": "a", "x": "\\ud800"}}',
        '{"bundle": BUNDLE, "entry": "job.py", "structure": {"name": "a", "\\udfff": 1}}',
        '{"bundle": BUNDLE, "entry": "job.py", "structure": {"name": "../a"}}',
        '{"bundle": BUNDLE, "entry": "job.py", "structure": {"name": "zookeeper"}}',
        '{"bundle": BUNDLE, "entry": "../job.py", "structure": {"name": "a"}}',
        '{"bundle": BUNDLE, "entry": "/etc/job.py", "structure": {"name": "a"}}',
        '{"bundle": BUNDLE, "entry": "job.py", "structure": {"name": "a"}, "\\ud800": 1}',
        '{"bundle": BUNDLE, "entry": "job.py", "structure": {"name": "a"}, "cores": 1}',
    ],
)
def test_bodies_that_make_no_sense(target: Target, body: str) -> None:
    sent = body.replace("BUNDLE", f'"{DIGEST}"').encode()
    kind = "application/json"
    api_cases.expect_refused(target, range(400, 423), "POST", "/api/v1/jobs", body=sent, Content_Type=kind)


def test_bytes_that_are_no_text(target: Target) -> None:
    kind = "application/json"
    api_cases.expect_refused(
        target, range(400, 423), "POST", "/api/v1/jobs", body=b"\xff\xfe", Content_Type=kind
    )


def test_paths_are_refused_before_any_route_sees_them(target: Target) -> None:
    for path in ("/%6aobs", "/api/v1/jobs/a%2Db", "//livez", "/api/v1/jobs/", "/a" * 9, "/" + "a" * 201):
        api_cases.expect_refused(target, 400, "GET", path)
    api_cases.expect_refused(target, 400, "GET", "/api/v1/jobs?" + "a" * 33_000)


def test_a_deep_structure_is_refused(target: Target) -> None:
    deep: Any = {}
    for _ in range(60):
        deep = {"x": deep}
    assert submitted(target, structure={"name": "counting", "deep": deep}).status == 422


def test_a_body_of_another_kind_is_refused(target: Target) -> None:
    body = json.dumps({"fresh": True}).encode()
    assert submitted(target).status == 201
    path = "/api/v1/jobs/counting/resubmit"
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert ask(target, "POST", path, body=body, Content_Type=kind).status == 422


def test_secrets_of_a_job_are_not_shown(target: Target, master: FakeMaster) -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": "hush", "spark.ui.enabled": "false"}
    reply = submitted(target, settings={"spark": {"conf": conf}})
    assert reply.status == 201
    shown = ask(target, "GET", "/api/v1/jobs/counting").body
    assert b"hush" not in shown + reply.body
    assert b'"spark.ui.enabled":"false"' in shown
    assert master.specs["counting"].settings.spark.conf == conf


def test_what_nobody_foresaw_has_a_number_that_is_in_the_log(
    target: Target, master: FakeMaster, logged: list[Mapping[str, Any]]
) -> None:
    master.raises = ZeroDivisionError("the password is hush")
    reply = ask(target, "GET", "/api/v1/jobs")
    assert reply.status == 500
    assert b"hush" not in reply.body
    assert b"Traceback" not in reply.body
    failed = [entry for entry in logged if entry["event"] == "request failed"]
    assert len(failed) == 1
    assert failed[0]["id"] in json.loads(reply.body)["error"]["message"]
    assert "ZeroDivisionError" in failed[0]["trace"]


def test_errors_of_a_master_have_their_status(target: Target, master: FakeMaster) -> None:
    assert ask(target, "GET", "/api/v1/jobs/nobody").status == 404
    master.raises = RefusedError("not now")
    reply = ask(target, "GET", "/api/v1/jobs")
    assert (reply.status, json.loads(reply.body)) == (
        409,
        {"error": {"code": "refused", "message": "not now"}},
    )
    master.raises = DisconnectedError("no server answers")
    reply = ask(target, "GET", "/api/v1/jobs")
    assert (reply.status, json.loads(reply.body)["error"]["code"]) == (503, "disconnected")
    assert reply.headers["retry-after"]


def test_requests_that_are_no_http_are_survived(target: Target) -> None:
    place = urlsplit(target.url)
    for sent in (
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ):
        with socket.create_connection((place.hostname or "", place.port or 0), timeout=60) as client:
            client.sendall(sent)
            assert client.recv(100).split(b" ")[1].startswith(b"4")
    assert ask(target, "GET", "/livez", token=None).status == 200


def test_a_websocket_is_refused(target: Target) -> None:
    place = urlsplit(target.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "eA==",
    }
    connection.request("GET", "/api/v1/jobs", headers=upgrade)
    assert 400 <= connection.getresponse().status < 500
    connection.close()
