"""Bundles of user code: packed, signed, verified and unpacked."""
