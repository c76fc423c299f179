"""Snapshots of node-kept data: cut on the job's node, stored by another node's supervisor, restored.

- `manifest`: the files that a snapshot consists of, each with its digest.
- `cutting`: takes a snapshot of a job that runs, without stopping it (in the worker).
- `store`: the snapshots that a supervisor keeps for other nodes; `objects` and `shelf` are its two parts.
- `client`: sends snapshots to a supervisor and fetches them, resumably and no faster than allowed;
  `connection`, `framing`, `deflating`, `fetching` and `rate` are what it is made of.
- `restoring`: makes a job's home from the last snapshot that is whole; `building` makes its files.
- `durable`: what must be on the disk before something else may be.
"""
