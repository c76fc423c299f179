"""Execution inside the Spark tasks of a batch: record flow, vertex steps, parcels, keyed buckets."""
