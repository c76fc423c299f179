"""Settings of all tests."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")

# A Spark of a test lives for seconds: Java's second compiler would take more time than it saves.
os.environ.setdefault("PENSTOCK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# A shell that runs the tests in the background lets them ignore signals, and with them all that they start.
for _number, _default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _default)
