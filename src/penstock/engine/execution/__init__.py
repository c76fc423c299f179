"""Execution in the Spark tasks of a batch: record flow, vertex steps, parcels and keyed buckets."""
