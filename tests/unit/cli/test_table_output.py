"""What is printed again and again, and what must not steer a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import typer

from penstock.cli.command_options import Output
from penstock.cli.table_output import escape_unprintable, make_console, make_table, print_view
from penstock.web.cluster_access import UnreachableError


def test_a_picture_survives_an_election_and_ends_with_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    answers: Iterator[list[int] | Exception] = iter([[1], UnreachableError("no leader"), [2]])
    slept: list[float] = []

    def read() -> list[int]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as raised:
        print_view(read, lambda found, now: str(found), Output.JSON, True, sleep=sleep)
    assert raised.value.exit_code == 0
    printed = capsys.readouterr()
    assert [json.loads(line) for line in printed.out.splitlines()] == [[1], [2]]
    assert "no leader" in printed.err


def test_masters_that_were_never_reached_are_not_waited_for() -> None:
    def read() -> list[int]:
        raise UnreachableError("nobody")

    with pytest.raises(UnreachableError):
        print_view(read, lambda found, now: str(found), Output.TEXT, True)


def test_cells_are_neither_markup_nor_commands(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 150
    make_console().print(make_table("", ("reason", "long"), [("[red]\x1b]0;owned\x07[/red] :fire:", long)]))
    printed = capsys.readouterr().out
    assert r"[red]\x1b]0;owned\x07[/red] :fire:" in printed
    assert long in printed
    assert "\x1b" not in printed


def test_lines_may_keep_their_breaks() -> None:
    assert escape_unprintable("a\n\tb\r", keep="\n\t") == "a\n\tb\\r"
