"""The secrets of a cluster, all derived from one key, so that only the key is stored and distributed."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import SettingError

KEY_FILE = "cluster.key"
TOKEN_FILE = "token"  # noqa: S105 - the name of a file


@dataclass(frozen=True)
class Keyring:
    """The secrets derived from a key. Masters and supervisors hold the key; users hold only the token.

    >>> ring = Keyring(bytes(32))
    >>> ring.token == Keyring(bytes(32)).token, ring.token == ring.node_token
    (True, False)
    """

    key: bytes = field(repr=False)

    def _derive(self, purpose: str) -> str:
        return hmac.new(self.key, f"penstock {purpose}".encode(), hashlib.sha256).hexdigest()

    @property
    def token(self) -> str:
        """The token with which a client authenticates."""
        return self._derive("token")

    @property
    def node_token(self) -> str:
        """The token with which masters and supervisors authenticate to each other."""
        return self._derive("node")

    @property
    def store_password(self) -> str:
        """The password for the nodes of the coordination store."""
        return self._derive("store")

    @property
    def quorum_password(self) -> str:
        """The password with which ZooKeeper servers authenticate to each other."""
        return self._derive("quorum")

    @property
    def secrets(self) -> tuple[str, ...]:
        """All secrets that must not be shown, except those of single runs."""
        return (self.key.hex(), self.token, self.node_token, self.store_password, self.quorum_password)

    def spark_secret(self, job: str, revision: int, attempt: int) -> str:
        """Return the secret with which the driver and executors of one worker authenticate to each other."""
        return self._derive(f"spark {job} {revision} {attempt}")


def signing_key(token: str) -> bytes:
    """Return the key that signs bundles; the token suffices to sign, and the cluster key to verify."""
    return hmac.new(token.encode(), b"penstock bundle", hashlib.sha256).digest()


def open_keyring(folder: Path, *, create: bool = False) -> Keyring:
    """Read the key of a cluster from its folder; ``create`` creates missing files of key and token."""
    path = folder / KEY_FILE
    if create:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_once(path, secrets.token_hex(32))
    try:
        ring = Keyring(bytes.fromhex(path.read_text().strip()))
    except FileNotFoundError:
        raise SettingError(f"there is no key {path}: copy it from another node") from None
    except ValueError:
        raise SettingError(f"{path} is not a key: it must hold 64 hexadecimal digits") from None
    if path.stat().st_mode & 0o077:
        raise SettingError(f"{path} can be read by others: chmod 600 {path}")
    if create:
        _write_once(folder / TOKEN_FILE, ring.token)
    return ring


def load_or_create_secret(path: Path) -> str:
    """Return the secret in a file, 64 hexadecimal digits; creates the file if it is missing.

    Raises SettingError if the file holds something else or other users can read it.
    """
    _write_once(path, secrets.token_hex(32))
    secret = path.read_text().strip()
    if len(secret) != 64 or set(secret) - set("0123456789abcdef"):
        raise SettingError(f"{path} must hold 64 hexadecimal digits: stop all servers, then remove it")
    if path.stat().st_mode & 0o077:
        raise SettingError(f"{path} can be read by others: chmod 600 {path}")
    return secret


def _write_once(path: Path, text: str) -> None:
    """Create a file that only its owner can read; does nothing if it exists already."""
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
        os.link(staged, path)
    except FileExistsError:
        pass
    finally:
        staged.unlink()
