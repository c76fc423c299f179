"""Logs of processes and output of user code, for operators. The embedded data log is ``penstock.log``."""
