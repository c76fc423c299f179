"""Windows over an event stream with late data: how busy was each sensor in each minute?

Readings come out of order. A minute is closed when a reading has come that is ten seconds newer than
its end; what comes later than that is late. Late readings are not lost: they are in the stream
``busy.late``, and here they are counted by sensor as well.

    penstock run examples/late_data.py --until drained
    penstock log read minutes
    penstock log read busy.late
"""

import penstock as ps

MINUTE = 60.0


def readings() -> list[ps.Record]:
    """Return three minutes of readings of two sensors, some of them too late."""
    made = [ps.Record(f"sensor-{n % 2}", 20.0 + n % 7, n * 1.5) for n in range(120)]
    made.insert(10, ps.Record("sensor-0", 99.0, 3.0))  # out of order, but in time
    made.insert(60, ps.Record("sensor-1", 99.0, 5.0))  # 85 s behind: the first minute is closed
    return made


job = ps.Job("busy")
events = job.source("readings", ps.MemorySource(readings()))
count = job.task("count", ps.Count(), window=ps.TimeWindow("1m", watermark="10s"))
minute = job.task("minute", lambda r: (r.key, {"minute": int(r.ts // MINUTE), "readings": r.value}))
events >> count >> minute >> job.sink("minutes", ps.LogSink("minutes"))

missed = job.task("count-missed", ps.Count())
count["late"] >> missed >> job.sink("missed", ps.LogSink("missed"))
