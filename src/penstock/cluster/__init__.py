"""What a cluster is and what is decided about it: frozen documents and pure functions. No I/O, no clock."""
