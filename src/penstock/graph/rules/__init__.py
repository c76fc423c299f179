"""The rules of a sound graph, a subject a file. Each takes a job and yields what is wrong with it."""
