"""Coordination: the store protocol, its ZooKeeper implementation, mirror, documents and leadership."""
