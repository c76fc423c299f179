"""The tables that ``penstock place`` and ``penstock explain --placement`` print."""

from __future__ import annotations

import pytest
from rich.table import Table

from penstock.cli.placement_tables import allocation_table, cost_table, rejection_table
from penstock.cli.table_output import make_console


def _lines(table: Table) -> list[list[str]]:
    """Return the words of each line, without the title and the rule below the headings."""
    console = make_console()
    with console.capture() as captured:
        console.print(table)
    lines = [line.split() for line in captured.get().splitlines() if line.strip(" ─")]
    return lines[1:]


def test_a_matrix_marks_the_node_of_each_task_and_names_the_one_before() -> None:
    table = allocation_table("placed", {"t1": "b", "t2": "a"}, ["t2", "t1", "t3"], ["a", "b"])
    assert _lines(table) == [["task", "a", "b"], ["t1", ".", "X"], ["t2", "X", "."], ["t3", ".", "."]]
    before = {"t1": "a", "t2": "a", "t3": None}
    table = allocation_table("placed", {"t1": "b", "t2": "a"}, before, ["a", "b"], before=before)
    assert _lines(table)[1:] == [["t1", ".", "X", "a"], ["t2", "X", "."], ["t3", ".", ".", "-"]]


@pytest.mark.parametrize(("tasks", "nodes"), [(1, 17), (65, 1)])
def test_a_large_matrix_is_a_list(tasks: int, nodes: int) -> None:
    names = [f"t{number:02}" for number in range(tasks)]
    lines = _lines(allocation_table("placed", {"t00": "n0"}, names, [f"n{at}" for at in range(nodes)]))
    assert lines[:2] == [["task", "node"], ["t00", "n0"]]
    assert len(lines) == 1 + tasks
    assert all(line[1] == "-" for line in lines[2:])


def test_a_cost_has_each_term_with_its_weight_and_the_total() -> None:
    terms = ("imbalance", "cross_node", "cross_rack", "moves", "fit")
    lines = _lines(cost_table({**dict.fromkeys(terms, 0.5), "total": 5.0}, dict.fromkeys(terms, 2.0)))
    assert [line[0] for line in lines] == ["term", *terms, "total"]
    assert lines[1][-3:] == ["0.5000", "2", "1.0000"]
    assert lines[-1] == ["total", "5.0000"]


def test_reasons_are_sorted_by_task_and_node() -> None:
    table = rejection_table({"t2": {"a": "full"}, "t1": {"b": "busy", "a": "full"}})
    assert _lines(table)[1:] == [["t1", "a", "full"], ["t1", "b", "busy"], ["t2", "a", "full"]]
