"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")
