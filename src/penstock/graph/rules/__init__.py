"""Validation rules of a graph, one subject in each module. Each takes a job and yields its problems."""
