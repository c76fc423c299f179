"""Scheduling, failures and load on virtual time, with the code that decides in a real cluster.

- `scenario`, `topologies`, `builtin`, `reading`: what is simulated, as frozen data or from a file.
- `workload`: what happens from outside, drawn before anything is placed: the same for every strategy.
- `cluster`: nodes, jobs and places as figures.
- `recovery`: where backups are, and how long lost tasks take to be back.
- `running`: the loop over events, decisions and samples.
- `summary`: means, confidence intervals, curves.
"""
