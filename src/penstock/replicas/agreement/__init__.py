"""How the replicas of a job agree: on what each batch reads, and on whose output of it counts.

``core`` decides and knows no files; ``folder`` is the shared place; ``joining`` brings a replica to where
the others are.
"""
