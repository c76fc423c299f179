"""The settings that a job needs of its Spark session."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.errors import SettingError
from penstock.spark.settings import settings_for

ONCE = ps.Job("once", guarantee="at-most-once")


@pytest.mark.parametrize("master", ["local[2,4]", "local[*, 2]"])
def test_at_most_once_refuses_a_master_that_repeats_tasks(master: str) -> None:
    with pytest.raises(SettingError, match="leave the second number out"):
        settings_for(ONCE, master)
    assert settings_for(ps.Job("again", guarantee="at-least-once"), master) == {}


@pytest.mark.parametrize("master", [None, "local", "local[2]", "local[2,1]"])
def test_a_local_master_repeats_none_of_its_own_accord(master: str | None) -> None:
    assert settings_for(ONCE, master) == {}


@pytest.mark.parametrize("master", ["spark://host:7077", "local-cluster[2,1,1024]"])
def test_another_master_is_told_to_repeat_none(master: str) -> None:
    assert settings_for(ONCE, master)["spark.task.maxFailures"] == "1"
