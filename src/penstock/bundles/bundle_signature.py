"""Signs bundles with a key derived from the cluster's token, and checks these signatures.

The signature is no part of the bundle: it travels in a header of the request and is stored beside it.
"""

from __future__ import annotations

import hashlib
import hmac

from penstock.errors import PenstockError


class BundleError(PenstockError):
    """A bundle cannot be made, or must not be used; the message says why."""


class BundleAccessError(BundleError):
    """A bundle cannot be fetched or unpacked here and now; nothing is known against the bundle itself."""


def sha256_of(bundle: bytes) -> str:
    """Return what a bundle is called everywhere: the SHA-256 of all its bytes."""
    return hashlib.sha256(bundle).hexdigest()


def sign(bundle: bytes, key: bytes) -> str:
    """Return the HMAC-SHA256 of a bundle's SHA-256, as hexadecimal digits.

    >>> sign(b"code", b"key")[:16]
    '15b7b5b1a3e71764'
    """
    return hmac.new(key, hashlib.sha256(bundle).digest(), hashlib.sha256).hexdigest()


def check_signature(bundle: bytes, signature: str, key: bytes) -> None:
    """Raise BundleError unless a signature was made of this bundle with this key."""
    given = signature.encode("ascii", errors="replace")
    if not hmac.compare_digest(sign(bundle, key).encode("ascii"), given):
        raise BundleError(
            "the bundle's signature is wrong: it was altered, or signed with the token of another cluster"
        )
