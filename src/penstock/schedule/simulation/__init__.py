"""Scheduling, failures and load on virtual time, with the code that decides in a real cluster.

- `scenario`, `builtin_scenarios`, `scenario_file`: what is simulated, as frozen data or from a file.
- `workload`: the events, drawn before anything is placed: the same for every strategy.
- `simulator`: nodes, jobs and places as figures, and the loop over events, decisions and samples.
- `simulated_recovery`: where backups are, and how long lost tasks take to run again.
- `run_statistics`: means, confidence intervals, curves.
"""
