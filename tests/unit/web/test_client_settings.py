"""Where a client finds its cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import SettingError
from penstock.web.cluster_access import NoClusterError, find_masters, find_token

FROM_ENVIRONMENT = {"PENSTOCK_MASTER_URL": "http://b:2", "PENSTOCK_TOKEN": "secret"}


def test_what_is_given_comes_before_the_environment_and_that_before_the_folder(tmp_path: Path) -> None:
    (tmp_path / "masters.json").write_text('{"urls": ["http://c:3"]}')
    assert find_masters("http://a:1", tmp_path, FROM_ENVIRONMENT) == ["http://a:1"]
    assert find_masters(None, tmp_path, FROM_ENVIRONMENT) == ["http://b:2"]
    assert find_masters(None, tmp_path, {}) == ["http://c:3"]
    assert find_token(tmp_path, FROM_ENVIRONMENT) == "secret"


@pytest.mark.parametrize(
    "url", ["ftp://a", "a:1", "http://", "http://user:word@a", "http://a?b=c", "file:///etc"]
)
def test_urls_that_no_master_has(tmp_path: Path, url: str) -> None:
    with pytest.raises(SettingError, match="http://HOST:PORT"):
        find_masters(url, tmp_path, {})


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"urls": [1]}', '{"urls": "x"}', '{"urls": null}'])
def test_a_file_that_does_not_say_it(tmp_path: Path, content: str) -> None:
    (tmp_path / "masters.json").write_text(content)
    with pytest.raises(SettingError):
        find_masters(None, tmp_path, {})


def test_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(NoClusterError):
        find_masters(None, tmp_path, {})
    with pytest.raises(NoClusterError):
        find_token(tmp_path, {})
    (tmp_path / "masters.json").write_text('{"urls": []}')
    with pytest.raises(NoClusterError):
        find_masters(None, tmp_path, {})


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    file.chmod(0o640)
    with pytest.raises(SettingError, match="chmod 600"):
        find_token(tmp_path, {})
    file.chmod(0o600)
    assert find_token(tmp_path, {}) == "secret"
    file.write_text("two words\r\nHost: x")
    with pytest.raises(SettingError, match="does not hold a token"):
        find_token(tmp_path, {})
