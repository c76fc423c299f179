"""Signs bundles with a key derived from the cluster's token, and checks these signatures.

The signature is not part of the bundle: it is sent in a request header and stored beside the bundle.
"""

from __future__ import annotations

import hashlib
import hmac

from penstock.errors import PenstockError


class BundleError(PenstockError):
    """A bundle cannot be created, or must not be used."""


class BundleAccessError(BundleError):
    """A bundle cannot be fetched or unpacked on this node now; the bundle itself may be valid."""


def sha256_of(bundle: bytes) -> str:
    """Return the SHA-256 of a bundle, by which it is identified everywhere."""
    return hashlib.sha256(bundle).hexdigest()


def sign(bundle: bytes, key: bytes) -> str:
    """Return the HMAC-SHA256 of a bundle's SHA-256, as hexadecimal digits.

    >>> sign(b"code", b"key")[:16]
    '15b7b5b1a3e71764'
    """
    return hmac.new(key, hashlib.sha256(bundle).digest(), hashlib.sha256).hexdigest()


def check_signature(bundle: bytes, signature: str, key: bytes) -> None:
    """Raise BundleError unless the signature belongs to this bundle and key."""
    given = signature.encode("ascii", errors="replace")
    if not hmac.compare_digest(sign(bundle, key).encode("ascii"), given):
        raise BundleError(
            "the bundle's signature is wrong: the bundle was altered, or signed with another cluster's token"
        )
