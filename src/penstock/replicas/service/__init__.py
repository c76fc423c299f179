"""The master's service for replicas: their status, and changes of a job's replication."""
