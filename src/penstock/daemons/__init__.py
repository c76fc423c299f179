"""The processes of a cluster: master, supervisor, worker. They start without Spark, pandas and numpy."""
