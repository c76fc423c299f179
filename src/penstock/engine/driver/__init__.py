"""Plans, commits and repeats batches, and starts, changes and stops the query that runs them."""
