"""Vertices that are connected wrongly, and windows that make no sense."""

from __future__ import annotations

from bad_rows import IMPORT, Row, line
from bad_settings import CLASSES

SHAPES = [
    Row(
        "no-vertex-at-all",
        f'{IMPORT}job = ps.Job("empty")',
        ("job 'empty' has 2 problems:", "the job has no source: add one with job.source(name, source)"),
        "no-source",
    ),
    Row(
        "no-sink",
        f'{IMPORT}job = ps.Job("half")\njob.source("in", ps.LogSource("in"))',
        ("job 'half' has 2 problems:", "the job has no sink: add one with job.sink(name, sink)"),
        "no-sink",
    ),
    Row(
        "edge-into-a-source",
        line(options="max_iterations=1", after="task >> source"),
        ("source 'in' has an edge from 'work': a source has no input",),
        "source-with-input",
    ),
    Row(
        "edge-out-of-a-sink",
        line(after='sink >> job.sink("more", ps.ConsoleSink())'),
        ("sink 'out' has an edge to 'more': a sink has no output",),
        "sink-with-output",
    ),
    Row(
        "vertex-of-another-job",
        line(after='task >> ps.Job("other").sink("theirs", ps.ConsoleSink())'),
        ("edge 'work' -> 'theirs': 'theirs' belongs to job 'other'; connect jobs through a log instead",),
        "foreign-vertex",
    ),
    Row(
        "unknown-output-port",
        line(after='task["left"] >> sink'),
        ("edge 'work' -> 'out': 'work' has no output port 'left': it has 'out'",),
        "unknown-port",
    ),
    Row(
        "port-not-chosen",
        line(before=CLASSES, task="Two", after='task["left"] >> sink; task["right"] >> sink'),
        ("'work' has several output ports: choose 'left', 'right', as in work[\"left\"]",),
        "unknown-port",
    ),
    Row(
        "late-without-a-window",
        line(task="ps.Count()", after='task["late"] >> sink'),
        ("'work' has no window of time, so no record is ever late for it",),
        "unknown-port",
    ),
    Row(
        "discarded-without-a-loop",
        line(after='task["discarded"] >> sink'),
        ("'work' is not the entry of a loop, so no record is discarded there",),
        "unknown-port",
    ),
    Row(
        "port-without-an-edge",
        f'{IMPORT}{CLASSES}\njob = ps.Job("open")\nsource = job.source("in", ps.LogSource("in"))\n'
        'two = job.task("two", Two)\nsource >> two\ntwo["left"] >> job.sink("out", ps.LogSink("out"))',
        ("job 'open' has 1 problem", "vertex 'two': output port 'right' has no edge"),
        "unconnected-port",
    ),
    Row(
        "edge-twice",
        line(after="source >> task"),
        ("edge 'in' port 'out' -> 'work' port 'in' was added 2 times",),
        "duplicate-edge",
    ),
    Row(
        "partitioning-is-a-word",
        line(after='job.connect(source, sink, by="key")'),
        ("by must be a Partitioning ('ROUND_ROBIN', 'SAME_KEY', 'BROADCAST'), not 'key'",),
        "bad-partitioning",
    ),
    Row(
        "state-by-key-and-a-broadcast",
        line(
            after='more = job.task("sum", ps.Sum()); job.connect(task, more, by=ps.BROADCAST); more >> sink'
        ),
        ("edge 'work' -> 'sum': 'sum' keeps state by key, so the edge must be SAME_KEY, not BROADCAST",),
        "bad-partitioning",
    ),
    Row(
        "sync-ports-divided-in-two-ways",
        line(
            before=CLASSES,
            after='join = job.task("join", Join); job.connect(source, join["left"], by=ps.SAME_KEY);'
            'job.connect(task, join["right"], by=ps.ROUND_ROBIN); join >> sink',
        ),
        ("edge 'work' -> 'join': 'join' aligns its inputs in one way: all its edges must be SAME_KEY",),
        "bad-partitioning",
    ),
    Row(
        "sync-port-and-a-broadcast",
        line(
            before=CLASSES,
            after='join = job.task("join", Join); job.connect(source, join["left"], by=ps.BROADCAST);'
            'job.connect(task, join["right"], by=ps.BROADCAST); join >> sink',
        ),
        ("edge 'in' -> 'join': 'join' aligns its inputs, so BROADCAST cannot lead into it",),
        "bad-partitioning",
    ),
    Row(
        "task-that-nothing-leads-to",
        line(after='job.task("island", lambda r: r) >> sink'),
        ("task 'island' is not reachable from any source",),
        "unreachable",
    ),
    Row(
        "task-that-leads-nowhere",
        line(after='source >> job.task("end", lambda r: r)'),
        ("task 'end' does not lead to any sink",),
        "dead-end",
    ),
    Row(
        "loop-without-a-limit",
        line(after='again = job.task("again", lambda r: r); task >> again >> task'),
        ("the cycle work -> again -> work has no limit: set max_iterations on the job or on 'work'",),
        "cycle-without-limit",
    ),
]

WINDOWS = [
    Row(
        "window-of-0",
        line(task="ps.Count()", task_options='window=ps.TimeWindow("0s")'),
        ("task 'work': TimeWindow: size must be a duration of at least a millisecond, not '0s'",),
        "bad-window",
    ),
    Row(
        "window-of-nonsense",
        line(task="ps.Count()", task_options='window=ps.TimeWindow("a while")'),
        ("task 'work': TimeWindow: size: 'a while' is not a duration: write 250ms, 30s, 5m, 1h or 7d",),
        "bad-window",
    ),
    Row(
        "slide-longer-than-size",
        line(task="ps.Count()", task_options='window=ps.TimeWindow("5s", slide="10s")'),
        ("task 'work': TimeWindow: slide must not be longer than size ('10s' > '5s')",),
        "bad-window",
    ),
    Row(
        "count-window-of-0",
        line(task="ps.Count()", task_options="window=ps.CountWindow(0)"),
        ("task 'work': CountWindow: size must be a whole number of records from 1 on, not 0",),
        "bad-window",
    ),
    Row(
        "negative-watermark",
        line(task="ps.Count()", task_options='window=ps.TimeWindow("5s", watermark=-1)'),
        ("task 'work': TimeWindow: watermark must be a duration of at least 0 seconds, not -1",),
        "bad-window",
    ),
    Row(
        "window-is-a-number",
        line(task="ps.Count()", task_options="window=60"),
        ("task 'work': window must be a TimeWindow or a CountWindow, not 60",),
        "bad-window",
    ),
    Row(
        "window-on-a-function",
        line(task_options='window=ps.TimeWindow("5s")'),
        ("task 'work': only sources and stateful tasks have windows: put it on the source",),
        "bad-window",
    ),
    Row(
        "window-in-a-loop",
        line(
            options="max_iterations=2",
            task="ps.Count()",
            task_options='window=ps.TimeWindow("5s")',
            after="task >> task",
        ),
        ("task 'work': a window cannot be part of a loop",),
        "bad-window",
    ),
    Row(
        "windows-and-records-into-one-function",
        line(after='job.source("more", ps.LogSource("in"), window=ps.CountWindow(3)) >> task'),
        ("task 'work' gets windows from one vertex and records from another: use a function for each",),
        "bad-window",
    ),
]
