"""Coordination: a small store protocol, its two implementations, and what is built on it."""
