"""The rule for names as other programs read it is the rule that jobs are held to."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from penstock.cluster.client_requests import InvalidRequestError
from penstock.setting_values import NAME, name_fault
from penstock.web.request_schemas import Name, ScaleRequest, SubmissionRequest

_CHECKED: TypeAdapter[str] = TypeAdapter(Name)


@given(st.text("aZ09._-/%\\ é\n", max_size=12) | st.text("a.", max_size=204))
def test_the_pattern_is_the_rule(name: str) -> None:
    written = re.fullmatch(NAME.removesuffix("$"), name) is not None and len(name) <= 200
    assert written == (name_fault(name) is None)
    try:
        accepted = _CHECKED.validate_python(name) == name
    except ValidationError:
        accepted = False
    assert accepted == written


def test_reserved_names_are_refused() -> None:
    with pytest.raises(ValidationError, match="reserved"):
        _CHECKED.validate_python("zookeeper")


@pytest.mark.parametrize("entry", ["job.py", "jobs/main.py:job", "my job.py", "jobs/v2.1/ü.py:words"])
def test_entries_inside_the_bundle(entry: str) -> None:
    request = SubmissionRequest(bundle="0" * 64, entry=entry, structure={"name": "a"})
    assert request.submission().entry == entry


@pytest.mark.parametrize(
    "entry", ["", "/job.py", "../job.py", "a/../b.py", "a//b.py", "a\\b.py", "a\0.py", ".x/a.py"]
)
def test_entries_that_lead_elsewhere(entry: str) -> None:
    with pytest.raises(ValidationError):
        SubmissionRequest(bundle="0" * 64, entry=entry, structure={"name": "a"})


def test_numbers_are_not_made_of_text() -> None:
    with pytest.raises(ValidationError):
        ScaleRequest.model_validate({"executors": "1"})
    with pytest.raises(ValidationError):
        ScaleRequest.model_validate({"executers": 1})
    assert ScaleRequest.model_validate({"executors": 0, "nodes": []}).changes() == {"executors": 0}
    with pytest.raises(InvalidRequestError):
        ScaleRequest().changes()
