"""What runs inside a task of a batch: the flow of records, steps, parcels, keyed buckets."""
