"""Jobs as directed graphs: construction, validation and description. Pure: no Spark, no I/O."""
