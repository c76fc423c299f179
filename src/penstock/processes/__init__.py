"""Processes of the operating system that outlive their starter. Knows nothing of jobs or clusters."""
