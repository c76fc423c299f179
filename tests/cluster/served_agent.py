"""A supervisor's agent that is served, and a plain way to ask it, for tests of what it answers."""

from __future__ import annotations

import httpx
from starlette.applications import Starlette

from penstock.web.http_server import HttpServer, serve

TOKEN = "7" * 64


class ServedAgent:
    """An agent on a port of its own, and an HTTP client with the right token."""

    def __init__(self, agent: Starlette) -> None:
        self.served: HttpServer = serve(agent, "127.0.0.1")
        self.url = self.served.url
        self.http = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False, timeout=60
        )

    def close(self) -> None:
        self.http.close()
        self.served.close()
