"""The worker: the process that runs one job, or one replica of it."""
