"""The REST interface of a master, and the client of it."""

import penstock.node_client  # noqa: F401 - It keeps httpx from loading its own command line.
