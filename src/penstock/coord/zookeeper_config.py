"""The configuration of an embedded ZooKeeper server: addresses, settings, command line.

Servers of an ensemble authenticate each other by a shared secret (SASL DIGEST-MD5). Without that, ZooKeeper
accepts any process that connects to its peer port as an observer, sends it all data and accepts its writes.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import SettingError
from penstock.local_files import write_private

# The minimal set of PySpark's jars that the server needs. Jetty is only for the unused AdminServer. Netty is
# for TLS, which is unused, but authentication between servers loads some of its classes.
_JARS = (
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "log4j-slf4j2-impl",
    "log4j-api",
    "log4j-core",
    "metrics-core",
    "snappy-java",
    "netty-handler",
)
_PORTS = range(12000, 32000)
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"
_DIGEST_ALLOWED = "-Dzookeeper.fips-mode=false"
"""DIGEST-MD5, the only mechanism that needs just a shared secret, is not allowed in FIPS mode."""
_PEER = "penstock"
"""The user name with which servers authenticate each other."""
_SERVER_LOGIN, _LEARNER_LOGIN = "QuorumServer", "QuorumLearner"
ZOO_CFG, LOGGING, JAAS = "zoo.cfg", "log4j2.properties", "quorum.jaas"
"""The files of a server in its folder."""


@dataclass(frozen=True)
class ServerAddress:
    """The host and ports of a server: for clients, for its peers, and for leader elections."""

    host: str
    client: int
    peer: int
    election: int


def pick_addresses(hosts: Sequence[str], ports: Sequence[int] | None = None) -> list[ServerAddress]:
    """Find free ports for servers on these addresses of this machine; ``ports`` fixes those for clients."""
    if ports is not None and len(ports) != len(hosts):
        raise SettingError(f"{len(ports)} ports for {len(hosts)} ZooKeeper servers: give one for each")
    with ExitStack() as held:
        # Hold all ports until the last one is found, so that none is found twice.
        return [
            ServerAddress(
                host,
                _find_port(host, held) if ports is None else _take_port(host, ports[number], held),
                _find_port(host, held),
                _find_port(host, held),
            )
            for number, host in enumerate(hosts)
        ]


def _find_port(host: str, held: ExitStack) -> int:
    # Avoid the ephemeral ports of the system: it also gives them to outgoing connections, and a restarted
    # server needs its port again.
    for port in random.sample(_PORTS, 100):
        try:
            return _take_port(host, port, held)
        except SettingError:
            continue
    return _take_port(host, 0, held)


def _take_port(host: str, port: int, held: ExitStack) -> int:
    listener = held.enter_context(socket.socket())
    try:
        listener.bind((host, port))
    except OSError as error:
        raise SettingError(f"ZooKeeper cannot use {host}:{port}: {error.strerror}") from None
    return int(listener.getsockname()[1])


def render_zoo_cfg(number: int, addresses: Sequence[ServerAddress], data: Path) -> str:
    """Return the content of ``zoo.cfg`` for server ``number`` (from 1) of an ensemble.

    >>> print(render_zoo_cfg(1, [ServerAddress("127.0.0.1", 2181, 2888, 3888)], Path("/data")))
    ... # doctest: +ELLIPSIS
    tickTime=1000
    initLimit=10
    syncLimit=5
    dataDir=/data
    clientPortAddress=127.0.0.1
    clientPort=2181
    ...
    """
    own = addresses[number - 1]
    lines = [
        "tickTime=1000",
        "initLimit=10",
        "syncLimit=5",
        f"dataDir={data}",
        f"clientPortAddress={own.host}",
        f"clientPort={own.client}",
        "minSessionTimeout=2000",
        "maxSessionTimeout=60000",
        # All processes of a machine come from one address; the default is 60.
        "maxClientCnxns=2000",
        "admin.enableServer=false",
        "4lw.commands.whitelist=srvr,ruok",
        "autopurge.snapRetainCount=3",
        "autopurge.purgeInterval=1",
        "snapCount=20000",
        # Disk space in kB that is allocated at once for each log file; the default is 64 MB.
        "preAllocSize=4096",
        "quorumListenOnAllIPs=false",
    ]
    if len(addresses) > 1:
        lines += [
            f"server.{other}={address.host}:{address.peer}:{address.election}"
            for other, address in enumerate(addresses, start=1)
        ]
        lines += [
            "quorum.auth.enableSasl=true",
            "quorum.auth.learnerRequireSasl=true",
            "quorum.auth.serverRequireSasl=true",
            f"quorum.auth.server.loginContext={_SERVER_LOGIN}",
            f"quorum.auth.learner.loginContext={_LEARNER_LOGIN}",
            # Authenticate connections in threads, so that a silent connection does not block others.
            "quorum.cnxn.threads.size=20",
        ]
    return "\n".join(lines) + "\n"


def render_jaas(secret: str) -> str:
    """Return the JAAS settings by which servers authenticate each other; ``secret`` is hexadecimal.

    >>> print(render_jaas("c0ffee"), end="")
    QuorumServer {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        user_penstock="c0ffee";
    };
    QuorumLearner {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        username="penstock"
        password="c0ffee";
    };
    """
    if not secret or set(secret) - set("0123456789abcdef"):
        raise SettingError("the secret of ZooKeeper servers must be hexadecimal digits")
    return (
        f'{_SERVER_LOGIN} {{\n    {_LOGIN} required\n    user_{_PEER}="{secret}";\n}};\n'
        f"{_LEARNER_LOGIN} {{\n    {_LOGIN} required\n"
        f'    username="{_PEER}"\n    password="{secret}";\n}};\n'
    )


def write_server_files(
    folder: Path, number: int, addresses: Sequence[ServerAddress], secret: str, *, java: Path, jars: Path
) -> list[str]:
    """Write the configuration files of server ``number`` into its folder, and return its command line.

    Only a server with peers gets the secret. The files are readable only by their owner.
    """
    data = folder / "data"
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    write_private(data / "myid", f"{number}\n")
    write_private(folder / ZOO_CFG, render_zoo_cfg(number, addresses, data))
    write_private(folder / LOGGING, render_logging(folder / "zookeeper.log"))
    jaas = None
    if len(addresses) > 1:
        jaas = folder / JAAS
        write_private(jaas, render_jaas(secret))
    return server_command(java, jars, folder / LOGGING, folder / ZOO_CFG, jaas)


def render_logging(log: Path) -> str:
    """Return the settings of Log4j: warnings go to a small rolling file."""
    return "\n".join(
        [
            "status = error",
            "appender.file.type = RollingFile",
            "appender.file.name = file",
            f"appender.file.fileName = {log}",
            f"appender.file.filePattern = {log}.%i",
            "appender.file.layout.type = PatternLayout",
            "appender.file.layout.pattern = %d{ISO8601} %p %c{1}: %m%n",
            "appender.file.policies.type = Policies",
            "appender.file.policies.size.type = SizeBasedTriggeringPolicy",
            "appender.file.policies.size.size = 5MB",
            "appender.file.strategy.type = DefaultRolloverStrategy",
            "appender.file.strategy.max = 2",
            "rootLogger.level = warn",
            "rootLogger.appenderRef.file.ref = file",
            "",
        ]
    )


def server_command(
    java: Path, jars: Path, logging: Path, settings: Path, jaas: Path | None = None
) -> list[str]:
    """Return the command line of a server, without secrets. Raises SettingError when a jar is missing."""
    return [
        str(java),
        # The server keeps the last 500 requests in memory, and a chunk of a bundle has half a megabyte.
        "-Xmx768m",
        "-Xms16m",
        "-Xss512k",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:ReservedCodeCacheSize=24m",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:-UsePerfData",
        "-Dfile.encoding=UTF-8",
        "-Djava.net.preferIPv4Stack=true",
        "-Djava.awt.headless=true",
        "-Dzookeeper.admin.enableServer=false",
        f"-Dlog4j2.configurationFile={logging}",
        *([f"-Djava.security.auth.login.config={jaas}", _DIGEST_ALLOWED] if jaas is not None else []),
        "-cp",
        ":".join(str(_find_jar(jars, name)) for name in _JARS),
        _MAIN,
        str(settings),
    ]


def _find_jar(jars: Path, name: str) -> Path:
    """Return the jar with a name, of any version."""
    found = sorted(path for path in jars.glob(f"{name}-*.jar") if path.name[len(name) + 1].isdigit())
    if not found:
        raise SettingError(f"the jar {name} is missing in {jars}: reinstall PySpark")
    return found[-1]
