"""Compilation of a graph to a physical plan: regions, exchanges and loops. Pure: no Spark, no I/O."""
