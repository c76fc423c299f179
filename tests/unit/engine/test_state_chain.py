"""When a bucket gets a new base: how long chains become, how far they reach back, and who has a turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest

from penstock.engine.storage import state_chain
from penstock.engine.storage.state_chain import (
    RewritingRule,
    StateFile,
    StateHead,
    mean_bytes,
    oldest_shared_batch,
)

BUCKETS, TASKS = 128, 2
KEPT = 2 * 256 + BUCKETS
"""For how many batches a shared file is kept at most, if bases are small."""


class Chains:
    """The heads of a job's buckets, batch after batch, without any file."""

    def __init__(self, base_bytes: int, delta_bytes: int) -> None:
        self._base_bytes = base_bytes
        self._delta_bytes = delta_bytes
        self._batch = 0
        self.heads: dict[int, StateHead] = {}
        self.rewritten: list[Counter[str]] = []
        """How many buckets each batch has given a base, changed ones and old ones."""

    def run(self, touched: Iterable[int], moved: int = 0) -> None:
        changed = set(touched)
        rewritten: Counter[str] = Counter()
        for task in range(TASKS):
            heads = {
                bucket: self.heads.get(bucket)
                for bucket in range(BUCKETS)
                if (bucket + moved) % TASKS == task
            }
            rule = RewritingRule(self._batch, heads.values())
            written = mean_bytes(rule.written, self._delta_bytes * len(heads))
            for bucket in sorted(changed & heads.keys()):
                head = heads[bucket]
                if head is None or rule.needs_base(bucket, head):
                    rewritten["changed"] += 1
                    self.heads[bucket] = self._base(shared=True)
                else:
                    self.heads[bucket] = StateHead(
                        f"{self._batch:012d}-shared",
                        head.base_batch,
                        head.base_bytes,
                        head.delta_bytes + self._delta_bytes,
                        head.depth + 1,
                        self._batch if head.shared_since is None else head.shared_since,
                        written,
                    )
            for bucket in rule.overdue({b: head for b, head in heads.items() if b not in changed}):
                rewritten["old"] += 1
                self.heads[bucket] = self._base(shared=False)
        self.rewritten.append(rewritten)
        self._batch += 1

    def _base(self, *, shared: bool) -> StateHead:
        name = f"{self._batch:012d}-base"
        return StateHead(name, self._batch, self._base_bytes, 0, 0, self._batch if shared else None)

    @property
    def reach(self) -> int:
        """For how many batches shared files are kept."""
        return self._batch - oldest_shared_batch(self.heads.values(), self._batch - 1)


def test_the_newest_file_is_shared_once_one_of_the_chain_is() -> None:
    assert StateHead("f", 3, 10, 0, 0).newest == StateFile("f", shared=False)
    assert StateHead("f", 3, 10, 5, 2).least_own_files == 3
    assert StateHead("f", 3, 10, 5, 1, 7).newest == StateFile("f", shared=True)
    assert StateHead("f", 3, 10, 5, 1, 7).least_own_files == 1
    assert StateHead("f", 3, 10, 5, 1, 3).least_own_files == 0


def test_the_oldest_shared_file_that_is_needed() -> None:
    heads = [StateHead("f", 3, 10, 0, 0), StateHead("f", 2, 10, 5, 1, 7), StateHead("f", 9, 10, 0, 0, 9)]
    assert oldest_shared_batch(heads, 20) == 7
    assert oldest_shared_batch(heads[:1], 20) == 21
    assert oldest_shared_batch([], 20) == 21


def test_a_bucket_without_state_begins_with_a_base() -> None:
    assert RewritingRule(5, [None]).needs_base(3, None)


