"""What a worker does about data that is kept with its node: restores it, then uploads snapshots."""
