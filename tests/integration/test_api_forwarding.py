"""Followers hand requests on to the leader, over real HTTP between two masters."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator

import pytest
from api_cases import Target, ask
from api_server import serving
from fake_master import FakeMaster

from penstock.bundles.bundle_signature import sign
from penstock.web.master_api import make_master_api
from penstock.web.request_guard import Limits

TOKEN = "ab" * 32
DATA = bytes(range(256)) * 2000
DIGEST = hashlib.sha256(DATA).hexdigest()
LIMITS = Limits(bundle=1 << 20, document=1 << 16)


class Pair:
    """A leader and a follower that knows it."""

    def __init__(self, leader: FakeMaster, leader_url: str, follower: FakeMaster, follower_url: str) -> None:
        self.leader, self.leader_url = leader, leader_url
        self.follower = follower
        self.target = Target(follower_url, TOKEN, lambda: leader.changes, list)
        follower.leads, follower.leader = False, leader_url


@pytest.fixture
def pair() -> Iterator[Pair]:
    leader, follower = FakeMaster(TOKEN), FakeMaster(TOKEN)
    with (
        serving(lambda _: make_master_api(leader, TOKEN, hosts=["127.0.0.1"], limits=LIMITS)) as leader_url,
        serving(
            lambda _: make_master_api(follower, TOKEN, hosts=["127.0.0.1"], limits=LIMITS)
        ) as follower_url,
    ):
        yield Pair(leader, leader_url, follower, follower_url)


def put(target: Target, data: bytes = DATA, *, chunked: bool = False) -> int:
    pieces = iter([data[: len(data) // 2], data[len(data) // 2 :]])
    reply = ask(
        target,
        "PUT",
        f"/api/v1/bundles/{DIGEST}",
        body=pieces if chunked else data,
        Content_Type="application/zip",
        X_Penstock_Signature=sign(DATA, FakeMaster(TOKEN).key),
    )
    return reply.status


def submit(target: Target) -> int:
    content = {"bundle": DIGEST, "entry": "job.py", "structure": {"name": "counting"}}
    body = json.dumps(content).encode()
    return ask(target, "POST", "/api/v1/jobs", body=body, Content_Type="application/json").status


@pytest.mark.parametrize("chunked", [False, True])
def test_changes_reach_the_leader_and_reads_come_from_it(pair: Pair, chunked: bool) -> None:
    assert put(pair.target, chunked=chunked) == 201
    assert submit(pair.target) == 201
    assert list(pair.leader.specs) == ["counting"]
    assert (pair.follower.changes, pair.follower.specs) == (0, {})
    reply = ask(pair.target, "GET", "/api/v1/jobs")
    assert [job["name"] for job in json.loads(reply.body)] == ["counting"]
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")
    assert ask(pair.target, "DELETE", "/api/v1/jobs/counting?drain=true").status == 200
    assert pair.leader.specs["counting"].drain
    assert ask(pair.target, "DELETE", "/api/v1/alarms/job-failed.old").status == 204
    assert pair.leader.alarm_list == []


def test_refusals_of_the_leader_come_back_as_they_are(pair: Pair) -> None:
    assert ask(pair.target, "GET", "/api/v1/jobs/nobody").status == 404
    assert submit(pair.target) == 422
    assert put(pair.target, DATA[:-1] + b"x") == 422
    assert pair.leader.changes == 0


def test_what_a_follower_refuses_does_not_reach_the_leader(pair: Pair) -> None:
    pair.leader.raises = AssertionError("it reached the leader")
    assert ask(pair.target, "GET", "/api/v1/jobs", token=None).status == 401
    assert ask(pair.target, "GET", "/api/v1/jobs", Origin="http://evil.example").status == 403
    assert put(pair.target, b"x" * (LIMITS.bundle + 1)) == 413
    assert put(pair.target, b"x" * (LIMITS.bundle + (1 << 17)), chunked=True) == 413
    pair.leader.raises = None
    assert ask(pair.target, "GET", "/api/v1/jobs").status == 200


def test_health_is_of_the_follower_itself(pair: Pair) -> None:
    pair.leader.raises = AssertionError("it reached the leader")
    for path in ("/livez", "/readyz", "/metrics"):
        assert ask(pair.target, "GET", path, token=None).status == 200
    assert ask(pair.target, "GET", "/api/v1/openapi.json").status == 200
    pair.follower.leader = ""
    reply = ask(pair.target, "GET", "/readyz", token=None)
    assert (reply.status, json.loads(reply.body)) == (503, {"ready": False, "reason": "no leader is known"})
    assert ask(pair.target, "GET", "/livez", token=None).status == 200


def test_without_a_leader_one_is_told_to_try_again(pair: Pair) -> None:
    pair.follower.leader = ""
    reply = ask(pair.target, "GET", "/api/v1/jobs")
    assert (reply.status, json.loads(reply.body)["error"]["code"]) == (503, "no_leader")
    assert int(reply.headers["retry-after"]) > 0


def test_a_leader_that_cannot_be_reached(pair: Pair) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}", "nonsense", "ftp://127.0.0.1"):
        pair.follower.leader = url
        reply = ask(pair.target, "GET", "/api/v1/jobs")
        assert (reply.status, json.loads(reply.body)["error"]["code"]) == (502, "leader_unreachable")


def test_two_that_take_each_other_for_the_leader_do_not_go_in_circles(pair: Pair) -> None:
    pair.leader.leads, pair.leader.leader = False, pair.target.url
    reply = ask(pair.target, "GET", "/api/v1/jobs")
    assert (reply.status, json.loads(reply.body)["error"]["code"]) == (503, "no_leader")


@pytest.mark.parametrize("chunked", [False, True])
def test_one_that_finds_out_late_that_it_does_not_lead_hands_on_too(pair: Pair, chunked: bool) -> None:
    pair.follower.leads = pair.follower.lies = True
    assert put(pair.target, chunked=chunked) == 201
    assert submit(pair.target) == 201
    assert list(pair.leader.specs) == ["counting"]
    assert pair.follower.changes == 0
    pair.follower.leader = ""
    assert submit(pair.target) == 503
