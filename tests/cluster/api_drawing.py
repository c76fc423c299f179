"""What schemathesis holds answers to, and how it sends a bundle."""

from __future__ import annotations

from typing import Any

import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
]
"""Whatever is sent, no answer is a failure, and each is as the OpenAPI document describes it."""


@schemathesis.serializer("application/zip")
def _as_it_is(_: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
