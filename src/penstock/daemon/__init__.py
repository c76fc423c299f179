"""Code shared by daemons and workers: the step loop, a worker's folder, a worker's link to the store."""
