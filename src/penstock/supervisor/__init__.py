"""The supervisor of a node: starts, watches and reports the processes of its node. Light at start."""
