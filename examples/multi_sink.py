"""One graph with many sinks: log lines are read once and go to an archive, to alarms and to totals.

    penstock log create weblog
    penstock log append weblog < access.log
    penstock run examples/multi_sink.py --until drained
    penstock log read alarms

A line that cannot be read does not stop the job: it is in the stream ``weblog.errors`` with the reason.
"""

import penstock as ps


def parse(record: ps.Record) -> tuple[str, dict[str, object]]:
    """Read ``METHOD PATH STATUS MILLISECONDS``."""
    method, path, status, millis = record.value.split()
    return path, {"method": method, "status": int(status), "millis": float(millis)}


class Sort(ps.Task):
    """Sends each request to every port that it concerns."""

    outputs = ("all", "failed", "slow")

    def execute(self, inputs, outputs):  # type: ignore[no-untyped-def]
        for path, request, _ in inputs.get():
            outputs.emit(path, request, port="all")
            if request["status"] >= 500:
                outputs.emit(path, request, port="failed")
            if request["millis"] > 1000:
                outputs.emit(path, request["millis"], port="slow")


job = ps.Job("weblog", on_error="discard")
lines = job.source("lines", ps.LogSource("weblog"))
sort = job.task("sort", Sort())
lines >> job.task("parse", parse) >> sort
archive, alarms = job.sink("archive", ps.LogSink("archive")), job.sink("alarms", ps.LogSink("alarms"))
sort["all"] >> archive
sort["failed"] >> alarms
sort["slow"] >> job.task("slowest", ps.Reduce(max)) >> job.sink("slowest-paths", ps.LogSink("slowest"))
