"""The worker's part in replication: joins the other replicas, follows them, restarts from a copy."""
