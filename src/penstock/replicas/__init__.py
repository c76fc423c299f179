"""k-safety: several replicas of one job agree on batches, so that a lost node makes no gap."""
