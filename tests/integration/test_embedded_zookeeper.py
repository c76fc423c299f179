"""What can be asked of embedded servers, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.coord.embedded_zookeeper import EmbeddedZooKeeper
from penstock.errors import SettingError


def test_addresses_are_picked_once(tmp_path: Path) -> None:
    hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    first = EmbeddedZooKeeper(tmp_path, servers=3, hosts=hosts)
    again = EmbeddedZooKeeper(tmp_path, servers=3, hosts=hosts)
    assert again.addresses == first.addresses
    ports = {
        (address.host, port)
        for address in first.addresses
        for port in (address.client, address.peer, address.election)
    }
    assert len(ports) == 9
    assert first.connect_string.count("127.0.0.") == 3
    assert first.pids() == {}
    first.stop()


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="one or three"):
        EmbeddedZooKeeper(tmp_path, servers=2)
    with pytest.raises(SettingError, match="2 addresses for 1"):
        EmbeddedZooKeeper(tmp_path, hosts=["127.0.0.1", "127.0.0.2"])
    with pytest.raises(SettingError, match="2 ports for 1"):
        EmbeddedZooKeeper(tmp_path, ports=[12001, 12002])


def test_a_folder_belongs_to_its_servers(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path)
    with pytest.raises(SettingError, match="other addresses"):
        EmbeddedZooKeeper(tmp_path, servers=3)
    with pytest.raises(SettingError, match="other addresses"):
        EmbeddedZooKeeper(tmp_path, ports=[server.addresses[0].client + 1])
    (tmp_path / "servers.json").write_text("{")
    with pytest.raises(SettingError, match="damaged"):
        EmbeddedZooKeeper(tmp_path)
