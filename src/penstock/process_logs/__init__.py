"""What processes and user code write for operators; the embedded data log is ``penstock.log``."""
