"""Requests that schemathesis draws, what it holds answers to, and how it sends a bundle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
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


def check_drawn(
    app: Any,
    headers: dict[str, str],
    check: Callable[[Any], None],
    *,
    examples: int,
    modes: Sequence[GenerationMode] = tuple(GenerationMode),
) -> None:
    """Draw requests for each operation that an application describes, and check each of them."""
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers=headers)
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        for mode in modes:

            @settings(
                max_examples=examples,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=found.ok().as_strategy(generation_mode=mode))
            def run(case: Any) -> None:
                check(case)

            # Nothing can be wrong with a request that has no parts.
            with suppress(Unsatisfiable) if mode is GenerationMode.NEGATIVE else nullcontext():
                run()
