"""The lanes of a list: the same record always in the same one, and all of them known from the start."""

from __future__ import annotations

from penstock.connect.driver_connectors import MemorySource


def test_all_lanes_are_known_before_anything_is_read() -> None:
    assert MemorySource(range(9), partitions=3).lanes({"0": 1}) == ["0", "1", "2"]
    assert MemorySource(range(2), partitions=3).lanes({"0": 0}) == ["0", "1"]


def test_a_record_is_in_the_same_lane_however_the_list_is_cut() -> None:
    source = MemorySource(range(11), partitions=3)
    for size in range(1, 12):
        by_lane: dict[str, list[int]] = {}
        for start in range(0, 11, size):
            for split in source.splits({"0": start}, {"0": min(start + size, 11)}):
                [records] = source.read(split)
                by_lane.setdefault(source.lane(split), []).extend(record.value for record in records)
        assert by_lane == {"0": [0, 3, 6, 9], "1": [1, 4, 7, 10], "2": [2, 5, 8]}
