"""HttpSink and SocketSource against real servers on the loopback that fail, hang and hang up."""

from __future__ import annotations

import json
import pickle
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.connect.http_sink import HttpSink
from penstock.connect.socket_source import SocketSource
from penstock.errors import ConnectorError, SettingError
from penstock.graph.connector_api import Rejected, WriteContext
from penstock.record import Record
from support.waiting import eventually


class Service:
    """Applies each idempotency key once, after it has given the answers it was told to give first."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.applied: dict[str, list[Any]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.lose_answers = 0
        self.limit = 1_000_000
        """How many records a request may have."""
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                key = self.headers["Idempotency-Key"]
                service.requests.append((key, dict(self.headers)))
                answer = service.answers.pop(0) if service.answers else None
                if answer is not None:
                    status, headers, text = answer
                    if status == "hang":
                        service.released.wait(30)
                        return
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(text.encode())
                    return
                if len(json.loads(body)) > service.limit:
                    self.send_response(413)
                    self.end_headers()
                    return
                service.applied.setdefault(key, json.loads(body))
                if service.lose_answers:
                    service.lose_answers -= 1
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.released = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/in?token=secret"

    def records(self) -> list[Any]:
        return [record["value"] for chunk in self.applied.values() for record in chunk]

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


def _sink(service: Service, folder: Path, slept: list[float] | None = None, **options: Any) -> HttpSink:
    sleep = (slept if slept is not None else []).append
    return HttpSink(service.url, folder=folder, sleep=sleep, chance=lambda: 1.0, **options)


def _stage(sink: HttpSink, values: list[Any], task: str = "task-of-a-run", reject: Any = None) -> Any:
    sink.prepare()
    writer = pickle.loads(pickle.dumps(sink)).writer(WriteContext("my job", "out", 3, task, reject))
    writer.write([Record("k", value, 1.5) for value in values])
    return json.loads(json.dumps(writer.finish()))


def test_chunks_are_posted_with_keys(service: Service, tmp_path: Path) -> None:
    sink = _sink(service, tmp_path, batch_size=2, headers={"Authorization": "Bearer hush"})
    sink.commit(3, [_stage(sink, [1, {"a": [True]}, None])])
    assert service.applied == {
        "my%20job/out/3/task-of-a-ru/0": [
            {"key": "k", "value": 1, "ts": 1.5},
            {"key": "k", "value": {"a": [True]}, "ts": 1.5},
        ],
        "my%20job/out/3/task-of-a-ru/1": [{"key": "k", "value": None, "ts": 1.5}],
    }
    headers = service.requests[0][1]
    assert headers["Authorization"] == "Bearer hush"
    assert headers["Content-Type"] == "application/json"


def test_a_crash_repeats_a_batch_and_the_service_applies_it_once(service: Service, tmp_path: Path) -> None:
    sink = _sink(service, tmp_path, batch_size=2, retries=0)
    receipts = [_stage(sink, list(range(5)))]
    service.answers = [None, (503, {}, "busy")]
    with pytest.raises(ConnectorError, match="503 Service Unavailable busy"):
        sink.commit(3, receipts)
    assert service.records() == [0, 1], "one chunk of three"
    service.lose_answers = 1
    with pytest.raises(ConnectorError):
        sink.commit(3, receipts)  # applied or not: nobody here knows
    sink.commit(3, receipts)
    assert sorted(service.records()) == [0, 1, 2, 3, 4]
    asked = len(service.requests)
    sink.commit(3, receipts)
    assert len(service.requests) == asked, "all of it had been posted"


@pytest.mark.parametrize("sizes", [(500, 100), (100, 500)])
def test_a_key_stands_for_the_same_records_whatever_size_is_asked_for_later(
    service: Service, tmp_path: Path, sizes: tuple[int, int]
) -> None:
    before, after = (_sink(service, tmp_path, batch_size=size, retries=0) for size in sizes)
    receipts = [_stage(before, list(range(1000)))]
    service.answers = [None, (500, {}, "")]
    with pytest.raises(ConnectorError):
        before.commit(3, receipts)
    after.commit(3, receipts)
    assert service.records() == list(range(1000))


def test_what_is_too_large_for_the_service_is_posted_in_halves(service: Service, tmp_path: Path) -> None:
    sink = _sink(service, tmp_path, batch_size=500, retries=0)
    receipts = [_stage(sink, list(range(1000)))]
    service.limit = 200
    service.answers = [None] * 3 + [(500, {}, "")]  # Two were too large, one was taken.
    with pytest.raises(ConnectorError, match="500"):
        sink.commit(3, receipts)
    assert service.records() == list(range(125))
    service.limit = 1_000_000  # What is halved stays halved: a half of it is there.
    _sink(service, tmp_path, batch_size=500).commit(3, receipts)
    assert service.records() == list(range(1000))
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".done"]


def test_a_record_that_is_too_large_by_itself_ends_the_job(service: Service, tmp_path: Path) -> None:
    sink = _sink(service, tmp_path)
    service.limit = 0
    with pytest.raises(ConnectorError, match="413"):
        sink.commit(3, [_stage(sink, [1, 2])])


def test_a_job_that_starts_from_scratch_has_other_keys(service: Service, tmp_path: Path) -> None:
    sink = _sink(service, tmp_path)
    sink.commit(3, [_stage(sink, [1], "first-run----")])
    sink.commit(3, [_stage(sink, [2], "second-run---")])
    assert service.records() == [1, 2]


def test_errors_that_pass_are_tried_again_with_growing_pauses(service: Service, tmp_path: Path) -> None:
    slept: list[float] = []
    sink = _sink(service, tmp_path, slept)
    service.answers = [
        (500, {}, ""),
        (429, {"Retry-After": "7"}, ""),
        (503, {"Retry-After": "0"}, ""),
        (502, {}, ""),
    ]
    sink.commit(3, [_stage(sink, [1])])
    assert slept == [0.5, 7.0, 2.0, 4.0]
    assert service.records() == [1]
    assert len({key for key, _ in service.requests}) == 1


def test_a_service_that_hangs_is_given_up_after_the_timeout(service: Service, tmp_path: Path) -> None:
    sink = _sink(service, tmp_path, timeout=0.2, retries=1)
    service.answers = [("hang", {}, ""), ("hang", {}, "")]
    receipt = _stage(sink, [1])
    with pytest.raises(ConnectorError, match=r"after 2 tries: TimeoutError.*start the job again"):
        sink.commit(3, [receipt])
    # One that has the time: an answer may take longer than that on a busy machine.
    _sink(service, tmp_path).commit(3, [receipt])
    assert service.records() == [1]


def test_what_will_not_pass_ends_the_job_at_once(service: Service, tmp_path: Path) -> None:
    slept: list[float] = []
    sink = _sink(service, tmp_path, slept, headers={"X-Token": "hush"})
    for answer in [
        (400, {}, "no such field " + "x" * 1000),
        (302, {"Location": "http://elsewhere/"}, "moved"),
    ]:
        service.answers = [answer]
        with pytest.raises(ConnectorError) as failure:
            sink.commit(3, [_stage(sink, [1])])
        text = str(failure.value)
        assert f"{answer[0]}" in text
        assert answer[2][:10] in text
        assert "'my job', vertex 'out'" in text
        assert len(text) < 700
        assert "hush" not in text
        assert "secret" not in text
    assert slept == []


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    slept: list[float] = []
    sink = HttpSink(f"http://127.0.0.1:{port}/", folder=tmp_path, retries=2, sleep=slept.append)
    with pytest.raises(ConnectorError, match="after 3 tries: ConnectionRefusedError"):
        sink.commit(3, [_stage(sink, [1])])
    assert len(slept) == 2


def test_what_headers_hold_stays_in_the_driver(service: Service, tmp_path: Path) -> None:
    sink = _sink(service, tmp_path, headers={"X-Token": "hush"})
    assert sink.describe() == {
        "url": service.url.partition("?")[0],
        "method": "POST",
        "headers": ["X-Token"],
        "folder": str(tmp_path),
    }
    travelling = pickle.dumps(sink)
    assert b"hush" not in travelling
    assert b"secret" not in travelling


def test_values_that_are_not_json_are_refused(service: Service, tmp_path: Path) -> None:
    refused: list[str] = []
    sink = _sink(service, tmp_path)
    sink.commit(3, [_stage(sink, [1, b"x", 2], reject=lambda record, why: refused.append(why))])
    assert service.records() == [1, 2]
    assert refused == ["not JSON data: Object of type bytes is not JSON serializable"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "ftp://example.com/"}, "begins with http"),
        ({"url": "file:///etc/passwd"}, "begins with http"),
        ({"url": "http://"}, "begins with http"),
        ({"url": 3}, "begins with http"),
        ({"url": "http://a b/"}, "begins with http"),
        ({"url": "http://me:pw@example.com/"}, "in headers instead"),
        ({"method": "GET"}, "method is one of 'POST', 'PUT', 'PATCH', not 'GET'"),
        ({"retries": -1}, "retries takes a whole number of at least 0"),
        ({"timeout": 0}, "timeout takes a number above 0"),
        ({"batch_size": 0}, "batch_size"),
        ({"headers": {"X": "a\r\nb"}}, "the header X takes one line of text"),
        ({"headers": {"X Y": "a"}}, "not the name of a header"),
        ({"idempotency_header": ""}, "not the name of a header"),
    ],
)
def test_wrong_options_of_the_http_sink(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message) as failure:
        HttpSink(**{"url": "http://example.com/", **options})
    assert "a\r\nb" not in str(failure.value)


class Lines:
    """A TCP server that sends lines to whoever connects."""

    def __init__(self, port: int = 0) -> None:
        self.listening = socket.create_server(("127.0.0.1", port))
        self.listening.settimeout(120)
        self.port = self.listening.getsockname()[1]
        self.peer: socket.socket | None = None

    def accept(self) -> None:
        self.peer, _ = self.listening.accept()

    def send(self, data: bytes) -> None:
        assert self.peer is not None
        self.peer.sendall(data)

    def hang_up(self) -> None:
        if self.peer is not None:
            self.peer.close()
            self.peer = None

    def close(self) -> None:
        self.hang_up()
        self.listening.close()


@pytest.fixture
def lines() -> Iterator[Lines]:
    server = Lines()
    yield server
    server.close()


def _values(source: SocketSource, start: dict[str, int], end: dict[str, int]) -> list[Any]:
    found: list[Any] = []
    for split in source.splits(start, end):
        for part in source.on_worker().read(split):
            found += (
                [f"rejected {piece!r}" for piece, _ in part.pieces]
                if isinstance(part, Rejected)
                else [record.value for record in part]
            )
    return found


def test_lines_come_once_over_disconnects_and_can_be_read_again(lines: Lines) -> None:
    driver = SocketSource(port=lines.port)
    start = driver.begin()
    planner: SocketSource = pickle.loads(pickle.dumps(driver))
    assert planner.latest(start) == start
    lines.accept()
    lines.send(b"one\r\ntwo\n\xff\nthr")
    eventually("three lines", lambda: planner.latest(start)["0"] == 3)
    first = planner.latest(start)
    assert driver.latest(start) == first, "the driver sees it and does not connect"
    lines.send(b"ee\nunfinished")
    lines.hang_up()
    eventually("five lines", lambda: planner.latest(start)["0"] == 5)
    lines.accept()
    lines.send(b"again\n")
    eventually("six lines", lambda: planner.latest(start)["0"] == 6)
    end = planner.latest(start)
    assert _values(planner, start, first) == ["one", "two", "rejected b'\\xff'"]
    assert _values(driver, first, end) == ["three", "unfinished", "again"]
    assert _values(driver, first, end) == ["three", "unfinished", "again"]
    lines.listening.settimeout(0.3)
    with pytest.raises(TimeoutError):
        lines.listening.accept()  # nobody else has connected
    assert driver.begin() == start
    assert driver.lag(first) == 3


def test_another_run_of_the_same_job_does_not_see_the_lines_of_the_first() -> None:
    driver = SocketSource()
    start = driver.begin()
    assert driver.begin() == start
    folder = driver._log().path
    driver._log().append([Record(None, b"of the first run")])
    assert driver.begin() == start
    assert driver._log().path != folder
    assert driver.latest(start) == start


def test_two_planners_do_not_share_the_lines(lines: Lines) -> None:
    driver = SocketSource(port=lines.port)
    start = driver.begin()
    planners = [pickle.loads(pickle.dumps(driver)) for _ in range(2)]
    for planner in planners:
        planner.latest(start)
    lines.accept()
    lines.send(b"one\n")
    for planner in planners:
        eventually("one line", lambda planner=planner: planner.latest(start)["0"] == 1)  # type: ignore[misc]
    lines.listening.settimeout(0.3)
    with pytest.raises(TimeoutError):
        lines.listening.accept()


def test_a_server_that_comes_late_is_waited_for_and_one_that_never_comes_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    driver = SocketSource(port=port, patience=0.3)
    start = driver.begin()
    planner = pickle.loads(pickle.dumps(driver))
    planner.latest(start)
    with pytest.raises(SettingError, match=rf"no connection to 127.0.0.1:{port}.*refused"):
        eventually("a line", lambda: planner.latest(start) != start)
    late = Lines(port)
    try:
        late.accept()
        late.send(b"x\n")
        eventually("one line", lambda: driver.latest(start)["0"] == 1)
        assert planner.latest(start)["0"] == 1
    finally:
        late.close()


@pytest.mark.parametrize(
    "options", [{"host": ""}, {"port": 0}, {"port": 70_000}, {"port": "9"}, {"patience": 0}]
)
def test_wrong_options_of_the_socket_source(options: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=f"SocketSource: {next(iter(options))} takes"):
        SocketSource(**options)
