"""The worker's part in backups: restores node-kept data, then uploads snapshots."""
