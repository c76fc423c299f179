"""The state of a cluster and decisions about it: frozen documents and pure functions. No I/O, no clock."""
