"""Storage of a job: its folder, the ledger and keyed state."""
