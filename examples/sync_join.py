"""Joins two streams with synchronised ports: an order is shipped when its payment has come too.

    penstock log create orders && penstock log create payments
    echo '{"key": "o1", "value": {"item": "lamp", "price": 40}}' | penstock log append orders --json
    echo '{"key": "o1", "value": {"amount": 40}}' | penstock log append payments --json
    penstock run examples/sync_join.py --until drained
    penstock log read shipped

Whichever comes first waits in the job's state, for days if need be and over restarts.
"""

import penstock as ps


class Match(ps.Task):
    """Runs once for each pair of an order and a payment with the same key."""

    inputs, outputs, sync = ("order", "payment"), ("paid", "differs"), True

    def execute(self, inputs, outputs):  # type: ignore[no-untyped-def]
        [order], [payment] = inputs["order"], inputs["payment"]
        paid = payment.value["amount"] == order.value["price"]
        outputs.emit(order.key, {**order.value, **payment.value}, port="paid" if paid else "differs")


job = ps.Job("shipping")
match = job.task("match", Match())
job.source("orders", ps.LogSource("orders")) >> match["order"]
job.source("payments", ps.LogSource("payments")) >> match["payment"]
match["paid"] >> job.sink("shipped", ps.LogSink("shipped"))
match["differs"] >> job.sink("questions", ps.LogSink("questions"))
