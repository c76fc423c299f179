"""Validation rules of a graph, one subject per module. Each rule takes a job and yields its problems."""
