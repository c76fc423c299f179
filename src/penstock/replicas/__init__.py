"""k-safety: several replicas of a job agree on its batches, so that a lost node does not interrupt it."""
