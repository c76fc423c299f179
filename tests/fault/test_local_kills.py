"""Hundreds of workers without Spark, killed in every phase of their lives: what comes out is as promised."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from kill_campaign import Campaign, ForkServer, seed_of
from kill_expectation import ROUNDS

from support.waiting import eventually

T = TypeVar("T")

pytestmark = pytest.mark.timeout(3600)

TIMES = [1, pytest.param(10, marks=pytest.mark.full)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    with ForkServer(tmp_path_factory.mktemp("server")) as server:
        yield server


def _kill(campaigns: list[Campaign], kills: int, times: int) -> None:
    """Kill workers of jobs that run side by side, some in each phase, and let the jobs come to their end."""

    def enough(goal: int) -> bool:
        for campaign in campaigns:
            campaign.step()
        return sum(one.kills.total() for one in campaigns) >= goal and not any(
            one.spared for one in campaigns
        )

    began = time.monotonic()
    for number in range(1, times + 1):
        eventually(f"{kills} more kills", partial(enough, kills * number), every=0.01)
    for campaign in campaigns:
        campaign.finish()
    for campaign in campaigns:
        print(f"{time.monotonic() - began:.0f} s, {campaign.fed} records, kills: {campaign.kills}")


def _campaigns(
    server: ForkServer, folder: Path, count: int, *, guarantee: str = "exactly-once", k: int = 0
) -> list[Campaign]:
    seed = seed_of(f"{guarantee}, k={k}")
    return [
        Campaign(server, folder / str(number), random.Random(seed + number), guarantee, k)
        for number in range(count)
    ]


def _check_exact(campaign: Campaign) -> None:
    expected = campaign.expected
    assert campaign.log("numbers") == expected.numbers()
    assert campaign.log("visits") == expected.visits()
    assert campaign.discarded() == expected.discarded()
    assert campaign.files() == campaign.numbers_of(expected.numbers())


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize(("k", "jobs", "kills"), [(0, 3, 120), (1, 2, 70), (2, 1, 50)])
def test_exactly_once_the_output_is_exact(
    server: ForkServer, tmp_path: Path, k: int, jobs: int, kills: int, times: int
) -> None:
    campaigns = _campaigns(server, tmp_path, jobs, k=k)
    _kill(campaigns, kills, times)
    for campaign in campaigns:
        _check_exact(campaign)


@pytest.mark.parametrize("times", TIMES)
def test_at_least_once_nothing_is_lost(server: ForkServer, tmp_path: Path, times: int) -> None:
    campaigns = _campaigns(server, tmp_path, 2, guarantee="at-least-once")
    _kill(campaigns, 40, times)
    for campaign in campaigns:
        expected = campaign.expected
        _check_none_lost(campaign.log("numbers"), expected.numbers())
        _check_none_lost(campaign.log("visits"), expected.visits())
        _check_none_lost(campaign.discarded(), expected.discarded())
        _check_none_lost(campaign.files(), campaign.numbers_of(expected.numbers()))


def _check_none_lost(found: Counter[T], expected: Counter[T]) -> None:
    assert set(found) == set(expected), "what is repeated is the same: the state is exact"
    assert not expected - found


@pytest.mark.parametrize("times", TIMES)
def test_at_most_once_nothing_is_repeated(server: ForkServer, tmp_path: Path, times: int) -> None:
    campaigns = _campaigns(server, tmp_path, 2, guarantee="at-most-once")
    _kill(campaigns, 40, times)
    for campaign in campaigns:
        _check_at_most_once(campaign)


def _check_at_most_once(campaign: Campaign) -> None:
    expected = campaign.expected
    numbers, discarded = campaign.log("numbers"), campaign.discarded()
    assert not numbers - expected.numbers()
    assert not discarded - expected.discarded()
    assert campaign.files() == campaign.numbers_of(numbers)
    assert campaign.given_up, "a batch that was begun when its worker died is not run again"
    # A kill costs the batch that ran: what it has read, and what was on its way through the loop into it.
    lost = set(range(campaign.fed)) - {number for _, number in numbers} - set(discarded)
    read_by_it = {number for batch in campaign.given_up for number in campaign.read_by(batch, batch)}
    on_its_way = {n for batch in campaign.given_up for n in campaign.read_by(batch - ROUNDS, batch)}
    assert read_by_it <= lost <= on_its_way
    # The state lacks what was lost, and nothing else: the visits of a key are numbered without a gap.
    visits = campaign.log("visits")
    assert not visits - expected.visits()
    for key in {key for key, _ in visits}:
        numbered = [visit for one, visit in visits if one == key]
        assert max(numbered) == len(numbered)
