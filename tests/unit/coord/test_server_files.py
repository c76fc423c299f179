"""What a ZooKeeper server of our own is started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.coord.server_files import ServerAddress, render_logging, render_zoo_cfg, server_command
from penstock.errors import SettingError

_THREE = [ServerAddress(f"127.0.0.{number}", 2180 + number, 2880, 3880) for number in (1, 2, 3)]


def _settings(text: str) -> dict[str, str]:
    pairs = [line.split("=", 1) for line in text.splitlines()]
    assert len(pairs) == len(dict(pairs)), "a setting is given twice"
    return dict(pairs)


def test_a_server_alone_has_no_peers() -> None:
    settings = _settings(render_zoo_cfg(1, _THREE[:1], Path("/data")))
    assert not [key for key in settings if key.startswith("server.")]
    assert settings["dataDir"] == "/data"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_each_of_three_listens_at_its_own_address_and_knows_all(number: int) -> None:
    settings = _settings(render_zoo_cfg(number, _THREE, Path("/data")))
    assert settings["clientPortAddress"] == f"127.0.0.{number}"
    assert settings["clientPort"] == str(2180 + number)
    peers = {key: value for key, value in settings.items() if key.startswith("server.")}
    assert peers == {f"server.{other}": f"127.0.0.{other}:2880:3880" for other in (1, 2, 3)}


def test_what_could_be_abused_is_off() -> None:
    settings = _settings(render_zoo_cfg(1, _THREE, Path("/data")))
    assert settings["admin.enableServer"] == "false"
    assert settings["4lw.commands.whitelist"] == "srvr,ruok"
    assert settings["quorumListenOnAllIPs"] == "false"


def test_old_files_are_purged_and_sessions_have_bounds() -> None:
    settings = _settings(render_zoo_cfg(1, _THREE, Path("/data")))
    assert int(settings["autopurge.purgeInterval"]) > 0
    assert int(settings["autopurge.snapRetainCount"]) >= 3
    assert int(settings["minSessionTimeout"]) <= 6000 <= int(settings["maxSessionTimeout"])


def test_warnings_go_to_a_file_that_is_kept_small() -> None:
    text = render_logging(Path("/folder/zookeeper.log"))
    assert "rootLogger.level = warn" in text
    assert "fileName = /folder/zookeeper.log" in text
    assert "SizeBasedTriggeringPolicy" in text


def test_the_class_path_has_only_what_it_needs(tmp_path: Path) -> None:
    needed = ["log4j-api-2.25.4", "log4j-core-2.25.4", "log4j-slf4j2-impl-2.25.4", "metrics-core-4.2.37"]
    needed += ["slf4j-api-2.0.17", "snappy-java-1.1.10.8", "zookeeper-3.9.5", "zookeeper-jute-3.9.5"]
    for name in [*needed, "spark-core_2.13-4.2.0", "metrics-core-extra-1"]:
        (tmp_path / f"{name}.jar").touch()
    command = server_command(Path("/java"), tmp_path, Path("/logging"), Path("/zoo.cfg"))
    class_path = command[command.index("-cp") + 1].split(":")
    assert sorted(class_path) == [str(tmp_path / f"{name}.jar") for name in needed]
    assert command[0] == "/java"
    assert command[-2:] == ["org.apache.zookeeper.server.quorum.QuorumPeerMain", "/zoo.cfg"]


def test_a_jar_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no zookeeper among"):
        server_command(Path("/java"), tmp_path, Path("/logging"), Path("/zoo.cfg"))
