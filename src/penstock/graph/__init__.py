"""Jobs as directed graphs: building, checking and describing them. Pure: no Spark, no I/O."""
