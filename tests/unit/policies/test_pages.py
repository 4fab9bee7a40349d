"""Six jobs by hand, read from the pages of docs/policies: the table says what they are, a sentence how they go."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from slurmsched import registry
from slurmsched.model import Snapshot
from slurmsched.testing import snapshot

PAGES = Path(__file__).parents[3] / "docs" / "policies"
PARAMETERS: dict[str, dict[str, Any]] = {"gittins": {"least_samples": 5}, "las": {"quantum_gpu_s": 60.0}}
PAST_GPU_S = {"gittins": (2_000.0, 4_000.0, 6_000.0, 8_000.0, 20_000.0)}
NAMES = ("fifo", "sjf", "srtf", "srsf", "smallest", "response-ratio", "las", "discretized-las", "gittins", "edf")


def table(text: str) -> list[dict[str, str]]:
    """The first table of a page whose first column is `job`, a mapping from column to cell for each row."""
    block = text[text.index("| job |") :].partition("\n\n")[0]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
    return [dict(zip(head, row, strict=True)) for row in rows]


def measured_pairs_file(folder: Path, **kept: tuple[float, float]) -> str:
    """A file of profiles with these pairs of one GPU. kept: what each of the models ONE_OTHER keeps of its speed."""
    rates = {key: 100.0 * share for names, shares in kept.items() for one, other in [names.split("_")]
             for key, share in {(one, ""): 1.0, (other, ""): 1.0, (one, other): shares[0],
                                (other, one): shares[1]}.items()}  # fmt: skip
    lines = [f"{model},,1,a100,{rate},{beside}" for (model, beside), rate in rates.items()]
    path = folder / f"{kept}.csv"  # files are read once
    path.write_text("\n".join(["model,batch,gpus,gpu_type,steps_per_s,beside", *lines]) + "\n")
    return str(path)


def job(row: dict[str, str]) -> dict[str, Any]:
    """The job that a row of a page's table describes."""
    submit_s = float(row.get("submitted [s]", 0))
    hints = {"dur": row.get("run time [s]", "") + "s", "deadline": "+" + row.get("deadline", "none").replace(" ", "")}
    known = " ".join(f"{key}={value}" for key, value in hints.items() if value not in ("s", "+none"))
    return {
        "job_id": int(row["job"]), "gpus": int(row.get("GPUs", 1)), "executed_s": float(row.get("ran [s]", 0)),
        "submit_s": float(row.get("requeued [s]") or submit_s), "first_submit_s": submit_s,
        "comment": f"slurmsched: {known}" if known else "",
    }  # fmt: skip


def six(name: str, text: str) -> Snapshot:
    rows = [job(row) for row in table(text)]
    assert len(rows) == 6
    return snapshot(rows, now_s=1_000.0, history_gpu_s=PAST_GPU_S.get(name, ()))


@pytest.mark.parametrize("name", NAMES)
def test_page__six_jobs_go_in_the_order_that_it_tells(name: str) -> None:
    """The policy puts the jobs of the page's table in the order of the page's sentence."""
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    told = re.search(r"The order is ([\d, ]+)\.", text)
    given = six(name, text)
    order = registry.make_plugin("policies", name, PARAMETERS.get(name)).rank(given).order
    assert told is not None
    assert given.jobs.job_id[order].tolist() == [int(number) for number in told[1].split(",")]


def test_page__derived_columns_are_right() -> None:
    """What a table derives follows from its other columns: attained service, and what is left."""
    for name in NAMES:
        for row in table((PAGES / f"{name}.md").read_text(encoding="utf-8")):
            gpus, ran_s, run_s = (float(row.get(key) or 0) for key in ("GPUs", "ran [s]", "run time [s]"))
            derived = {"attained [GPU s]": gpus * ran_s, "left [s]": run_s - ran_s,
                       "service left [GPU s]": gpus * (run_s - ran_s)}  # fmt: skip
            assert {key: float(row[key]) for key in derived if key in row} == {
                key: value for key, value in derived.items() if key in row
            }


@pytest.mark.parametrize("name", sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "README"))
def test_page__says_what_a_reader_asks(name: str) -> None:
    """Inputs, whether it preempts, its source, four to six jobs, when to use it, and what it costs."""
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    asked = (
        "- Inputs",
        "preempt",
        "- Source:",
        r"(?i)\b(four|five|six) (\w+ )?jobs|six (waiting|elastic|new)",
        r"[Uu]se it|\bWhen",
        "Cost:",
    )
    assert [each for each in asked if not re.search(each, text)] == []
