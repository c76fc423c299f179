"""Measures Penstock against what an engineer would write by hand; `python -m benchmarks` runs it all."""
