"""Operating system processes that outlive the process that started them, independent of jobs and clusters."""
