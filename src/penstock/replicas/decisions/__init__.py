"""Decisions about the replicas of a job, as pure functions."""
