"""Storage of a job: its folder, its ledger and its keyed state."""
