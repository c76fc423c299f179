"""The client against masters that answer, refuse, elect, or are not there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from api_server import serving
from fake_master import FakeMaster
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from penstock.bundles.bundle_signature import sha256_of, sign
from penstock.keyring import signing_key
from penstock.web.cluster_access import ClientError, UnreachableError
from penstock.web.master_api import make_master_api
from penstock.web.master_client import MasterClient
from support.settings import make_submission

TOKEN = "cd" * 32
DATA = b"code"


@pytest.fixture
def master() -> FakeMaster:
    return FakeMaster(TOKEN)


@pytest.fixture
def url(master: FakeMaster) -> Iterator[str]:
    with serving(lambda _: make_master_api(master, TOKEN, hosts=["127.0.0.1"])) as url:
        yield url


def _nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_all_it_can_ask(url: str, master: FakeMaster) -> None:
    with MasterClient([url], TOKEN) as client:
        assert client.cluster()["leader"] == "m1"
        assert [node["name"] for node in client.nodes()] == ["n1", "n2"]
        assert client.node("n2")["host"] == "127.0.0.3"
        client.put_bundle(sha256_of(DATA), sign(DATA, signing_key(TOKEN)), DATA)
        submission = make_submission(
            "job.py:job", {"name": "counting"}, nodes=("n1",), labels={"disk": "ssd"}
        )
        client.submit(submission, sha256_of(DATA))
        assert master.specs["counting"].settings.placement.labels == {"disk": "ssd"}
        assert [job["name"] for job in client.jobs()] == ["counting"]
        assert client.update("counting", submission, sha256_of(DATA))["generation"] == 2
        client.migrate("counting", "n2")
        assert client.job("counting")["node"] == "n2"
        client.scale("counting", {"executors": 3}, ["n1", "n2"])
        assert (
            master.specs["counting"].settings.resources.executors,
            master.specs["counting"].settings.placement.nodes,
        ) == (
            3,
            ("n1", "n2"),
        )
        client.kill("counting", True)
        assert (master.specs["counting"].wanted, master.specs["counting"].drain) == ("ended", True)
        client.resubmit("counting", True)
        assert (master.specs["counting"].wanted, master.specs["counting"].fresh) == ("running", True)
        master.say("counting", 1, "one")
        master.say("counting", 2, "two")
        page = client.logs("counting", "", 1)
        assert [line["event"] for line in page["lines"]] == ["one"]
        assert [line["event"] for line in client.logs("counting", page["cursor"], 5)["lines"]] == ["two"]
        client.clear(client.alarms()[0]["id"])
        assert client.alarms() == []


def test_refusals_have_code_and_message(url: str) -> None:
    with MasterClient([url], TOKEN) as client:
        with pytest.raises(ClientError, match="there is no job 'nobody'") as raised:
            client.job("nobody")
        assert (raised.value.code, raised.value.status) == ("unknown", 404)
        for name in ("../x", "", "a/b", "%2e%2e"):
            with pytest.raises(ClientError) as raised:
                client.job(name)
            assert raised.value.code == "unknown"
    with MasterClient([url], "wrong") as client, pytest.raises(ClientError, match="PENSTOCK_TOKEN") as raised:
        client.jobs()
    assert raised.value.status == 401


def test_masters_are_asked_in_turn(url: str) -> None:
    with MasterClient([_nobody(), url], TOKEN) as client:
        assert client.jobs() == []
    with (
        MasterClient([_nobody(), _nobody()], TOKEN) as client,
        pytest.raises(UnreachableError, match="cannot be reached"),
    ):
        client.jobs()


def test_an_election_is_waited_for(url: str, master: FakeMaster) -> None:
    master.leads = False
    with (
        MasterClient([url], TOKEN, patience=0.0) as client,
        pytest.raises(UnreachableError, match="no leader"),
    ):
        client.kill("counting", False)

    def win() -> None:
        master.leads = True

    timer = threading.Timer(0.7, win)
    timer.start()
    with MasterClient([url], TOKEN, patience=20.0) as client:
        assert client.jobs() == []
    timer.join()


def test_a_change_that_may_have_been_made_is_not_sent_again() -> None:
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def hang_up_twice() -> None:
            for _ in range(3):
                connection, _ = listener.accept()
                with connection:
                    asked.append(connection.recv(65536).split(b" ")[0])

        thread = threading.Thread(target=hang_up_twice)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with MasterClient([url, url], TOKEN, patience=0.0) as client:
            with pytest.raises(UnreachableError, match="may have been made"):
                client.kill("counting", False)
            assert asked == [b"DELETE"]
            with pytest.raises(UnreachableError):
                client.jobs()
        thread.join(20)
    assert asked == [b"DELETE", b"GET", b"GET"]


def test_something_else_that_listens_there() -> None:
    seen: list[str] = []

    def page(request: object) -> Response:
        return HTMLResponse("<h1>hello</h1>")

    def elsewhere(request: object) -> Response:
        return RedirectResponse("/api/v1/stolen")

    def stolen(request: object) -> Response:
        seen.append("token")
        return HTMLResponse("thanks")

    routes = [
        Route("/api/v1/jobs", page),
        Route("/api/v1/nodes", elsewhere),
        Route("/api/v1/stolen", stolen),
    ]
    with serving(lambda _: Starlette(routes=routes)) as url, MasterClient([url], TOKEN) as client:
        with pytest.raises(ClientError, match="not in the format of a Penstock master"):
            client.jobs()
        with pytest.raises(ClientError, match="status 307"):
            client.nodes()
    assert seen == []
