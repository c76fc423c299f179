"""Test a job in one line, on real Spark, with its sources and sinks replaced by lists.

result = ps.testing.run(job, {"lines": ["a b", "b"]})
assert {r.key: r.value for r in result["counts"]} == {"a": 1, "b": 2}
"""

from penstock.testing.job_runner import Result, load, run

__all__ = ["Result", "load", "run"]
