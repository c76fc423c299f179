"""What a batch leaves on disk: the job's folder, the ledger and keyed state."""