@pytest.mark.parametrize(
    ("head", "needs"),
    [
        (StateHead("f", 0, 10, 500_000, 1, 1), False),
        (StateHead("f", 0, 10, 1_100_000, 1, 1), True),
        (StateHead("f", 0, 5_000_000, 1_100_000, 1, 1), False),
        (StateHead("f", 0, 50_000_000, 100, 499, 1), False),
        (StateHead("f", 0, 50_000_000, 100, 500, 1), True),
    ],
)
def test_chains_are_bounded_by_their_bytes_and_their_files(head: StateHead, needs: bool) -> None:
    assert RewritingRule(100, [head]).needs_base(0, head) == needs


def test_hot_buckets_take_turns_with_their_bases() -> None:
    chains = Chains(20_000, 100)
    for _ in range(1000):
        chains.run(range(BUCKETS))
        assert max(head.depth for head in chains.heads.values()) <= 256
        assert chains.reach <= 257
    assert chains.rewritten[0] == {"changed": BUCKETS}
    later = chains.rewritten[1:]
    assert all(rewritten["old"] == 0 for rewritten in later)
    assert max(rewritten["changed"] for rewritten in later) <= BUCKETS / 4


def test_cold_buckets_are_rewritten_once_a_few_at_a_time_and_keep_nothing_from_then_on() -> None:
    chains = Chains(20_000, 100)
    chains.run(range(BUCKETS))
    for _ in range(1000):
        chains.run([0, 1, 2])
        assert chains.reach <= KEPT
    assert all(rewritten["old"] <= 2 * TASKS for rewritten in chains.rewritten)
    assert sum(rewritten["old"] for rewritten in chains.rewritten) == BUCKETS - 3
    assert chains.reach <= 257


def test_buckets_that_are_changed_now_and_then_keep_files_for_a_bounded_time() -> None:
    dice = Random(1)
    chains = Chains(20_000, 100)
    for _ in range(3000):
        chains.run(dice.sample(range(BUCKETS), 3), moved=dice.randrange(TASKS))
        assert chains.reach <= KEPT
    assert all(rewritten["old"] <= 2 * TASKS for rewritten in chains.rewritten)
    bases = sum(rewritten.total() for rewritten in chains.rewritten[500:])
    assert bases / 2500 < 1, "a batch rarely writes a bucket that it has not changed, or more than the change"


def test_large_bases_are_rewritten_less_often() -> None:
    dice = Random(1)
    chains = Chains(100 << 20, 100)
    for _ in range(3000):
        chains.run(dice.sample(range(BUCKETS), 3))
    assert sum(rewritten.total() for rewritten in chains.rewritten) <= 3 * BUCKETS


def test_files_that_are_large_are_kept_for_fewer_batches() -> None:
    """A bucket that is changed once must not keep all that others write for hundreds of batches."""
    chains = Chains(20_000, 100_000)
    chains.run(range(BUCKETS))
    for _ in range(300):
        chains.run(range(BUCKETS - 1))
    a_batch = 100_000 * BUCKETS // TASKS
    assert chains.reach * a_batch <= 4 * state_chain._MIN_PINNED_BYTES


def test_one_large_file_does_not_have_all_buckets_rewritten_at_once() -> None:
    chains = Chains(20_000, 100)
    for _ in range(100):
        chains.run(range(BUCKETS))
    chains.rewritten.clear()
    for bucket, head in chains.heads.items():
        chains.heads[bucket] = replace(head, shared_bytes=1 << 30)
    for _ in range(20):
        chains.run(range(BUCKETS))
    assert all(rewritten["changed"] <= 2 * TASKS for rewritten in chains.rewritten)


@pytest.mark.parametrize(("size", "chosen"), [(1000, [5, 3]), (100 << 20, [5])])
def test_large_buckets_are_rewritten_one_by_one(size: int, chosen: list[int]) -> None:
    untouched = {b: StateHead("f", 0, size, 0, 0, since) for b, since in {1: 30, 3: 20, 4: 29, 5: 10}.items()}
    rule = RewritingRule(9000, untouched.values())
    assert rule.overdue(untouched) == chosen
    assert rule.overdue({9: None}) == []
