"""Points joined over seeds, ranked, and marked."""

from __future__ import annotations

from typing import Any

import pytest

from slurmsched.errors import InputError
from slurmsched.sim.experiments.parameter_grid import FIGURE_TITLES, RANKED_FIGURES, ranked_points


def row(policy: str, jct: float | None, preemptions: float = 0, **more: Any) -> dict[str, Any]:
    base = dict.fromkeys(FIGURE_TITLES, "") | dict.fromkeys(RANKED_FIGURES, 1.0) | {"jobs": 6, "seed": 0}
    return base | {"policy": policy, "avg_jct_s": jct, "preemptions": preemptions} | more


def test_ranked__best_first_and_unknown_last() -> None:
    """Low is good but for utilisation; a point of which no job ended has no figure."""
    rows = [row("a", 5.0, gpu_utilisation=0.5), row("b", None), row("c", 3.0, gpu_utilisation=0.4)]
    assert [made["policy"] for made in ranked_points(rows)] == ["c", "a", "b"]
    assert [made["policy"] for made in ranked_points(rows, "gpu_utilisation")] == ["b", "a", "c"]


def test_ranked__joins_seeds_by_their_mean() -> None:
    """One row, and of how many points."""
    (made,) = ranked_points([row("a", 4.0, seed=1), row("a", 6.0, 3, seed=2)])
    assert (made["avg_jct_s"], made["preemptions"], made["seeds"]) == (5.0, 1.5, 2)


def test_ranked__keeps_traces_apart() -> None:
    """A shorter trace is no better policy."""
    rows = [row("a", 9.0, trace="x"), row("b", 8.0, trace="x"), row("a", 1.0, trace="y")]
    assert [(made["trace"], made["policy"]) for made in ranked_points(rows)] == [("x", "b"), ("x", "a"), ("y", "a")]


def test_ranked__marks_what_no_other_beats_in_both() -> None:
    """As low a JCT and as few preemptions, one of them less, beats; equals and other clusters do not."""
    rows = [row("a", 1.0, 5), row("b", 1.0, 5, model="slurm"), row("c", 1.0, 5), row("d", 2.0, 5),
            row("e", 2.0, 3), row("f", 3.0, 3), row("g", 4.0, 0), row("h", 1.0, 6), row("i", None, 0),
            row("j", 0.5, 0, cluster="big")]  # fmt: skip
    assert [made["policy"] for made in ranked_points(rows) if made["pareto"]] == ["j", "a", "b", "c", "e", "g"]


def test_ranked__names_the_figures_it_knows() -> None:
    """An unknown one is an input error."""
    with pytest.raises(InputError, match="no figure 'jct'; a sweep is ranked by avg_jct_s"):
        ranked_points([], "jct")
