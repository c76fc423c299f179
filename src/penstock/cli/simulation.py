"""``penstock simulate``.

Compare placement strategies in virtual time, and plot the results if matplotlib is installed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command_errors import user_errors
from penstock.cli.command_options import Output, local_folder
from penstock.cli.table_output import make_console, make_table
from penstock.errors import PenstockError
from penstock.schedule.placement_strategies import STRATEGIES, Strategy
from penstock.schedule.simulation.builtin_scenarios import SCENARIOS
from penstock.schedule.simulation.run_statistics import FIGURES, Estimate, difference, over_time, summarize
from penstock.schedule.simulation.scenario import Scenario
from penstock.schedule.simulation.scenario_file import parse_scenario, write_scenario
from penstock.schedule.simulation.simulator import Run, simulate
from penstock.schedule.simulation.workload import draw_events

if TYPE_CHECKING:
    from rich.table import Table


PLOTTED = ("imbalance", "cross_switch", "cross_node")
LOGARITHMIC = ("cross_switch", "cross_node")
"""Plotted on a logarithmic scale above 1 MB/s: strategies differ by orders of magnitude in these figures, and
the best would be a line at 0."""


class NoPlotsError(PenstockError):
    """matplotlib is missing."""


def require_matplotlib() -> None:
    """Raise NoPlotsError if matplotlib is missing; called before runs that take minutes."""
    try:
        import matplotlib as _  # noqa: F401
    except ImportError:
        raise NoPlotsError("plots need matplotlib: pip install 'penstock[plots]'") from None


def write_plots(scenario: str, runs: Mapping[str, Sequence[Run]], folder: Path) -> list[Path]:
    """Write an SVG file for each figure that is drawn; return the files."""
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in PLOTTED:
        picture = Figure(figsize=(9, 4.5), layout="constrained")
        axes = picture.add_subplot()
        for strategy, strategy_runs in runs.items():
            curve = over_time(strategy_runs, name)
            times = [at for at, _ in curve]
            line = axes.plot(times, [found.mean for _, found in curve], label=strategy, linewidth=1.5)[0]
            low, high = [max(found.low, 0.0) for _, found in curve], [found.high for _, found in curve]
            axes.fill_between(times, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        figure = FIGURES[name]
        axes.set_title(f"{scenario}: {figure.title}, mean and 95 % confidence interval")
        axes.set_xlabel("virtual time (s)")
        axes.set_ylabel(f"{figure.title} ({figure.unit})" if figure.unit else figure.title)
        if name in LOGARITHMIC:
            axes.set_yscale("symlog", linthresh=1.0)
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
        picture.legend(loc="outside right upper", fontsize="small")
        path = folder / f"{scenario}-{name.replace('_', '-')}.svg"
        # Without a date and with a fixed salt for ids, the same data gives the same file.
        with rc_context({"svg.hashsalt": scenario}):
            picture.savefig(path, format="svg", metadata={"Date": None})
        written.append(path)
    return written


DEFAULT_STRATEGIES = tuple(name for name in STRATEGIES if name != "exact")
"""The strategies to compare if none is named: all except ``exact``, which is for small clusters only."""

Progress = Callable[[str, int], None]


@user_errors
def simulate_command(
    scenario: Annotated[
        str | None,
        typer.Option(
            "--scenario", metavar="NAME", help=f"One of {', '.join(SCENARIOS)}; the first if none is named."
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="A scenario of your own, as JSON.")
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            metavar="NAME",
            help="A strategy to compare; repeatable. The others are compared with the first. By default "
            f"{', '.join(DEFAULT_STRATEGIES)}; exact is for small clusters.",
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds",
            min=1,
            help="Number of runs of each strategy, each with different random events, which are the "
            "same for all strategies.",
        ),
    ] = 10,
    plots: Annotated[
        Path | None,
        typer.Option("--plots", metavar="DIR", callback=local_folder, help="Write SVG plots to this folder."),
    ] = None,
    print_scenario: Annotated[
        bool, typer.Option("--print-scenario", help="Print the scenario as JSON and run nothing.")
    ] = False,
    output: Annotated[Output, typer.Option("-o", "--output", help="The output format.")] = Output.TEXT,
) -> None:
    """Simulate scheduling, failures and load in virtual time, with the decision code of a real cluster."""
    chosen = _scenario(scenario, file)
    if print_scenario:
        typer.echo(write_scenario(chosen))
        return
    names = list(dict.fromkeys(strategy or DEFAULT_STRATEGIES))
    for name in names:
        if name not in STRATEGIES:
            raise typer.BadParameter(f"there is no strategy {name!r}: use one of {', '.join(STRATEGIES)}")
    if plots is not None:
        require_matplotlib()
    runs = compare(chosen, {name: STRATEGIES[name] for name in names}, range(seeds), progress=_tell)
    if plots is not None:
        for path in write_plots(chosen.name, runs, plots):
            typer.echo(f"wrote {path}", err=True)
    if output is Output.JSON:
        typer.echo(json.dumps(_plain(chosen, runs)))
    else:
        make_console().print(_table(chosen, runs))


def compare(
    scenario: Scenario,
    strategies: Mapping[str, Callable[[], Strategy]],
    seeds: Sequence[int],
    *,
    progress: Progress | None = None,
) -> dict[str, list[Run]]:
    """Run each strategy on the same events, once for each seed."""
    runs: dict[str, list[Run]] = {name: [] for name in strategies}
    for seed in seeds:
        events = draw_events(scenario, Random(seed))
        for name, make in strategies.items():
            if progress is not None:
                progress(name, seed)
            runs[name].append(simulate(scenario, events, make(), name=name))
    return runs


def _scenario(name: str | None, file: Path | None) -> Scenario:
    if name is not None and file is not None:
        raise typer.BadParameter("--scenario and --file exclude each other")
    if file is not None:
        return parse_scenario(file.read_text(encoding="utf-8"))
    name = name or next(iter(SCENARIOS))
    if name not in SCENARIOS:
        raise typer.BadParameter(
            f"there is no scenario {name!r}: use one of {', '.join(SCENARIOS)}, or --file"
        )
    return SCENARIOS[name]()


def _tell(name: str, seed: int) -> None:
    typer.echo(f"run {seed + 1}: {name}", err=True)


def _table(scenario: Scenario, runs: Mapping[str, Sequence[Run]]) -> Table:
    found = {name: summarize(strategy_runs) for name, strategy_runs in runs.items()}
    shown = [figure for figure in FIGURES if any(figure in summary for summary in found.values())]
    headings = [f"{FIGURES[figure].title} {FIGURES[figure].unit}".rstrip() for figure in shown]
    count = len(next(iter(runs.values())))
    rows = [[name, *(_cell(summary.get(figure)) for figure in shown)] for name, summary in found.items()]
    title = f"{scenario.name}: {count} runs, mean and 95 % confidence interval"
    return make_table(title, ("strategy", *headings), rows)


def _cell(found: Estimate | None) -> str:
    return "-" if found is None else f"{found.mean:.4g} ± {found.margin:.2g}"


def _plain(scenario: Scenario, runs: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    first = next(iter(runs))
    return {
        "scenario": scenario.name,
        "seeds": len(runs[first]),
        "strategies": {
            name: {
                "figures": {figure: found.to_plain() for figure, found in summarize(strategy_runs).items()},
                "difference": {
                    figure: difference(strategy_runs, runs[first], figure).to_plain()
                    for figure in summarize(strategy_runs)
                    if name != first
                },
                "curves": {
                    figure: [{"at": at, **found.to_plain()} for at, found in over_time(strategy_runs, figure)]
                    for figure in FIGURES
                    if FIGURES[figure].sampled is not None
                },
            }
            for name, strategy_runs in runs.items()
        },
    }
