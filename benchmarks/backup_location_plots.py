"""Draws Figs. 5 and 6 from what was measured: ``python -m benchmarks.backup_location_plots``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.backup_location import Point, read_points

IMAGES = Path(__file__).parents[1] / "docs" / "images"
METHODS: dict[str, tuple[Callable[[Point], float], str]] = {
    "CBC, until it proved the optimum or was stopped": (lambda point: point.cbc.seconds, "s"),
    "CBC, first solution": (lambda point: point.cbc_first.seconds, "v"),
    "HiGHS, likewise": (lambda point: point.highs.seconds, "D"),
    "Algorithm 1": (lambda point: point.paper, "^"),
    "Penstock": (lambda point: point.ours, "o"),
}


def draw(name: str, points: list[Point], across: Callable[[Point], int], label: str) -> None:
    """Draw one figure: roomy problems on the left, tight ones on the right."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, panes = pyplot.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    for pane, tight in zip(panes, (False, True), strict=True):
        shown = sorted((point for point in points if point.tight is tight), key=across)
        for method, (seconds, marker) in METHODS.items():
            pane.plot(
                [across(point) for point in shown],
                [seconds(point) for point in shown],
                marker=marker,
                label=method,
                linewidth=1,
                markersize=5,
            )
        pane.set_yscale("log")
        pane.set_xlabel(label)
        pane.set_title("tight" if tight else "roomy")
        pane.grid(visible=True, which="major", alpha=0.3)
    panes[0].set_ylabel("processor time, s")
    figure.legend(
        *panes[0].get_legend_handles_labels(), loc="lower center", ncols=3, fontsize=8, frameon=False
    )
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    figure.savefig(IMAGES / name, metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    """Draw both."""
    points = read_points()
    draw(
        "backup-location-tasks.svg",
        [point for point in points if point.servers == 30],
        lambda point: point.tasks,
        "tasks on 30 servers",
    )
    draw(
        "backup-location-servers.svg",
        [point for point in points if point.tasks == 30],
        lambda point: point.servers,
        "servers for 30 tasks",
    )


if __name__ == "__main__":
    main()
