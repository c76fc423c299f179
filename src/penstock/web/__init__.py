"""The REST interface of a master, and the client of it."""

import penstock.node_client  # noqa: F401 - Prevents httpx from importing its command line.
