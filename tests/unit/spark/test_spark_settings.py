"""The settings that a job needs of its Spark session."""

from __future__ import annotations

import os

import pytest

import penstock as ps
from penstock.errors import SettingError
from penstock.spark.cluster_session import DriverOptions
from penstock.spark.spark_session import SECRET, _with_secret
from penstock.spark.spark_settings import (
    NO_SECRET,
    SECRET_SETTING,
    check_session,
    session_settings,
    settings_for,
)

ONCE = ps.Job("once", guarantee="at-most-once")


@pytest.mark.parametrize("master", ["local[2,4]", "local[*, 2]"])
def test_at_most_once_refuses_a_master_that_repeats_tasks(master: str) -> None:
    with pytest.raises(SettingError, match="leave the second number out"):
        settings_for(ONCE, master)
    assert settings_for(ps.Job("again", guarantee="at-least-once"), master) == {}


@pytest.mark.parametrize("master", [None, "local", "local[2]", "local[2,1]"])
def test_a_local_master_repeats_none_of_its_own_accord(master: str | None) -> None:
    assert settings_for(ONCE, master) == {}


@pytest.mark.parametrize(
    ("master", "conf", "told"),
    [
        (None, {"spark.master": "local[2,4]"}, "leave the second number out"),
        (None, {"spark.master": "local[*, 04 ]"}, "leave the second number out"),
        (None, {"spark.task.maxFailures": "4"}, "spark.task.maxFailures=4 makes Spark repeat tasks"),
        ("local[2]", {"spark.speculation": True}, "spark.speculation=true makes Spark repeat tasks"),
        ("spark://host:7077", {"spark.task.maxFailures": 4}, "it must be 1. Remove the setting"),
        (
            None,
            {"spark.master": "spark://host:7077", "spark.stage.maxConsecutiveAttempts": "4"},
            "spark.stage.maxConsecutiveAttempts=4",
        ),
    ],
)
def test_at_most_once_refuses_settings_that_repeat_tasks(
    master: str | None, conf: dict[str, object], told: str
) -> None:
    for before, after in ((conf, None), ({}, conf)):
        with pytest.raises(SettingError, match=told):
            settings_for(ONCE, master, before, after)
    assert settings_for(ps.Job("again"), master, conf) == {}


def test_a_master_among_the_settings_is_told_to_repeat_none() -> None:
    conf = {"spark.master": "spark://host:7077", "spark.speculation": False}
    needed = settings_for(ONCE, None, conf)
    assert session_settings(None, needed, conf)[1]["spark.task.maxFailures"] == "1"


def test_at_most_once_refuses_a_session_of_somebody_elses_that_repeats_tasks() -> None:
    check_session(ONCE, "local[2]", {})
    check_session(ps.Job("again"), "spark://host:7077", {})
    for master, settings in (
        ("local[2,3]", {}),
        ("spark://host:7077", {}),
        ("spark://host:7077", {"spark.task.maxFailures": "1"}),
    ):
        with pytest.raises(SettingError, match="at most once, and"):
            check_session(ONCE, master, settings)
    check_session(
        ONCE,
        "spark://host:7077",
        {"spark.task.maxFailures": "1", "spark.stage.maxConsecutiveAttempts": "1"},
    )


@pytest.mark.parametrize("master", ["spark://host:7077", "local-cluster[2,1,1024]"])
def test_another_master_is_told_to_repeat_none(master: str) -> None:
    assert settings_for(ONCE, master)["spark.task.maxFailures"] == "1"


@pytest.mark.parametrize("master", [None, "local", "local[2]", "local[*, 2]", "local-cluster[1,1,1024]"])
def test_every_session_of_ours_asks_who_sends_it_something(master: str | None) -> None:
    _, settings = session_settings(master, {}, {"spark.ui.retainedJobs": 5})
    assert settings["spark.authenticate"] == settings["spark.network.crypto.enabled"] == "true"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.ui.enabled"] == "false"


def test_no_secret_is_among_the_settings_which_are_on_a_command_line() -> None:
    assert SECRET_SETTING not in session_settings("local[2]")[1]
    settings = session_settings("local-cluster[1,1,1024]")[1]
    assert settings[SECRET_SETTING] == NO_SECRET
    with _with_secret(settings):
        first = os.environ[SECRET]
    with _with_secret(settings):
        assert len(first) == 64
        assert first != os.environ[SECRET], "each session has its own"
    assert SECRET not in os.environ
    with _with_secret(session_settings("local[2]")[1]):
        assert SECRET not in os.environ, "Spark makes one by itself"


def test_a_secret_that_is_given_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, "given")
    with _with_secret(session_settings("local-cluster[0,1,1024]")[1]):
        assert os.environ[SECRET] == "given"
    assert os.environ[SECRET] == "given"


def test_of_a_cluster_of_the_users_own_the_users_settings_count() -> None:
    master, settings = session_settings(None, {"spark.master": "spark://host:7077"})
    assert master == "spark://host:7077"
    assert "spark.authenticate" not in settings
    own = {"spark.authenticate": True, SECRET_SETTING: "mine", "spark.driver.bindAddress": "0.0.0.0"}
    assert session_settings("spark://host:7077", own)[1][SECRET_SETTING] == "mine"
    assert session_settings("local[2]", {"spark.authenticate": False})[1]["spark.authenticate"] == "false"


def test_in_a_cluster_nobody_switches_it_off() -> None:
    off = {"spark.authenticate": "false", "spark.network.crypto.enabled": "false"}
    for executor_cores in (0, 2):
        options = DriverOptions("127.0.0.2", 1, 1 << 30, executor_cores, conf=off)
        settings = session_settings(options.master, off, options.settings)[1]
        assert settings["spark.authenticate"] == settings["spark.network.crypto.enabled"] == "true"
