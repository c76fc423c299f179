"""The agreement of a job's replicas: on what each batch reads, and on whose output is committed.

``core`` decides and knows no files; ``folder`` is the shared place; ``joining`` brings a replica to where
the others are.
"""
