"""The master: leader election, the reconcile loop, and the service that clients ask. Light at start."""
