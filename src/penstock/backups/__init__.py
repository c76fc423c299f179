"""Data that a job keeps with its node, and its copies on other nodes."""
