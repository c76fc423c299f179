"""What a ZooKeeper server of our own is started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.coord.zookeeper_config import (
    ServerAddress,
    render_jaas,
    render_logging,
    render_zoo_cfg,
    server_command,
    write_server_files,
)
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
    needed += [
        "netty-handler-4.2.13",
        "slf4j-api-2.0.17",
        "snappy-java-1.1.10.8",
        "zookeeper-3.9.5",
        "zookeeper-jute-3.9.5",
    ]
    for name in [*needed, "spark-core_2.13-4.2.0", "metrics-core-extra-1", "netty-handler-proxy-4.2.13"]:
        (tmp_path / f"{name}.jar").touch()
    command = server_command(Path("/java"), tmp_path, Path("/logging"), Path("/zoo.cfg"))
    class_path = command[command.index("-cp") + 1].split(":")
    assert sorted(class_path) == [str(tmp_path / f"{name}.jar") for name in sorted(needed)]
    assert command[0] == "/java"
    assert command[-2:] == ["org.apache.zookeeper.server.quorum.QuorumPeerMain", "/zoo.cfg"]


def test_a_jar_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="the jar zookeeper is missing"):
        server_command(Path("/java"), tmp_path, Path("/logging"), Path("/zoo.cfg"))


def _written(folder: Path, jars: Path, servers: int, secret: str) -> list[str]:
    jars.mkdir()
    for name in ("zookeeper", "zookeeper-jute", "slf4j-api", "log4j-slf4j2-impl", "log4j-api", "log4j-core"):
        (jars / f"{name}-1.jar").touch()
    for name in ("metrics-core", "snappy-java", "netty-handler"):
        (jars / f"{name}-1.jar").touch()
    return write_server_files(
        folder, min(servers, 2), _THREE[:servers], secret, java=Path("/java"), jars=jars
    )


def test_servers_with_peers_show_each_other_a_secret_that_is_in_one_private_file(tmp_path: Path) -> None:
    secret = "5ec2e7" * 8
    command = _written(tmp_path / "2", tmp_path / "jars", 3, secret)
    jaas = tmp_path / "2" / "quorum.jaas"
    assert f"-Djava.security.auth.login.config={jaas}" in command
    assert secret not in " ".join(command)
    files = [path for path in (tmp_path / "2").rglob("*") if path.is_file()]
    holders = [path.name for path in files if secret in path.read_text()]
    assert holders == ["quorum.jaas"]
    assert jaas.stat().st_mode & 0o077 == 0
    settings = _settings((tmp_path / "2" / "zoo.cfg").read_text())
    for required in ("enableSasl", "learnerRequireSasl", "serverRequireSasl"):
        assert settings[f"quorum.auth.{required}"] == "true"


def test_a_server_alone_opens_no_port_for_peers_and_needs_no_secret(tmp_path: Path) -> None:
    command = _written(tmp_path / "1", tmp_path / "jars", 1, "")
    settings = _settings((tmp_path / "1" / "zoo.cfg").read_text())
    assert not [key for key in settings if key.startswith(("quorum.", "server."))]
    assert not [option for option in command if "login.config" in option]
    assert not (tmp_path / "1" / "quorum.jaas").exists()


@pytest.mark.parametrize("secret", ["", 'a"; };', "a b", "äöü", "ABC"])
def test_what_could_end_a_string_in_the_login_settings_is_no_secret(secret: str) -> None:
    with pytest.raises(SettingError, match="hexadecimal"):
        render_jaas(secret)
