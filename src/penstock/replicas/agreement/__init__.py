"""The agreement of a job's replicas: what each batch reads, and whose output is committed.

``agreement_protocol`` has the decisions, as pure functions; ``agreement_folder`` stores them in the shared
folder; ``batch_agreement`` applies them to each batch; ``replica_catch_up`` brings a replica to the batch of
the others.
"""
