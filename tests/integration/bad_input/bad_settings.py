"""Wrong settings of jobs and vertices, and vertices that are none."""

from __future__ import annotations

from bad_rows import Row, line

CLASSES = """
class Two(ps.Task):
    outputs = ("left", "right")
    def execute(self, inputs, outputs): ...

class Join(ps.Task):
    inputs = ("left", "right")
    sync = True
    def execute(self, inputs, outputs): ...

class NoUpdate(ps.StatefulTask): ...

class NoPorts(ps.Task):
    outputs = ()
    def execute(self, inputs, outputs): ...

class TwoStates(ps.StatefulTask):
    outputs = ("a", "b")
    def update(self, key, values, state): ...

class NeedsArguments(ps.Task):
    def __init__(self, size): ...
"""

SETTINGS = [
    Row(
        "job-name-with-a-slash",
        line("a/b"),
        ("job 'a/b' has 1 problem:", "job name 'a/b' must start with a letter or digit"),
        "bad-name",
    ),
    Row("reserved-name", line("zookeeper"), ("job name 'zookeeper' is reserved",), "bad-name"),
    Row(
        "vertex-name-is-a-number",
        line(after="sink2 = job.sink(7, ps.ConsoleSink()); task >> sink2"),
        ("job 'line' has 1 problem", "vertex name 7 must be a string"),
        "bad-name",
    ),
    Row(
        "two-vertices-of-one-name",
        line(after='task >> job.sink("out", ps.ConsoleSink())'),
        ("2 vertices are named 'out': rename all but one",),
        "duplicate-name",
    ),
    Row(
        "mode",
        line(options='mode="quick"'),
        ("mode must be one of 'throughput', not 'quick'",),
        "bad-mode",
    ),
    Row(
        "latency-mode",
        line(options='mode="latency"'),
        ("mode='latency' is not supported yet: use 'throughput'",),
        "unsupported",
    ),
    Row(
        "guarantee",
        line(options='guarantee="twice"'),
        ("guarantee must be one of 'exactly-once', 'at-least-once', 'at-most-once', not 'twice'",),
        "bad-guarantee",
    ),
    Row("k-below-0", line(options="k=-1"), ("k must be a whole number from 0 to 100, not -1",), "bad-k"),
    Row(
        "replicas-at-least-once",
        line(options='k=1, guarantee="at-least-once"'),
        ("replicas are exactly-once: remove guarantee='at-least-once'",),
        "bad-k",
    ),
    Row(
        "standby-of-replicas",
        line(options='replicas={"k": 1, "warm_standby": True}'),
        ("warm_standby is for k=0: with k > 0 the other replicas run already",),
        "bad-warm-standby",
    ),
    Row(
        "backups-of-nobody",
        line(options='replicas={"publisher": "primary"}'),
        ("publisher='primary' needs other replicas: set k to 1 or more",),
        "bad-publisher",
    ),
    Row(
        "no-replicas",
        line(options='replicas={"standby": "warm"}'),
        ("replicas takes Replicas, or a dict of 'k', 'publisher', 'recovery', 'warm_standby', not ",),
        "bad-replicas",
    ),
    Row(
        "recovery",
        line(options='replicas={"k": 1, "recovery": "never"}'),
        ("recovery must be one of 'copy', 'next-window', not 'never'",),
        "bad-recovery",
    ),
    Row(
        "interval",
        line(options='interval="soon"'),
        ("interval must be a duration above 0 such as \"500ms\", not 'soon'",),
        "bad-interval",
    ),
    Row(
        "on-error-of-the-job",
        line(options='on_error="explode"'),
        ("on_error must be one of 'fail', 'discard', 'retry' or a ps.Retry, not 'explode'",),
        "bad-on-error",
    ),
    Row(
        "on-error-of-a-vertex",
        line(task_options="on_error=3"),
        ("vertex 'work': on_error must be one of 'fail', 'discard', 'retry' or a ps.Retry, not 3",),
        "bad-on-error",
    ),
    Row(
        "retry-times",
        line(options="on_error=ps.Retry(-1)"),
        ("Retry: times must be a whole number from 0 to 100, not -1",),
        "bad-on-error",
    ),
    Row(
        "retry-delay",
        line(task_options='on_error=ps.Retry(delay="soon")'),
        ("vertex 'work': Retry: delay: 'soon' is not a duration",),
        "bad-on-error",
    ),
    Row(
        "retry-longest-delay",
        line(task_options='on_error=ps.Retry(delay="2m")'),
        ("vertex 'work': Retry: delay must be from 0 to 60 seconds, not '2m'",),
        "bad-on-error",
    ),
    Row(
        "retry-then",
        line(options='on_error=ps.Retry(then="retry")'),
        ("Retry: then must be 'fail' or 'discard', not 'retry'",),
        "bad-on-error",
    ),
    Row(
        "spark-is-a-list",
        line(options='spark=["spark.x=1"]'),
        ("spark must be a dict of settings, not ['spark.x=1']",),
        "bad-spark",
    ),
    Row(
        "spark-setting-is-a-list",
        line(options='spark={"spark.x": [1]}'),
        ("Spark setting 'spark.x' must be a string, a number or a bool, not [1]",),
        "bad-spark",
    ),
    Row(
        "max-iterations-below-0",
        line(task_options="max_iterations=-1"),
        ("vertex 'work': max_iterations must be a whole number from 0 on, not -1",),
        "bad-max-iterations",
    ),
    Row(
        "parallelism-0",
        line(options="parallelism=0"),
        ("job: parallelism must be a whole number from 1 to 4096, not 0",),
        "bad-parallelism",
    ),
    Row(
        "buckets-0",
        line(options="buckets=0"),
        ("job: buckets must be a whole number from 1 to 4096, not 0",),
        "bad-buckets",
    ),
    Row(
        "durability",
        line(options="durability='disk'"),
        ("durability must be one of 'none', 'batch', not 'disk'",),
        "bad-durability",
    ),
    Row(
        "qos-priority",
        line(task_options='qos={"priority": 11}'),
        ("vertex 'work': qos: priority must be a whole number from 0 to 10, not 11",),
        "bad-qos",
    ),
    Row(
        "qos-field",
        line(options='qos={"urgency": 1}'),
        ("job: qos: unknown field 'urgency': a QoS has 'priority', 'max_latency', 'max_loss'",),
        "bad-qos",
    ),
]

