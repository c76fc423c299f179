"""The text form of a replica's identity: each identity has one, and no other text is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.replicas.replica_id import ReplicaId, ReplicaIdError, by_job

JOBS = st.text(min_size=1).filter(lambda text: "~" not in text)
IDS = st.builds(ReplicaId, JOBS, st.integers(0, 999_999))
TEXTS = (
    st.text() | st.text("ab~019-x٣ \n", max_size=8) | st.builds("{}~{}".format, JOBS, st.text("0123456789"))
)


@given(IDS)
def test_what_is_written_is_read(replica: ReplicaId) -> None:
    assert ReplicaId.parse(str(replica)) == replica


def _is_written(text: str) -> bool:
    job, sign, number = text.partition("~")
    if not sign or not job:
        return bool(job)
    return number.isascii() and number.isdigit() and len(number) < 7 and str(int(number)) == number != "0"


@given(TEXTS)
def test_a_text_that_is_not_written_for_any_replica_is_refused(text: str) -> None:
    found = ReplicaId.find(text)
    assert (found is not None) == _is_written(text)
    assert found is None or str(found) == text


@pytest.mark.parametrize(
    "text", ["", "~", "~1", "a~", "a~0", "a~01", "a~x", "a~-1", "a~1~2", "a~1 ", "a~٣", "a~1\n"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ReplicaIdError):
        ReplicaId.parse(text)


@pytest.mark.parametrize(("job", "index"), [("", 0), ("a~1", 0), ("a", -1), ("a", 1_000_000)])
def test_what_has_no_text_form_is_no_identity(job: str, index: int) -> None:
    with pytest.raises(ReplicaIdError):
        ReplicaId(job, index)


def test_replicas_are_in_the_order_of_jobs_and_then_of_numbers() -> None:
    names = ["count", "count~1", "count~2", "count~10", "count-a"]
    replicas = [ReplicaId.parse(name) for name in names]
    assert sorted(map(ReplicaId.parse, sorted(names))) == replicas
    assert by_job(reversed(replicas)) == {"count": tuple(replicas[:4]), "count-a": (replicas[4],)}
