"""The list as a source: a record's lane does not depend on where batches are cut."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.connect.driver_connectors import MemorySource
from penstock.errors import SettingError


@pytest.mark.parametrize("limit", [1, 2, 3, 5, None])
@pytest.mark.parametrize("partitions", [1, 2, 3, 7])
def test_item_i_is_in_lane_i_modulo_n(limit: int | None, partitions: int) -> None:
    source = MemorySource(range(11), partitions=partitions, max_records_per_batch=limit)
    lanes: dict[str, list[Any]] = {}
    position = source.begin()
    while (end := source.latest(position)) != position:
        splits = source.splits(position, end)
        assert len({source.lane(split) for split in splits}) == len(splits)
        for split in splits:
            lane = lanes.setdefault(source.lane(split), [])
            lane += [r.value for records in source.on_worker().read(split) for r in records]
        position = end
    assert lanes == {str(n): list(range(n, 11, partitions)) for n in range(min(partitions, 11))}
    assert source.bounded


def test_wrong_options() -> None:
    with pytest.raises(SettingError, match="partitions takes a whole number of at least 1, not 0"):
        MemorySource(partitions=0)
    with pytest.raises(SettingError, match="max_records_per_batch"):
        MemorySource(max_records_per_batch=-1)
