"""From a graph to what the engine runs: regions, exchanges, loops. Pure: no Spark, no I/O."""
