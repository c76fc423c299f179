"""What a stranger on the same machine can do to the driver of ``penstock run``: nothing."""

from __future__ import annotations

import json
import struct
from contextlib import suppress

import psutil
import pytest

from support.nobody import run_as_nobody

RPC_REQUEST, RPC_RESPONSE, RPC_FAILURE = 3, 4, 5
"""Types of messages between processes of Spark."""

_STRANGER = """
import json, socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 30) as connection:
    connection.sendall(bytes.fromhex(sys.argv[2]))
    answer = b""
    try:
        while len(answer) < 9 and (more := connection.recv(65536)):
            answer += more
    except ConnectionResetError:
        pass
print(json.dumps({"kind": answer[8] if len(answer) > 8 else None, "said": answer[:400].decode("latin-1")}))
"""


@pytest.mark.usefixtures("spark")
def test_the_driver_answers_no_message_of_a_stranger() -> None:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    assert session is not None
    context = session.sparkContext
    assert context.getConf().get("spark.authenticate") == "true"
    port = int(str(context.getConf().get("spark.driver.port")))
    # Spark's own message: does the driver have this endpoint? It would tell that to its executors.
    java = context._jvm
    assert java is not None
    netty = java.org.apache.spark.rpc.netty
    # py4j asks a class for all of its methods, and Spark 4.3 lacks the types of some of this one.
    field = java.java.lang.Class.forName("org.apache.spark.SparkEnv").getDeclaredField("rpcEnv")
    field.setAccessible(True)
    env = field.get(context._jsc.sc().env())
    driver = java.org.apache.spark.rpc.RpcAddress("127.0.0.1", port)
    asked = getattr(netty, "RpcEndpointVerifier$CheckExistence")("LocalSchedulerBackendEndpoint")
    request = netty.RequestMessage(None, env.setupEndpointRef(driver, "endpoint-verifier"), asked).serialize(
        env
    )
    body = bytes(request.array())[request.position() : request.limit()]
    frame = struct.pack(">qBqi", 21 + len(body), RPC_REQUEST, 1, len(body)) + body
    answer = json.loads(run_as_nobody(_STRANGER, str(port), frame.hex()))
    assert answer["kind"] != RPC_RESPONSE, "the driver has answered"
    assert answer["kind"] == RPC_FAILURE
    assert "SASL" in answer["said"], "it asks for the secret"


@pytest.mark.usefixtures("spark")
def test_everything_listens_on_loopback_and_no_secret_is_on_a_command_line() -> None:
    from pyspark import SparkContext

    assert SparkContext._gateway is not None
    java = psutil.Process(SparkContext._gateway.proc.pid)
    family = [java, *java.children(recursive=True)]
    listening = set()
    for process in family:
        with suppress(psutil.NoSuchProcess):  # Workers come and go.
            assert "spark.authenticate.secret" not in " ".join(process.cmdline())
            connections = process.net_connections(kind="tcp")
            listening |= {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
