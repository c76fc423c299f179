"""What a master says about replicas: their status, and changes of how a job is replicated."""
