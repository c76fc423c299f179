"""Schemathesis over the OpenAPI document: whatever is sent, no answer is a failure or undescribed."""

from __future__ import annotations

from typing import Any

from api_drawing import CHECKS, check_drawn
from fake_master import FakeMaster
from hypothesis import settings
from schemathesis.specs.openapi.checks import negative_data_rejection

from penstock.bundles.bundle_signature import sha256_of, sign
from penstock.web.master_api import make_master_api
from support.settings import make_submission

TOKEN = "7" * 64
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
THERE = {"job": "busy", "node": "n1"}


def _busy_master() -> FakeMaster:
    """A master that has something to tell."""
    master = FakeMaster(TOKEN)
    data = b"code"
    digest = sha256_of(data)
    master.put_bundle(digest, sign(data, master.key), data)
    master.submit(make_submission("job.py", {"name": "busy"}), digest)
    master.say("busy", 1, "half a pair: \ud800")
    return master


def _check(case: Any) -> None:
    case.call_and_validate(headers=HEADERS, checks=[*CHECKS, negative_data_rejection])
    if case.path_parameters:
        # Drawn names are those of nothing: what else was drawn must meet something that is there, too.
        for name in set(case.path_parameters) & set(THERE):
            case.path_parameters[name] = THERE[name]
        case.call_and_validate(headers=HEADERS, checks=CHECKS)


def test_answers_are_as_described() -> None:
    app = make_master_api(_busy_master(), TOKEN, hosts=["testserver"])
    check_drawn(app, HEADERS, _check, examples=settings().max_examples // 5)
