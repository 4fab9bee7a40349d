"""The page of a comparison: one HTML file with its plots inside, which asks the network for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, Template
from plotly.offline import get_plotlyjs

from slurmsched import __version__
from slurmsched.errors import InputError
from slurmsched.paths import draft_of, dropped
from slurmsched.replay.demo import Demo, Run, table
from slurmsched.replay.plots import delays, html, queue, times, usage


def write_page(path: Path, demo: Demo, runs: Sequence[Run]) -> None:
    """Write the page whole or not at all. Raises InputError if the file cannot be written."""
    write_whole(path, page(demo, runs))


def write_whole(path: Path, text: str) -> None:
    """Write a text file whole or not at all. Raises InputError if it cannot be written."""
    draft = draft_of(path)
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        dropped(draft)
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from error


def page(demo: Demo, runs: Sequence[Run]) -> str:
    """The page as text."""
    columns, rows = table(runs)
    plots = (
        (
            "Job completion time",
            "Share of jobs that end within a time of their submission.",
            times(runs, [run.outcomes.jct_s for run in runs], "job completion time"),
        ),
        ("Queueing delay by size", "Mean time without GPUs at work, by GPUs asked for.", delays(runs)),
        ("GPUs in use", "Share of all GPUs that are held, averaged over equal spans of time.", usage(runs)),
        ("Jobs waiting", "Jobs that could start if there were GPUs, averaged likewise.", queue(runs)),
    )
    return template("page.html.j2").render(
        version=__version__, demo=demo, runs=runs, columns=columns, rows=rows, gpus=sum(demo.nodes),
        gpu_hours=float((demo.trace.gpus * demo.trace.duration_s).sum()) / 3600,
        same=_same(runs), plotly=get_plotlyjs(),
        plots=[(title, text, html(figure, number)) for number, (title, text, figure) in enumerate(plots)],
    )  # fmt: skip


def template(name: str) -> Template:
    """A template of this package, markup in its values escaped."""
    loader = PackageLoader("slurmsched.replay", "templates")
    return Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True).get_template(name)


def _same(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Pairs of titles whose every job ended alike: their lines cover each other."""
    pairs = [(a, b) for i, a in enumerate(runs) for b in runs[i + 1 :]]
    return [(a.contender.title, b.contender.title) for a, b in pairs if a.outcomes.digest == b.outcomes.digest]
