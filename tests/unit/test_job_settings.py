"""The declaration of a job's settings: what it says of each, and what cannot go together."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict

import pytest

from penstock.errors import SettingError
from penstock.job_settings import (
    JobSettings,
    Placement,
    Replicas,
    Resources,
    SparkSettings,
    declarations,
    settings_fault,
    value_fault,
)
from penstock.settings_validation import changed, validated


def test_each_setting_has_a_sentence_and_an_option_of_its_own() -> None:
    found = declarations(JobSettings)
    assert len({each.flag for each in found}) == len(found)
    assert [each.name for each in found if not each.about.text.endswith(".")] == []
    assert {".".join(each.path) for each in found} >= {"replicas.k", "spark.master", "data_location"}


def test_the_declaration_is_cheap_to_import() -> None:
    code = "import sys, penstock.job_settings, penstock.settings_validation; print('pydantic' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"replicas": {"k": 101}}, "replicas.k: Input should be less than or equal to 100, not 101"),
        ({"replicas": {"k": True}}, "replicas.k: Input should be a valid integer, not True"),
        ({"replicas": {"k": "2"}}, "replicas.k: Input should be a valid integer, not '2'"),
        ({"replicas": {"publisher": "x"}}, "replicas.publisher: Input should be 'first' or 'primary'"),
        ({"replicas": {"standby": "warm"}}, "replicas.standby: there is no such setting"),
        ({"placement": {"nodes": ["a..b"]}}, "placement.nodes.0: 'a..b' must not contain '..'"),
        ({"placement": {"strategy": "9"}}, "placement.strategy: String should match pattern"),
        ({"resources": {"memory": 1}}, "resources.memory: Input should be greater than or equal to"),
        ({"k": 1}, "k: there is no such setting"),
        ({"replicas": None}, "replicas: Input should be an object"),
        ([], "Input should be an object"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(given: object, told: str) -> None:
    with pytest.raises(SettingError) as refused:
        validated(JobSettings, given)
    assert told in str(refused.value)
    with pytest.raises(SettingError):
        changed(JobSettings(), given)


def test_a_change_keeps_what_it_does_not_name() -> None:
    before = JobSettings(
        resources=Resources(cores=4),
        placement=Placement(nodes=("a",), labels={"disk": "ssd"}),
        replicas=Replicas(k=2),
        spark=SparkSettings(conf={"spark.x": "1"}),
        until="drained",
    )
    assert changed(before, {}) == before
    assert validated(JobSettings, asdict(before)) == before
    found = changed(before, {"replicas": {"publisher": "primary"}, "placement": {"labels": {"zone": "b"}}})
    assert found.replicas == Replicas(k=2, publisher="primary")
    assert found.placement == Placement(nodes=("a",), labels={"zone": "b"})
    assert (found.resources, found.spark, found.until) == (before.resources, before.spark, "drained")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (JobSettings(), None),
        (JobSettings(replicas=Replicas(k=1, publisher="primary")), None),
        (JobSettings(replicas=Replicas(publisher="primary")), "publisher='primary' needs other replicas"),
        (JobSettings(replicas=Replicas(k=1, warm_standby=True)), "warm_standby is for k=0"),
        (
            JobSettings(spark=SparkSettings(master="spark://a"), resources=Resources(executors=1)),
            "a job with its own Spark master cannot have executors",
        ),
        (
            JobSettings(data_location="node", resources=Resources(executors=1)),
            "a job that keeps its data with its node cannot have executors",
        ),
        (
            JobSettings(data_location="node", spark=SparkSettings(master="spark://a")),
            "a job that keeps its data with its node cannot have executors",
        ),
        (
            JobSettings(data_location="node", replicas=Replicas(warm_standby=True)),
            "replicas need data that all nodes share",
        ),
    ],
)
def test_what_cannot_go_together_is_said_in_one_place(settings: JobSettings, told: str | None) -> None:
    found = settings_fault(settings)
    assert found is None if told is None else found is not None and told in found


@pytest.mark.parametrize("name", ["k", "publisher", "recovery", "warm_standby"])
def test_a_job_that_is_loaded_is_checked_as_a_request_is(name: str) -> None:
    given: list[object] = [-1, 0, 1, 100, 101, True, False, "first", "primary", "copy", "next-window"]
    given += ["warm", "", None, [], 1.0]
    for value in given:
        try:
            validated(Replicas, {name: value})
            refused = False
        except SettingError:
            refused = True
        assert refused == (value_fault(Replicas, name, value) is not None), (name, value)
