"""The worker's part in replication: join the other replicas, follow them, rebuild from a copy."""
