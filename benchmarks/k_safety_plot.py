"""Draws latency over time around the loss of a node: ``python -m benchmarks.k_safety_plot``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.k_safety_case import Found

IMAGE = Path(__file__).parents[1] / "docs" / "images" / "k-safety-latency.svg"


def draw(found: Sequence[Found], image: Path = IMAGE) -> None:
    """Draw a pane for each case, all with the same axes."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "penstock"  # The same figures make the same file.
    from matplotlib import pyplot

    rows = (len(found) + 1) // 2
    figure, panes = pyplot.subplots(
        rows, 2, figsize=(10, 2.1 * rows + 0.6), sharex=True, sharey=True, squeeze=False
    )
    for pane in panes.flat[len(found) :]:
        pane.set_visible(False)
    for one, pane in zip(found, panes.flat, strict=False):
        pane.axvline(0.0, color="tab:red", linewidth=1, linestyle="--")
        pane.plot(
            [at for at, _ in one.curve],
            [age for _, age in one.curve],
            marker=".",
            markersize=2,
            linewidth=0.8,
        )
        pane.set_yscale("log")
        pane.set_title(f"{one.case}: gap {one.gap:.2f} s, usually {one.interval:.2f} s", fontsize=9)
        pane.grid(visible=True, which="major", alpha=0.3)
    for pane in panes[-1]:
        pane.set_xlabel("seconds from the kill (red) on")
    for pane in panes[:, 0]:
        pane.set_ylabel("latency, s")
    figure.tight_layout()
    figure.savefig(image, metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    """Draw what was measured last."""
    from benchmarks.k_safety import read_found

    draw(read_found())


if __name__ == "__main__":
    main()
