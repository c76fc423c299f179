"""Counts words: the smallest job that shows a source, a task, keyed state and a sink.

    penstock log create lines
    echo "to be or not to be" | penstock log append lines
    penstock run examples/wordcount.py --until drained
    penstock log read counts

Each batch emits a word's new count, so the last value of a word is its count. Append more lines and run
it again: it goes on where it stopped.
"""

import penstock as ps

job = ps.Job("wordcount")
lines = job.source("lines", ps.LogSource("lines"))
split = job.task("split", lambda r: [(w, 1) for w in r.value.split()])
count = job.task("count", ps.Count())  # a ps.StatefulTask: its input edges are SAME_KEY
out = job.sink("counts", ps.LogSink("counts"))
lines >> split >> count >> out
