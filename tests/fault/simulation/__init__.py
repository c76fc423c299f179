"""A whole control plane in one thread: real masters and supervisors, imagined machines and faults."""
