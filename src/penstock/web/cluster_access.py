"""How a client finds a cluster and its token, and the errors of a client.

It must not import an HTTP library.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from penstock.errors import PenstockError, SettingError
from penstock.keyring import TOKEN_FILE


class ClientError(PenstockError):
    """A master has refused a request; ``code`` is the reason, and ``status`` the HTTP status."""

    def __init__(self, message: str, code: str, status: int) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class UnreachableError(PenstockError):
    """No master answers, or no master that answers knows a leader."""


class NoClusterError(SettingError):
    """No address of a cluster is configured, or no token."""


MASTERS_FILE = "masters.json"
"""The file in the cluster's folder with the masters: ``{"urls": ["http://127.0.0.1:8090", …]}``."""


def find_masters(given: str | None, folder: Path, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the URLs of the masters; the given text may be several URLs separated by commas.

    >>> find_masters("http://127.0.0.1:8090/, http://127.0.0.1:8091", Path("/nowhere"))
    ['http://127.0.0.1:8090', 'http://127.0.0.1:8091']
    """
    text = given or environment.get("PENSTOCK_MASTER_URL")
    if text:
        return [_valid_url(url.strip()) for url in text.split(",")]
    file = folder / MASTERS_FILE
    try:
        content = json.loads(file.read_text())
        urls = [_valid_url(url) for url in content["urls"]]
    except FileNotFoundError:
        raise NoClusterError(
            "no cluster is known: start one with penstock up, or name a master with --master-url"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise SettingError(f"{file} does not contain the URLs of masters: {error}") from error
    if not urls:
        raise NoClusterError(f"{file} names no master: name one with --master-url")
    return urls


def find_token(folder: Path, environment: Mapping[str, str] = os.environ) -> str:
    """Return the cluster's token. Raises NoClusterError, and SettingError when others can read its file."""
    given = environment.get("PENSTOCK_TOKEN")
    if given:
        return _valid_token(given.strip(), "PENSTOCK_TOKEN")
    file = folder / TOKEN_FILE
    try:
        mode = file.stat().st_mode
        token = file.read_text().strip()
    except FileNotFoundError:
        raise NoClusterError(f"there is no token: set PENSTOCK_TOKEN, or copy it to {file}") from None
    if mode & 0o077:
        raise SettingError(f"{file} can be read by others: chmod 600 {file}")
    return _valid_token(token, str(file))


def _valid_token(token: str, where: str) -> str:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise SettingError(f"{where} does not hold a token")
    return token


def _valid_url(url: str) -> str:
    if not isinstance(url, str):
        raise TypeError(f"{url!r} is not a URL")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise SettingError(f"{url!r} is not the URL of a master: write http://HOST:PORT")
    return url.rstrip("/")
