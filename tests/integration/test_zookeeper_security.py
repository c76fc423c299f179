"""Nobody without the key reads or changes a node, and nothing listens that need not."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import psutil
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl
from zookeeper_servers import PASSWORD, ZooKeeperServers

from penstock.coord.coordination_store import Check, Create, DisconnectedError, Store
from penstock.coord.embedded_zookeeper import EmbeddedZooKeeper
from penstock.coord.zookeeper_store import IDENTITY, ZooKeeperStore
from penstock.errors import SettingError
from support.waiting import eventually


@pytest.fixture
def servers(zookeeper: EmbeddedZooKeeper) -> Iterator[ZooKeeperServers]:
    servers = ZooKeeperServers(zookeeper.connect_string)
    try:
        yield servers
    finally:
        servers.close()


@pytest.fixture
def stranger(zookeeper: EmbeddedZooKeeper) -> Iterator[KazooClient]:
    """A client that shows no password."""
    client = KazooClient(hosts=zookeeper.connect_string)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def _fill(store: Store) -> None:
    """Make nodes in every way there is."""
    store.create("/jobs/a/b/c", b"secret")
    store.create("/nodes/n", b"secret", ephemeral=True)
    store.transact([Check("/jobs", 0), Create("/jobs/t", b"secret"), Create("/e", b"", ephemeral=True)])


def _walk(client: KazooClient, path: str) -> Iterator[str]:
    yield path
    for name in client.get_children(path):
        yield from _walk(client, f"{path}/{name}")


def test_every_node_is_open_to_the_one_identity_and_to_nobody_else(
    servers: ZooKeeperServers, stranger: KazooClient
) -> None:
    servers.root += "/above/root"
    _fill(servers.open())
    top = "/" + servers.root.split("/")[1]
    with pytest.raises(NoAuthError):
        stranger.get_children(top)
    # The same connection, with the password: it now sees all.
    stranger.add_auth("digest", f"{IDENTITY}:{PASSWORD}")
    paths = list(_walk(stranger, top))
    assert len(paths) == 11
    expected = [make_digest_acl(IDENTITY, PASSWORD, all=True)]
    assert {path: stranger.get_acls(path)[0] for path in paths} == dict.fromkeys(paths, expected)


def test_who_has_no_password_can_neither_read_nor_write(
    servers: ZooKeeperServers, stranger: KazooClient
) -> None:
    store = servers.open()
    _fill(store)
    for below in ("", "/jobs", "/jobs/a/b/c", "/nodes/n"):
        path = servers.root + below
        for ask in (stranger.get, stranger.get_children, stranger.get_acls):
            with pytest.raises(NoAuthError):
                ask(path)
        with pytest.raises(NoAuthError):
            stranger.set(path, b"mine")
        with pytest.raises(NoAuthError):
            stranger.create(f"{path}/mine", b"mine")
        with pytest.raises(NoAuthError):
            stranger.set_acls(path, OPEN_ACL_UNSAFE)
    for below in ("/jobs/a/b/c", "/nodes/n"):
        with pytest.raises(NoAuthError):
            stranger.delete(servers.root + below)
    node = store.get("/jobs/a/b/c")
    assert node is not None
    assert (node.data, node.version) == (b"secret", 0)


def test_another_key_is_told_so(servers: ZooKeeperServers) -> None:
    servers.open()
    with pytest.raises(SettingError, match=rf"this key cannot open {servers.root}.*use the key"):
        ZooKeeperStore.connect(servers.connect_string, "another", root=servers.root)
    with pytest.raises(SettingError, match="this key cannot open"):
        ZooKeeperStore.connect(servers.connect_string, "another", root=f"{servers.root}/below")


def test_a_root_that_is_open_to_others_is_not_used(servers: ZooKeeperServers, stranger: KazooClient) -> None:
    stranger.create(servers.root, b"", acl=OPEN_ACL_UNSAFE)
    with pytest.raises(SettingError, match="open to others"):
        servers.open()


def test_the_password_is_in_no_log(servers: ZooKeeperServers, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(1), caplog.at_level(1, "penstock.coord.zookeeper_store.kazoo"):
        store = servers.open()
        store.create("/secret", b"the data of a node")
        servers.interrupt(store)
        eventually("the store says so", lambda: "is suspended" in caplog.text)
        store.close()
    assert "the session with ZooKeeper is connected" in caplog.text
    assert "Connection dropped" not in caplog.text
    assert PASSWORD not in caplog.text
    assert "the data of a node" not in caplog.text


def test_only_the_port_for_clients_is_open_and_only_on_loopback(zookeeper: EmbeddedZooKeeper) -> None:
    process = psutil.Process(zookeeper.pids()[1])
    listening = {tuple(c.laddr) for c in process.net_connections() if c.status == psutil.CONN_LISTEN}
    assert listening == {("127.0.0.1", zookeeper.addresses[0].client)}


def test_no_secret_is_on_the_command_line_and_files_are_private(zookeeper: EmbeddedZooKeeper) -> None:
    process = psutil.Process(zookeeper.pids()[1])
    assert PASSWORD not in " ".join(process.cmdline())
    home = zookeeper.folder / "server-1"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "process.json").stat().st_mode) == 0o600
    assert os.getsid(process.pid) == process.pid


@pytest.mark.parametrize("hosts", ["127.0.0.1:port", "127.0.0.1:2181/chroot"])
def test_what_is_no_address_is_refused(hosts: str) -> None:
    with pytest.raises(SettingError, match="127"):
        ZooKeeperStore.connect(hosts, PASSWORD)


def test_servers_that_are_not_there_are_named() -> None:
    with pytest.raises(DisconnectedError, match=r"127\.0\.0\.1:9.*within 0\.5 seconds"):
        ZooKeeperStore.connect("127.0.0.1:9", PASSWORD, timeout=0.5)
