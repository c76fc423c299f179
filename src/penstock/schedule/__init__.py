"""Placement: pure decisions from a frozen snapshot of the cluster to a placement with reasons."""
