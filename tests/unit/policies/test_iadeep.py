"""iadeep: who shares with which batch size, by hand as on its page, and what the choice gains by the shipped table."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest

from slurmsched.estimators.group_speeds import GroupSpeeds
from slurmsched.policies.co_scheml import CoScheMl
from slurmsched.policies.iadeep import BatchChoice, IaDeep, best_batches, progress_with
from slurmsched.testing import snapshot
from tests.unit.policies.test_pages import PAGES, table

PAGE = (PAGES / "iadeep.md").read_text(encoding="utf-8")
V100 = GroupSpeeds("", "gavel", "v100")
SIZES = {"ResNet-18": (16, 32, 64, 128, 256), "ResNet-50": (16, 32, 64, 128), "Transformer": (16, 32, 64, 128, 256),
         "LM": (5, 10, 20, 40, 80)}  # fmt: skip


def queue(**hints: str) -> Any:
    """The jobs of the page on three GPUs. hints: more of them, of job1, job2 and so on."""
    rows = []
    for number, row in enumerate(table(PAGE), 1):
        texts = [f"model={row['model']}", f"batch={row['batch']}" if row["batch"] else "",
                 f"batches={row['may have']}" if row["may have"] else "", hints.get(f"job{number}", "")]  # fmt: skip
        rows.append({"job_id": number, "gpus": 1, "submit_s": float(number),
                     "comment": f"slurmsched: {' '.join(filter(None, texts))}"})  # fmt: skip
    return snapshot(rows, "1x3", now_s=100.0)


def beside(policy: CoScheMl, **hints: str) -> list[int]:
    made = policy.rank(queue(**hints))
    assert made.changes is not None and made.changes.beside is not None
    return made.changes.beside.tolist()


def test_iadeep__the_example_of_the_page() -> None:
    """4 goes beside 1, both with a batch of 128; co-scheml puts it elsewhere. Who may not share does not."""
    assert beside(IaDeep(most=2)) == [-1, -1, -1, 1, 2, 3]
    assert beside(CoScheMl(most=2))[3:] == [2, 1, 3]
    assert 1 not in beside(IaDeep(most=2), job1="share=no")
    why = IaDeep(most=2).rank(queue()).why
    assert why["batch"].tolist() == [128.0, 80.0, 128.0, 128.0, 32.0, np.inf]
    assert (why["made"][3], why["made"][0]) == (0.56, 0.94)


def test_best_batches__of_jobs_without_a_choice_are_their_own() -> None:
    """What co-scheml predicts; a model that no table has keeps its batch."""
    pair = (("LM", 80, ()), ("ResNet-50", 128, ()))
    kept = V100.kept(["LM (batch size 80)", "ResNet-50 (batch size 128)"], 1).kept
    assert best_batches(V100, pair, 1) == BatchChoice((80, 128), kept)
    assert best_batches(V100, (("other", 8, (16,)), ("LM", 80, ())), 1).batches == (8, 80)


def test_best_batches__the_figures_of_the_page() -> None:
    """Over all pairs of four models with all their batch sizes: never less than with the sizes that they have."""
    own, chosen = [], []
    for one, other in combinations_with_replacement(SIZES, 2):
        for sizes in [(first, second) for first in SIZES[one] for second in SIZES[other]]:
            jobs = tuple((model, size, SIZES[model]) for model, size in zip((one, other), sizes, strict=True))
            own.append(sum(progress_with(V100, jobs, sizes, 1).progress))
            chosen.append(sum(best_batches(V100, jobs, 1).progress))
    row = {line.split("|")[1].strip(): line.split("|")[2:4] for line in PAGE.splitlines() if line.startswith("| ")}
    for name, values in (("as they are", np.array(own)), ("chosen", np.array(chosen))):
        assert [cell.strip() for cell in row[name]] == [f"{values.mean():.2f}", f"{100 * (values >= 1).mean():.0f} %"]
    assert (len(own), (np.array(chosen) >= np.array(own) - 1e-9).all()) == (226, True)


@pytest.mark.parametrize("most", [1, 2])
def test_best_batches__too_many_combinations_keep_their_sizes(most: int) -> None:
    """Four jobs of five sizes each are 625 combinations."""
    jobs = (("ResNet-18", 16, SIZES["ResNet-18"]),) * (4 if most == 1 else 2)
    assert (set(best_batches(V100, jobs, 1).batches) == {16}) == (most == 1)