OPERATORS = [
    Row(
        "source-is-a-path",
        line(source='"lines.txt"'),
        ("source 'in': must be a Source, not 'lines.txt'",),
        "bad-source",
    ),
    Row(
        "source-is-a-class",
        line(source="ps.LogSource"),
        ("source 'in': must be an instance: LogSource(...), not the class",),
        "bad-source",
    ),
    Row("sink-is-a-list", line(sink="[]"), ("sink 'out': must be a Sink, not []",), "bad-sink"),
    Row(
        "task-is-a-number",
        line(task="5"),
        ("task 'work': must be a function, a Task or a StatefulTask, not 5",),
        "bad-task",
    ),
    Row(
        "function-of-two",
        line(task="lambda key, value: value"),
        ("task 'work': the function must take one record: missing a required argument: 'value'",),
        "bad-task",
    ),
    Row(
        "async-function",
        line(before="async def work(r): return r", task="work"),
        ("task 'work': must be a plain function, not an async one",),
        "bad-task",
    ),
    Row(
        "task-without-update",
        line(before=CLASSES, task="NoUpdate"),
        ("task 'work': NoUpdate does not define update",),
        "bad-task",
    ),
    Row(
        "task-class-that-needs-arguments",
        line(before=CLASSES, task="NeedsArguments"),
        ("task 'work': NeedsArguments() failed (TypeError: ", "give an instance"),
        "bad-task",
    ),
    Row(
        "quantile-above-1",
        line(task="ps.Quantiles((0.5, 50))"),
        ("task 'work': Quantiles: a quantile must be from 0 to 1, not 50",),
        "bad-task",
    ),
    Row(
        "task-without-ports",
        line(before=CLASSES, task="NoPorts()"),
        ("task 'work': outputs must name at least one port",),
        "bad-ports",
    ),
    Row(
        "config-is-a-list",
        line(task_options="config=[1]"),
        ("task 'work': config must be a dict with names as keys, not [1]",),
        "bad-config",
    ),
    Row(
        "two-outputs-of-a-stateful-task",
        line(before=CLASSES, task="TwoStates()", after='task["a"] >> sink; task["b"] >> sink'),
        ("task 'work': its items do not name a port, so it can have only one output port",),
        "unsupported",
    ),
]
