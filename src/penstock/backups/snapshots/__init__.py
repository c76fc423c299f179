"""Snapshots of node-kept data: taken on the job's node, stored by another node's supervisor, restored.

- `snapshot_manifest`: the files that a snapshot consists of, each with its digest.
- `snapshot_cutter`: takes a snapshot of a running job without stopping it (in the worker); `link_cache`
  holds its files.
- `snapshot_store`: the snapshots that a supervisor keeps for other nodes, made of `object_store` and
  `manifest_store`.
- `snapshot_client`: sends snapshots to a supervisor and fetches them, resumable and rate-limited;
  `transfer_format` is the format of its requests, and `token_bucket` the rate limit.
- `snapshot_restore`: restores a job's home from the newest complete snapshot.
- `durable_files`: writes files durably; `snapshot_errors`: the errors.
"""
