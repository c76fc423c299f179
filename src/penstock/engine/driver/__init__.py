"""The driver of a job: plans, commits and repeats batches; starts, changes and stops their query."""
