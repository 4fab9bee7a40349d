"""sacct's history: text of any version, and slurm2sql's databases."""

from __future__ import annotations

import json
import re
import sqlite3
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from slurmsched.errors import InputError
from slurmsched.model.trace import RecordedTrace, trace_digest
from slurmsched.sim.traces.trace_io import load_trace
from slurmsched.slurm.sacct_jobs import gpus_of
from slurmsched.slurm.sacct_text import FORMAT, RUN
from tests.recorded.playback import HERE

ROOT = next(each for each in Path(__file__).parents if (each / "pyproject.toml").exists())
DATA = ROOT / "tests/unit/sim/traces/data"

HEADER = "JobID|JobIDRaw|User|State|Submit|Start|End|Suspended|TimelimitRaw|NNodes|AllocTRES|JobName"


BESIDE = "%s; --model slurm replays them beside the others"


def history(tmp_path: Path, *rows: str, header: str = HEADER, strict: bool = True) -> RecordedTrace:
    """The trace of these sacct rows."""
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join((header, *rows)) + "\n")
    return load_trace(path, strict=strict)


def row(job: str, state: str, times: str, tres: str = "gres/gpu=2", raw: str = "", more: str = "00:00:00|60|1") -> str:
    """One row. times: "submit start end"."""
    return "|".join((job, raw or job.partition("_")[0], "ann", state, *times.split(), more, tres, "train"))


def test_sacct__of_a_published_answer() -> None:
    """51 rows of 23.x to 24.x: steps passed over, 10 GPU jobs, "CANCELLED by UID" is CANCELLED."""
    trace = load_trace(HERE / "public" / "sacct-P-gpu-mixed-states.txt", strict=True).trace
    assert (10, {1}) == (len(trace), set(trace.gpus.tolist()))
    assert {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"} == set(trace.state.names)
    job = trace.job_id.tolist().index(1_955_319)
    assert (
        trace.gpu_type[job], trace.wait_s[job], trace.duration_s[job], trace.time_limit_s[job],
    ) == ("a100_80", 8.0, 82_811.0, 82_800.0)  # fmt: skip


def test_sacct__joins_the_runs_of_a_requeued_job(tmp_path: Path) -> None:
    """Run times add up, the first submission and start count, the last state too; suspended time is none."""
    trace = history(
        tmp_path,
        row("7", "REQUEUED", "100 110 190", more="00:00:30|60|1"),
        row("7", "COMPLETED", "195 300 400"),
        row("8", "COMPLETED", "150 160 170"),
    ).trace
    assert (
        trace.job_id.tolist(), trace.duration_s.tolist(), trace.requeues.tolist(),
    ) == ([7, 8], [50.0 + 100.0, 10.0], [1, 0])  # fmt: skip
    assert (
        trace.submit_s.tolist(), trace.wait_s.tolist(), list(trace.state),
    ) == ([0.0, 50.0], [10.0, 10.0], ["COMPLETED", "COMPLETED"])  # fmt: skip


def test_sacct__a_requeued_job_that_has_not_ended_is_left_out(tmp_path: Path) -> None:
    """Its earlier run alone would be a job that never was."""
    rows = row("7", "REQUEUED", "100 110 190"), row("7", "RUNNING", "195 300 Unknown"), row("8", "FAILED", "5 6 9")
    recorded = history(tmp_path, *rows)
    assert (recorded.trace.job_id.tolist(), len(recorded.warnings)) == ([8], 1)
    assert recorded.warnings[0].endswith("2 jobs left out: had not ended")


def test_sacct__runs_of_0_s_count_for_their_job(tmp_path: Path) -> None:
    """Requeued, or ended, in the second of its start: submission, requeues and end are told."""
    recorded = history(
        tmp_path,
        row("7", "REQUEUED", "100 101 101"), row("7", "COMPLETED", "101 300 400"),
        row("8", "REQUEUED", "100 101 131"), row("8", "FAILED", "131 200 200"),
    )  # fmt: skip
    trace = recorded.trace
    assert (trace.job_id.tolist(), trace.submit_s.tolist(), trace.requeues.tolist()) == ([7, 8], [0, 0], [1, 1])
    assert (trace.duration_s.tolist(), list(trace.state)) == ([100.0, 30.0], ["COMPLETED", "FAILED"])
    assert recorded.warnings == ()


def test_sacct__a_job_that_ended_at_once_is_a_job(tmp_path: Path) -> None:
    """It waited for its GPUs and had them; so had one that was cancelled in its first second."""
    recorded = history(tmp_path, row("7", "FAILED", "100 160 160"), row("8", "CANCELLED by 5", "110 190 190"))
    trace = recorded.trace
    assert (trace.wait_s.tolist(), trace.duration_s.tolist()) == ([60.0, 80.0], [0.0, 0.0])
    assert (list(trace.state), recorded.warnings) == (["FAILED", "CANCELLED"], ())


@pytest.mark.parametrize(("header", "told"), [
    ("AllocTRES|ReqTRES", "|cpu=4,gres/gpu=2"), ("ReqTRES", "cpu=4,gres/gpu=2"),
    ("AllocTRES|NodeList", "gres/gpu=2|None assigned"), ("AllocGRES|ReqGRES", "|gpu:2"),
])  # fmt: skip
def test_sacct__who_was_cancelled_while_waiting_is_beside_the_others(tmp_path: Path, header: str, told: str) -> None:
    """Older versions tell the end of such a job as its start; nothing was given to it. It came 0 s after the others."""
    rows = f"7|CANCELLED by 5|100|160|160|{told}", f"8|COMPLETED|100|110|110|{told}"
    recorded = history(tmp_path, *rows, header=f"JobIDRaw|State|Submit|Start|End|{header}")
    assert (recorded.trace.job_id.tolist(), recorded.beside is not None) == ([8], True)
    waited = recorded.beside
    assert waited is not None
    columns = waited.job_id.tolist(), waited.cancel_s.tolist(), waited.gpus.tolist(), waited.start_s.tolist()
    assert columns == ([7], [60], [2], [pytest.approx(float("nan"), nan_ok=True)])
    assert [text.rpartition(": ")[2] for text in recorded.warnings] == [BESIDE % "cancelled while waiting"]


@pytest.mark.parametrize(("eligible", "kept"), [("100", True), ("130", True), ("Unknown", False), ("170", False)])
def test_sacct__who_could_not_start_before_it_was_cancelled_is_left_out(
    tmp_path: Path, eligible: str, kept: bool
) -> None:
    """A hold leaves the field unknown; a begin time may be later than the end."""
    rows = f"7|CANCELLED|100|{eligible}|Unknown|160|gres/gpu=2", "8|COMPLETED|100|100|110|110|gres/gpu=2"
    recorded = history(tmp_path, *rows, header="JobIDRaw|State|Submit|Eligible|Start|End|ReqTRES")
    assert (recorded.beside is not None) == kept
    assert recorded.beside is None or recorded.beside.eligible_s.tolist() == [int(eligible) - 100]


def test_sacct__jobs_without_gpus_are_beside_the_others(tmp_path: Path) -> None:
    """With CPUs and nodes, on the clock of the others; those that came before them are not known of. A requeued one
    is one job, and ids are nobody else's."""
    header = "JobIDRaw|State|Submit|Start|End|NNodes|AllocTRES"
    rows = ("8|COMPLETED|100|110|120|1|cpu=4,gres/gpu=2", "9|COMPLETED|130|140|150|2|cpu=64,mem=8G,node=2",
            "7|FAILED|90|95|99|1|cpu=1",
            "6|REQUEUED|105|110|120|1|cpu=2", "6|COMPLETED|120|130|140|1|cpu=2")  # fmt: skip
    recorded = history(tmp_path, *rows, header=header)
    beside = recorded.beside
    assert beside is not None
    columns = (
        beside.job_id,
        beside.submit_s,
        beside.start_s,
        beside.cpus,
        beside.nodes,
        beside.gpus,
        beside.duration_s,
    )
    assert [each.tolist() for each in columns] == [[6, 9], [5, 30], [10, 40], [2, 64], [1, 2], [0, 0], [20, 10]]


@pytest.mark.parametrize(("row", "told"), [
    ("30_1|31|COMPLETED|1|2|3|gres/gpu=1|(null)|sbatch --array=1-9%4 x.sh --exclusive", (30, 4, "", 0)),
    ("30_1|31|COMPLETED|1|2|3|gres/gpu=1||sbatch -a 1-9 -C 'a100&ib' --exclusive x.sh", (30, 0, "a100&ib", 1)),
    ("30|30|COMPLETED|1|2|3|gres/gpu=1|v100|sbatch --exclusive=user --constraint=p100 x.sh", (0, 0, "v100", 0)),
])  # fmt: skip
def test_sacct__arrays_features_and_whole_nodes(tmp_path: Path, row: str, told: tuple[int, int, str, int]) -> None:
    """Options after the script are its own; the field Constraints comes before the command line."""
    trace = history(
        tmp_path, row, header="JobID|JobIDRaw|State|Submit|Start|End|AllocTRES|Constraints|SubmitLine"
    ).trace
    assert (trace.array_id[0], trace.array_limit[0], trace.constraint[0], trace.exclusive[0]) == told


def test_sacct__nodes_several_partitions_and_dependencies(tmp_path: Path) -> None:
    """Only those of the command line are known; the partition is the one where the job ran."""
    rows = [f"{job}|COMPLETED|1|2|3|gres/gpu=1|{where}|{nodes}|sbatch -p {asked} {more} x.sh -p c,d"
            for job, where, nodes, asked, more in (
                (1, "a", "n[1-2]", "a,b", ""), (2, "a", "None assigned", "a", "-d afterok:1"),
                (3, "b", "", "a,b", "--dependency=singleton"))]  # fmt: skip
    header = "JobIDRaw|State|Submit|Start|End|AllocTRES|Partition|NodeList|SubmitLine"
    trace = history(tmp_path, *rows, header=header).trace
    columns = (trace.partition, trace.node_list, trace.partitions, trace.dependency)
    assert [list(column) for column in columns] == [
        ["a", "a", "b"], ["n[1-2]", "", ""], ["a,b", "", "a,b"], ["", "afterok:1", "singleton"]
    ]  # fmt: skip


@pytest.mark.parametrize(("row", "told"), [
    ("b:2,a|license/a=1|sbatch -L a:1 x.sh", "a:1,b:2"),
    ("|cpu=1,license/a=3,license/b@db=1|sbatch x.sh", "a:3,b@db:1"),
    ("(null)|cpu=1|sbatch --licenses=a,b:2 x.sh -L c", "a:1,b:2"),
    ("|cpu=1|sbatch -L 'a:2|b:1' x.sh", ""),
])  # fmt: skip
def test_sacct__licenses(tmp_path: Path, row: str, told: str) -> None:
    """The field before the TRES, these before the command line; alternatives are not known."""
    header = "JobIDRaw;State;Submit;Start;End;AllocTRES;Licenses;ReqTRES;SubmitLine"
    text = "1;COMPLETED;1;2;3;gres/gpu=1;" + ";".join(row.split("|", 2))
    assert history(tmp_path, text, header=header).trace.licenses[0] == told


BROKEN = "JobIDRaw|SubmitLine|State|Submit|Start|End|AllocTRES"


def test_sacct__a_text_may_hold_line_breaks(tmp_path: Path) -> None:
    """`sbatch --wrap` with a script of several lines, one of them empty, in the middle of a row."""
    wrapped = "7|sbatch --wrap=a\n\n  b|COMPLETED|100|110|190|gres/gpu=2"
    plain = "8|sbatch x|FAILED|100|110|120|gres/gpu=1"
    recorded = history(tmp_path, wrapped, plain, wrapped.replace("7|", "9|"), header=BROKEN)
    assert (recorded.trace.job_id.tolist(), recorded.warnings) == ([7, 8, 9], ())


def test_sacct__a_last_text_may_hold_line_breaks(tmp_path: Path) -> None:
    """Its further lines are no rows; those that may as well be a row that was cut are told."""
    rows = row("7", "COMPLETED", "100 110 190") + "\n  b\n\nc", row("8", "FAILED", "100 110 120")
    recorded = history(tmp_path, *rows)
    assert (recorded.trace.job_id.tolist(), recorded.warnings) == ([7, 8], ())
    cut = history(tmp_path, *rows, "9_1")
    assert [text.partition(": ")[2] for text in cut.warnings] == [
        "lines without a delimiter passed over, of the text before them or torn rows: 1"
    ]


def test_sacct__a_row_that_was_cut_takes_no_other_with_it(tmp_path: Path) -> None:
    """Nor does one line that is too long; each such line is counted."""
    good = [row(str(job), "FAILED", f"{job} 110 190") for job in range(1, 7)]
    recorded = history(
        tmp_path, good[0][:20], *good[:3], good[3][:9], good[4][:20], *good[3:], "x|" * 20 + "|", strict=False
    )
    assert recorded.trace.job_id.tolist() == [1, 2, 3, 4, 5, 6]
    assert recorded.warnings[0].partition(": ")[2] == (
        "4 rows cannot be read, the first in line 2: has not the header's 12 fields"
    )
    with pytest.raises(InputError, match=":2: has not the header's 12 fields"):
        history(tmp_path, good[0][:20], good[0])


def test_sacct__a_run_told_twice_counts_once(tmp_path: Path) -> None:
    """Answers for two months, one after the other, both hold what ran over midnight; components stay apart."""
    told = (
        row("7", "REQUEUED", "100 110 190"), row("7", "COMPLETED", "195 300 400"),
        row("8_1", "FAILED", "5 6 9", raw="9"),
        row("11+0", "COMPLETED", "5 6 9", raw="11"), row("11+1", "COMPLETED", "5 6 9", raw="12"),
    )  # fmt: skip
    once, twice = history(tmp_path, *told), history(tmp_path, *told, *told)
    assert trace_digest(once.trace) == trace_digest(twice.trace)
    assert dict(zip(twice.trace.job_id.tolist(), twice.trace.gpus.tolist(), strict=True)) == {7: 2, 9: 2, 11: 4}
    assert [warning.rpartition(": ")[2] for warning in twice.warnings] == ["the same run twice"]


def test_sacct__a_run_told_again_when_it_had_ended_is_the_ended_one(tmp_path: Path) -> None:
    """The first answer was taken while it ran."""
    recorded = history(tmp_path, row("7", "RUNNING", "100 110 Unknown"), row("7", "COMPLETED", "100 110 190"))
    assert recorded.trace.duration_s.tolist() == [80.0]


def test_sacct__an_id_used_again_is_another_job(tmp_path: Path) -> None:
    """The first run ended for good, so the second is not its requeue."""
    trace = history(tmp_path, row("7", "COMPLETED", "100 110 190"), row("7", "FAILED", "9000 9010 9020")).trace
    assert (
        trace.job_id.tolist(), trace.duration_s.tolist(), list(trace.state),
    ) == ([7, 8], [80.0, 10.0], ["COMPLETED", "FAILED"])  # fmt: skip


def test_sacct__het_components_are_one_gang(tmp_path: Path) -> None:
    """JobID 20+0 and 20+1 start together: their GPUs add up under the leader's id."""
    rows = row("20+0", "COMPLETED", "100 110 190", raw="20"), row("20+1", "COMPLETED", "100 110 180", raw="21")
    trace = history(tmp_path, *rows).trace
    assert (
        trace.job_id.tolist(), trace.gpus.tolist(), trace.duration_s.tolist(), trace.requeues.tolist(),
    ) == ([20], [4], [80.0], [0])  # fmt: skip


def test_sacct__array_tasks_are_jobs(tmp_path: Path) -> None:
    """Each task that ran, by its raw id; the record of those that wait is left out."""
    recorded = history(
        tmp_path,
        row("30_1", "COMPLETED", "100 110 190", raw="31"),
        row("30_2", "COMPLETED", "100 120 190", raw="32"),
        row("30_[3-9]", "PENDING", "100 Unknown Unknown", raw="30"),
    )
    assert recorded.trace.job_id.tolist() == [31, 32]
    assert [text.rpartition(": ")[2] for text in recorded.warnings] == ["never started"]


def test_sacct__numbers_array_tasks_without_raw_ids(tmp_path: Path) -> None:
    """Where only JobID is there each task is a job of its own; runs of one task still join."""
    header = "JobID|State|Submit|Start|End|AllocTRES"
    runs = (1, "REQUEUED", 100), (2, "COMPLETED", 100), (1, "COMPLETED", 200)
    rows = [f"30_{task}|{state}|{at}|{at}|{at + 50}|gres/gpu=1" for task, state, at in runs]
    trace = history(tmp_path, *rows, header=header).trace
    assert sorted(trace.duration_s.tolist()) == [50.0, 100.0]


@pytest.mark.parametrize("delimiter", ["|", ";|;", "\x1f", ","])
def test_sacct__takes_any_delimiter(tmp_path: Path, delimiter: str) -> None:
    """--delimiter of any text; --parsable's one at the end of the line too."""
    names = ["JobIDRaw", "State", "Submit", "Start", "End", "AllocTRES"]
    values = ["5", "COMPLETED", "2025-09-26T08:00:00", "2025-09-26T08:00:09", "2025-09-26T08:01:26", "gres/gpu=1"]
    recorded = history(tmp_path, delimiter.join((*values, "")), header=delimiter.join((*names, "")))
    assert (recorded.origin_s, recorded.trace.duration_s.tolist()) == (1_758_873_600.0, [77.0])


def test_sacct__a_job_name_may_hold_the_delimiter(tmp_path: Path) -> None:
    """One free-text field takes the surplus wherever it is."""
    header = HEADER.replace("|User|", "|JobName|User|").removesuffix("|JobName")
    text = "9|9|a|b|ann|COMPLETED|100|110|190|00:00:00|60|1|gres/gpu=2"
    assert list(history(tmp_path, text, header=header).trace.name) == ["a|b"]


def test_sacct__a_row_of_another_length_is_bad(tmp_path: Path) -> None:
    """A job name with a line feed breaks its row in two; both are counted, or stop a strict reading."""
    good = [row(str(n), "COMPLETED", "100 110 190") for n in range(1, 5)]
    recorded = history(tmp_path, *good, "5|5|ann|COMP", strict=False)
    assert (len(recorded.trace), len(recorded.warnings)) == (4, 1)
    with pytest.raises(InputError, match=r"sacct\.txt:6: has not the header's 12 fields"):
        history(tmp_path, *good, "5|5|ann|COMP")


def test_sacct__without_a_header_says_how_to_get_one(tmp_path: Path) -> None:
    """-n leaves it out."""
    (tmp_path / "t").write_text(row("1", "COMPLETED", "100 110 190") + "\n")
    for kind in ("sacct", ""):
        with pytest.raises(InputError, match=r"t:1: has no header line \(sacct -n .* sacct -aXDP --noconvert"):
            load_trace(tmp_path / "t", kind)


@pytest.mark.parametrize(
    ("fields", "gpus"),
    [
        ({"AllocTRES": "cpu=8,gres/gpu:a100=2,gres/gpu=2"}, 2),
        ({"AllocTRES": "cpu=8", "ReqTRES": "cpu=8,gres/gpu=3"}, 3),
        ({"AllocTRES": "cpu=8", "SubmitLine": "sbatch -N2 --gres=gpu:a100:4 run.sh"}, 8),
        ({"AllocTRES": "cpu=8", "NNodes": "2", "SubmitLine": "sbatch --gpus-per-node 2 run.sh"}, 4),
        ({"AllocTRES": "cpu=8", "SubmitLine": "srun -n 4 --gpus-per-task=2 ./a.out"}, 8),
        ({"AllocTRES": "cpu=8", "SubmitLine": "salloc -G 3"}, 3),
        ({"AllocTRES": "cpu=8", "SubmitLine": "sbatch run.sh --gpus=4"}, 0),
        ({"AllocTRES": "cpu=8", "SubmitLine": "sbatch 'unclosed --gpus=4"}, 0),
        ({"AllocGRES": "gpu:2", "NNodes": "3"}, 6),
        ({"AllocTRES": "gres/gpu:1g.5gb=2,gres/gpu=2"}, 0),
        ({"AllocTRES": "cpu=1,energy=-2,license/x@y:1,gres/gpu=2"}, 2),
        ({"NNodes": "1.50K", "SubmitLine": "sbatch --gpus-per-node=8 run.sh"}, 12_288),
        ({"NNodes": "4", "SubmitLine": "sbatch -N1-4 --gpus-per-node=8 run.sh"}, 32),
        ({"AllocTRES": "node=1K", "AllocGRES": "gpu:8"}, 8_192),
        ({"SubmitLine": "sbatch --requeue run.sh --gpus=4"}, 0),
        ({"JobID": "7+0", "SubmitLine": "sbatch -G2 : -G3 run.sh"}, 2),
        ({"JobID": "7+1", "SubmitLine": "sbatch -G2 : -G3 run.sh"}, 3),
        ({"JobID": "7+2", "SubmitLine": "sbatch -G2 : -G3 run.sh"}, 0),
        ({"SubmitLine": "sbatch --requeue --gpus=4 run.sh --gpus=8"}, 4),
        ({"NNodes": "2", "SubmitLine": "sbatch --ntasks-per-node=4 --gpus-per-task=1 run.sh"}, 8),
    ],
)  # fmt: skip
def test_gpus_of__takes_the_first_field_that_tells(fields: dict[str, str], gpus: int) -> None:
    """AllocTRES, ReqTRES, the command line's own options, old GRES by node; MIG slices are no GPUs."""
    assert gpus == gpus_of(fields).gpus


TIMES = "JobIDRaw|State|Submit|Start|End|Suspended|ElapsedRaw|Elapsed|AllocTRES"


def timed(times: str, *more: str, strict: bool = True, tmp_path: Path) -> RecordedTrace:
    """A job of these times and the fields after them, and one that nothing is odd about."""
    submit, start, end = times.split()
    odd = "|".join(("7", "FAILED", submit, start, end, *more, "gres/gpu=2"))
    usual = "|".join(("8", "FAILED", submit, submit, submit, "00:00:00", "0", "", "gres/gpu=1"))
    return history(tmp_path, odd, usual, header=TIMES, strict=strict)


@pytest.mark.parametrize(("times", "more", "run_s", "remarks"), [
    # over the night in which clocks go back, from 02:30 to 02:30, and forward
    ("2024-10-27T01:00:00 2024-10-27T02:30:00 2024-10-27T02:30:00", ("00:00:00", "3600", ""), 3_600.0, 0),
    ("2024-10-27T01:00:00 2024-10-27T02:50:00 2024-10-27T02:10:00", ("00:00:00", "1200", ""), 1_200.0, 0),
    ("2024-03-31T01:00:00 2024-03-31T01:30:00 2024-03-31T03:30:00", ("00:00:00", "", "01:00:00"), 3_600.0, 0),
    # suspended time is out of it already
    ("100 110 190", ("00:00:30", "50", ""), 50.0, 0),
    ("100 110 190", ("00:00:30", "", ""), 50.0, 0),
    ("100 110 190", ("00:00:00", "4294967294", ""), 80.0, 0),
    # contradictions: Slurm's own count, and a word of it
    ("100 110 190", ("00:00:00", "70", ""), 70.0, 1),
    ("2024-01-01T00:00:00 2024-01-01T00:00:10 2024-01-01T01:00:10", ("00:00:00", "36000", ""), 36_000.0, 1),
])  # fmt: skip
def test_sacct__elapsed_is_the_run_time(
    tmp_path: Path, times: str, more: tuple[str, ...], run_s: float, remarks: int
) -> None:
    """Where it is told; End less Start goes wrong over a clock change."""
    recorded = timed(times, *more, tmp_path=tmp_path)
    assert (recorded.trace.duration_s[0], len(recorded.warnings)) == (run_s, remarks)
    assert all("ElapsedRaw is taken" in text for text in recorded.warnings)


@pytest.mark.parametrize("unset", [4_294_967_294, 4_294_967_295, 0xFFFFFFFFFFFFFFFE, 0])
def test_sacct__no_val_is_no_time(tmp_path: Path, unset: int) -> None:
    """Slurm 24.11 tells the start of a job that was cancelled while it waited so in JSON."""
    at = {"submission": 100, "start": unset, "end": 190, "elapsed": 0, "suspended": 0, "limit": 60}
    asked = [{"type": "gres", "name": "gpu", "id": 1, "count": 2}]
    waited = told(job_id=7, time=at, state={"current": ["CANCELLED"]}, tres={"allocated": [], "requested": asked})
    runs_on = told(job_id=9, time=at | {"start": 110, "end": unset}, state={"current": ["FAILED"]})
    recorded = answer(tmp_path, waited, runs_on, told(job_id=8))
    assert recorded.trace.job_id.tolist() == [8]
    assert [text.rpartition(": ")[2] for text in recorded.warnings] == [
        "had not ended",
        BESIDE % "cancelled while waiting",
    ]
    text = history(tmp_path, f"7|FAILED|100|{unset}|190|gres/gpu=1", "8|FAILED|1|2|3|gres/gpu=1", header=SHORT)
    assert text.trace.job_id.tolist() == [8]


def test_sacct__a_start_after_the_end_is_none(tmp_path: Path) -> None:
    """As one in 1970 is."""
    recorded = timed("100 9000 190", "00:00:00", "50", "", tmp_path=tmp_path)
    assert (recorded.trace.wait_s[0], recorded.trace.duration_s[0]) == (40.0, 50.0)
    refused = timed("100 9000 190", "00:00:00", "", "", strict=False, tmp_path=tmp_path)
    assert refused.trace.job_id.tolist() == [8]


def test_sacct__a_start_in_1970_is_none(tmp_path: Path) -> None:
    """The start is what end and run time leave; where they tell 50 years, the row is refused."""
    times = "2024-01-01T00:00:00 1970-01-01T01:00:00 2024-01-02T00:00:00"
    recorded = timed(times, "00:00:00", "3600", "", tmp_path=tmp_path)
    assert (recorded.trace.wait_s[0], recorded.trace.duration_s[0]) == (23 * 3_600.0, 3_600.0)
    for elapsed in ("", "1704153600"):
        refused = timed(times, "00:00:00", elapsed, "", strict=False, tmp_path=tmp_path)
        assert (refused.trace.job_id.tolist(), "long before its submission" in refused.warnings[0]) == ([8], True)


@pytest.mark.parametrize(("told", "at_s", "offset_s"), [
    ("2024-01-01T00:00:00+0100", 1_704_063_600.0, 3_600.0), ("2024-01-01T00:00:00Z", 1_704_067_200.0, 0.0),
    ("2023-12-31T20:00:00-04:00", 1_704_067_200.0, -14_400.0), ("2024-01-01T00:00:00", 1_704_067_200.0, 0.0),
])  # fmt: skip
def test_sacct__an_offset_counts(tmp_path: Path, told: str, at_s: float, offset_s: float) -> None:
    """The hour of the day stays the site's."""
    recorded = history(tmp_path, f"7|FAILED|{told}|{told}|{told}|gres/gpu=1", header=SHORT)
    assert (recorded.origin_s, recorded.utc_offset_s) == (at_s, offset_s)


def test_sacct__waits_over_a_clock_change_are_right_with_offsets(tmp_path: Path) -> None:
    """From 02:30 of summer to 02:10 of winter time are 40 minutes."""
    times = "2024-10-27T02:30:00+0200|2024-10-27T02:10:00+0100|2024-10-27T04:10:00+0100"
    assert history(tmp_path, f"7|FAILED|{times}|gres/gpu=1", header=SHORT).trace.wait_s.tolist() == [2_400.0]


def test_sacct__refuses_two_clocks_in_one_file(tmp_path: Path) -> None:
    """Between a wall clock and UTC may be hours."""
    zoned, plain = "2024-01-01T00:00:00Z", "2024-01-01T00:00:00"
    rows = [
        f"{job}|FAILED|{each}|{each}|{end}|gres/gpu=1"
        for job, each, end in (("7", zoned, zoned), ("8", plain, plain), ("9", zoned, plain), ("5", zoned, zoned))
    ]
    recorded = history(tmp_path, *rows, header=SHORT, strict=False)  # fmt: skip
    assert (recorded.trace.job_id.tolist(), recorded.warnings[0].partition(": ")[2]) == (
        [5, 7], "2 rows cannot be read, the first in line 3: its times are wall clock and those of other rows are not, "
        "or the other way round",
    )  # fmt: skip


def test_sacct__counts_have_units(tmp_path: Path) -> None:
    """As sacct prints them without --noconvert: powers of 1024; what was rounded is refused."""
    header = "JobIDRaw|State|Submit|Start|End|NNodes|ReqTRES|AllocTRES"
    recorded = history(
        tmp_path,
        "1|FAILED|1|2|3|1.50K|cpu=8K,mem=4T|gres/gpu=1.50K",
        "2|FAILED|1|2|3||cpu=12,mem=1536M|node=2K,gres/gpu=1K",
        "3|FAILED|1|2|3|0.01K|cpu=12|gres/gpu=1",
        "4|FAILED|1|2|3|1.5.1K|cpu=12|gres/gpu=1",
        header=header, strict=False,
    )  # fmt: skip
    trace = recorded.trace
    assert (trace.nodes.tolist(), trace.cpus.tolist()) == ([1_536, 2_048], [8_192, 12])
    assert (trace.memory_mib.tolist(), trace.gpus.tolist()) == ([4 * 1024.0**2, 1_536.0], [1_536, 1_024])
    assert recorded.warnings[0].endswith("a rounded count; sacct --noconvert prints it whole: '0.01K'")


SHORT = "JobIDRaw|State|Submit|Start|End|AllocTRES"
CLUSTERS = "Cluster|JobID|State|Submit|Start|End|AllocTRES|User"


def test_sacct__a_job_is_cluster_and_id(tmp_path: Path) -> None:
    """Two clusters' jobs of one id, and one that was requeued there: three jobs; one cluster can be taken alone."""
    rows = (
        "c3|700|PREEMPTED|100|110|190|gres/gpu=8|ann", "c4|700|COMPLETED|150|200|300|gres/gpu=1|ann",
        "c4|701|REQUEUED|150|200|300|gres/gpu=1|bob", "c4|701|COMPLETED|310|400|500|gres/gpu=1|bob",
    )  # fmt: skip
    recorded = history(tmp_path, *rows, header=CLUSTERS)
    trace = recorded.trace
    assert (trace.job_id.tolist(), trace.gpus.tolist()) == ([700, 701, 702], [8, 1, 1])
    assert (trace.duration_s.tolist(), trace.requeues.tolist()) == ([80.0, 200.0, 100.0], [0, 1, 0])
    assert "jobs of 2 clusters (c3, c4)" in recorded.warnings[0]
    alone = load_trace(tmp_path / "sacct.txt", "sacct", {"cluster": "c4"}, strict=True)
    assert (alone.trace.job_id.tolist(), alone.warnings) == ([700, 701], ())


def test_sacct__an_id_that_comes_back_is_another_job(tmp_path: Path) -> None:
    """A preempted run goes on in one submitted as it ended; not in another user's, nor in one submitted days after."""
    rows = [
        f"c|{job}|{state}|{at}|{at}|{at + 100}|gres/gpu=1|{user}"
        for job, runs in {
            1: (("PREEMPTED", 0, "ann"), ("COMPLETED", 105, "ann")),
            2: (("PREEMPTED", 0, "ann"), ("COMPLETED", 105, "bob")),
            3: (("PREEMPTED", 0, "ann"), ("COMPLETED", 200_000, "ann")),
            4: (("REQUEUED", 0, "ann"), ("COMPLETED", 200_000, "ann")),
        }.items()
        for state, at, user in runs
    ]
    trace = history(tmp_path, *(row.replace("|0|0|", "|1|1|") for row in rows), header=CLUSTERS).trace
    told = zip(trace.job_id.tolist(), trace.requeues.tolist(), trace.user, strict=True)
    assert sorted(told) == [(1, 1, "ann"), (2, 0, "ann"), (3, 0, "ann"), (4, 1, "ann"), (5, 0, "bob"), (6, 0, "ann")]


TEXTS = "JobIDRaw|State|Submit|Start|End|JobName|Comment|SubmitLine|WorkDir|AllocTRES|User"


def test_sacct__a_delimiter_in_several_texts_leaves_the_rest_sure(tmp_path: Path) -> None:
    """The fields to both ends count; the texts are left out; where one of them is needed the row is refused."""
    recorded = history(
        tmp_path,
        "7|FAILED|100|110|190|a|b|c|d|gres/gpu=2|ann",
        "8|FAILED|100|110|190|a|x|y|sbatch a | b|/tmp|gres/gpu=4|bob",
        "9|FAILED|100|110|190|a|x|y|sbatch --gpus=4 a | b|/tmp||bob",
        header=TEXTS, strict=False,
    )  # fmt: skip
    assert (recorded.trace.gpus.tolist(), list(recorded.trace.user), list(recorded.trace.name)) == (
        [2, 4], ["ann", "bob"], ["a", ""],
    )  # fmt: skip
    assert (
        recorded.warnings[0].partition(": ")[2].startswith("1 row cannot be read, the first in line 4: several texts")
    )


def test_sacct__texts_apart_from_each_other_are_refused_row_by_row(tmp_path: Path) -> None:
    """Nobody can tell which of them holds the delimiter, so that what stands between is not sure."""
    header = "JobIDRaw|JobName|State|Submit|Start|End|AllocTRES|Comment"
    rows = ("7|a|FAILED|100|110|190|gres/gpu=2|x", "8|a|FAILED|FAILED|100|110|190|gres/gpu=2|x",
            "9|a|FAILED|100|110|190|gres/gpu=2|x|FAILED|100|110|190|gres/gpu=64|y",
            "5|a|FAILED|100|110|190|gres/gpu=2|x")  # fmt: skip
    recorded = history(tmp_path, *rows, header=header, strict=False)
    assert (recorded.trace.job_id.tolist(), "2 rows cannot be read, the first in line 3" in recorded.warnings[0]) == (
        [5, 7], True,
    )  # fmt: skip


def test_sacct__says_what_is_no_row(tmp_path: Path) -> None:
    """A greeting before the header, errors of sacct, a header once more; none of them is a row that is broken."""
    path = tmp_path / "t"
    good = row("7", "COMPLETED", "100 110 190")
    noise = "sacct: error: slurm_persist_conn_open: No answer"
    lines = ("Welcome to x!", "", "sacct: warning: hm", HEADER, good, noise, HEADER, good.replace("7", "9"))
    path.write_text("\n".join(lines) + "\n")
    recorded = load_trace(path, strict=True)
    assert (recorded.kind, recorded.trace.job_id.tolist()) == ("sacct", [7, 9])
    assert [text.partition(": ")[2] for text in recorded.warnings] == [
        "1 line before the header passed over, the first 'Welcome to x!'",
        "sacct says so itself in 1 line, and its answer may be cut: 'sacct: warning: hm'",
        f"sacct says so itself in 1 line, and its answer may be cut: {noise!r}",
    ]


@pytest.mark.parametrize(("text", "said"), [
    ("sacct: error: Problem talking to the database: Connection refused\n", "it says: 'sacct: error: Problem talking"),
    ("JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode\n7|a|b|c|8|COMPLETED|0:0\n",
     "has no field Submit, Start, End; run: SLURM_TIME_FORMAT=%s sacct -aXDP"),
    ("JobID           JobName      State\n------------ ---------- ----------\n7  a  COMPLETED\n",
     "is sacct's default table, which cuts its fields; run: "),
    ("7|7|ann|COMPLETED|2024-01-01T00:00:00|x\n", "has no header line (sacct -n leaves it out); run: "),
    ("7_1;|;7;|;CANCELLED by 5;|;x\n", "has no header line (sacct -n leaves it out); run: "),
])  # fmt: skip
def test_sacct__tells_another_answer_what_to_run(tmp_path: Path, text: str, said: str) -> None:
    """Not that the kind be unknown."""
    (tmp_path / "t").write_text(text)
    with pytest.raises(InputError, match=re.escape(said)):
        load_trace(tmp_path / "t")


def test_sacct__what_it_says_to_run_is_what_the_page_says() -> None:
    """docs/traces.md shows the same fields."""
    page = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")
    assert (f"`{FORMAT}`" in page, RUN.partition(FORMAT)[0] in page) == (True, True)


def test_sacct__a_bar_at_the_end_of_a_name_stays(tmp_path: Path) -> None:
    """With -P; with -p each line ends in one more."""
    header = f"{SHORT}|JobName"
    plain = history(tmp_path, "7|FAILED|1|2|3|gres/gpu=1|a|", header=header)
    closed = history(tmp_path, "7|FAILED|1|2|3|gres/gpu=1|a||", header=f"{header}|")
    assert [list(each.trace.name) for each in (plain, closed)] == [["a|"], ["a|"]]


@pytest.mark.parametrize("state", ["FOO", "", "COMPLETED;FAILED"])
def test_sacct__a_state_that_no_slurm_prints_is_a_bad_row(tmp_path: Path, state: str) -> None:
    """Short forms are known."""
    recorded = history(tmp_path, f"7|{state}|1|2|3|gres/gpu=1", "8|TO|1|2|3|gres/gpu=1", header=SHORT, strict=False)
    assert (recorded.trace.job_id.tolist(), list(recorded.trace.state)) == ([8], ["TIMEOUT"])


def test_sacct__gpus_that_only_a_submit_line_names_are_counted_apart(tmp_path: Path) -> None:
    """Quotes are lost in it, so that nobody can tell the options of sbatch from those of the script."""
    line = "sbatch --time 1 --wrap sleep 30 && true --gpus 4"
    rows = f"7|FAILED|1|2|3||{line}", "8|FAILED|1|2|3||sbatch x.sh", "9|FAILED|1|2|3|gres/gpu=1|"
    recorded = history(tmp_path, *rows, header=f"{SHORT}|SubmitLine")
    assert [text.rpartition(": ")[2] for text in recorded.warnings] == [
        "SubmitLine asks for GPUs; it is unclear whether the option is sbatch's or the script's",
        BESIDE % "without GPUs",
    ]


def answer(tmp_path: Path, *jobs: dict[str, Any], strict: bool = True, **more: Any) -> RecordedTrace:
    """The trace of these jobs as sacct --json prints them."""
    path = tmp_path / "sacct.json"
    path.write_text(json.dumps({"meta": {"jobs": 1}, **more, "jobs": list(jobs), "warnings": []}, indent=1))
    return load_trace(path, strict=strict)


def told(**changes: Any) -> dict[str, Any]:
    """A job of 22.05's form, changed."""
    (job,) = json.loads((HERE / "public" / "sacct-json-22.5.9.json").read_text())["jobs"]
    return job | changes  # type: ignore[no-any-return]


@pytest.mark.parametrize(("name", "said"), [
    ("21.8.8", "1 job left out: had not ended"), ("23.2.6", "1 job left out: had not ended"),
    ("23.11.5", "1 job left out: had not ended"), ("25.11-v0.0.44-gpu", "1 job left out: SubmitLine asks for GPUs"),
])  # fmt: skip
def test_sacct_json__of_published_answers(name: str, said: str) -> None:
    """21.08 to 25.11: states as words and lists, numbers plain and as objects; a run that was requeued or goes on."""
    with pytest.raises(InputError, match=re.escape(said)):
        load_trace(HERE / "public" / f"sacct-json-{name}.json", strict=True)


def test_sacct_json__reads_every_field() -> None:
    """A task of an array on four nodes with four GPUs each, 22.05."""
    recorded = load_trace(HERE / "public" / "sacct-json-22.5.9.json", strict=True)
    (job,) = zip(*recorded.trace.columns().values(), strict=True)
    named = dict(zip(recorded.trace.columns(), job, strict=True))
    expected = {
        "job_id": 20_247_445, "gpus": 16, "duration_s": 124_403.0, "time_limit_s": 172_800.0, "start_s": 1_579_828.0,
        "nodes": 4, "cpus": 96, "memory_mib": 262_144.0, "user": "user16", "account": "acct1_gpu", "name": "train1",
        "partition": "gpubase_bynode_b4", "qos": "normal", "state": "FAILED",
    }  # fmt: skip
    assert (recorded.kind, recorded.origin_s, expected) == (
        "sacct-json", 1_692_160_813.0, {name: named[name] for name in expected},
    )  # fmt: skip


def test_sacct_json__equals_the_text_of_the_same_jobs(tmp_path: Path) -> None:
    """Requeued runs, het components, types of GPUs, numbers as objects and states as lists."""
    number = lambda value: {"set": True, "infinite": False, "number": value}  # noqa: E731
    gpus = [{"type": "gres", "name": "gpu", "id": 1, "count": 2}, {"type": "gres", "name": "gpu:a100", "count": 2},
            {"type": "energy", "name": "", "id": 3, "count": -2}]  # fmt: skip
    at = {"submission": 100, "start": 110, "end": 190, "elapsed": 50, "suspended": 30, "limit": number(60)}
    base = told(
        array={"job_id": 0, "task_id": number(0)}, user="ann", cluster="", tres={"allocated": gpus, "requested": []}
    )
    later = {"submission": 195, "start": number(300), "end": number(400), "elapsed": number(100),
             "suspended": number(0), "limit": {"set": False, "infinite": True, "number": 0}}  # fmt: skip
    jobs = [
        base | {"job_id": 7, "time": at, "state": {"current": ["PENDING", "REQUEUED"]}},
        base | {"job_id": 7, "time": later, "state": {"current": ["COMPLETED"]}},
        *(base | {"job_id": 20 + n, "time": at, "state": {"current": "FAILED"},
                  "het": {"job_id": 20, "job_offset": number(n)}} for n in (0, 1)),
    ]  # fmt: skip
    ours = answer(tmp_path, *jobs).trace
    header = "JobID|JobIDRaw|User|State|Submit|Start|End|Suspended|ElapsedRaw|TimelimitRaw|AllocTRES"
    text = history(
        tmp_path,
        "7|7|ann|REQUEUED|100|110|190|00:00:30|50|60|gres/gpu=2,gres/gpu:a100=2",
        "7|7|ann|COMPLETED|195|300|400|00:00:00|100|UNLIMITED|gres/gpu:a100=2",
        "20+0|20|ann|FAILED|100|110|190|00:00:30|50|60|gres/gpu:a100=2",
        "20+1|21|ann|FAILED|100|110|190|00:00:30|50|60|gres/gpu:a100=2", header=header,
    ).trace  # fmt: skip
    for name in ("job_id", "gpus", "submit_s", "start_s", "duration_s", "requeues", "limit_known", "user", "gpu_type"):
        assert (name, list(getattr(text, name))) == (name, list(getattr(ours, name)))


def test_sacct_json__of_26_05_equals_the_text_of_the_same_jobs() -> None:
    """A job on two nodes, one that was requeued, a het job: what the lab's sacct printed in both forms."""
    json_form, text_form = (load_trace(DATA / f"sacct-26.05.{kind}", strict=True) for kind in ("json", "txt"))
    assert (json_form.kind, text_form.kind) == ("sacct-json", "sacct")
    assert json_form.origin_s == text_form.origin_s
    for name, values in json_form.trace.columns().items():
        if name not in ("name", "eligible_s", "node_list"):  # `|` in command line and name; the text lacks the others
            assert (name, list(map(repr, values))) == (name, list(map(repr, text_form.trace.columns()[name])))
    assert (list(json_form.trace.name), list(text_form.trace.name)) == (["two|nodes", "job", "wrap"], ["", "", "wrap"])
    assert (json_form.trace.requeues.tolist(), json_form.trace.gpus.tolist()) == ([0, 1, 0], [16, 4, 2])
    assert list(json_form.trace.node_list) == ["n[2-3]", "n1", "n2"]


@pytest.mark.parametrize("form", ["list", "noise"])
def test_sacct_json__alone_and_behind_errors(tmp_path: Path, form: str) -> None:
    """The list of jobs alone, as jq prints it; and an answer with sacct's errors before it."""
    text = json.dumps([told()] if form == "list" else {"jobs": [told()]}, indent=1)
    (tmp_path / "t").write_text(text if form == "list" else f"sacct: error: x\n{text}\n")
    recorded = load_trace(tmp_path / "t", strict=True)
    assert (recorded.kind, recorded.trace.gpus.tolist()) == ("sacct-json", [16])
    assert ["and its answer may be cut: 'sacct: error: x'" in text for text in recorded.warnings] == [True] * (
        form == "noise"
    )


def test_sacct__reads_the_quotes_of_a_spreadsheet(tmp_path: Path) -> None:
    """Commas stand within AllocTRES; a quote in a name of sacct's own is a character as any other."""
    header = "JobIDRaw,State,Submit,Start,End,AllocTRES,User"
    quoted = history(tmp_path, '7,FAILED,1,2,3,"cpu=8,gres/gpu=2",ann', "8,FAILED,1,2,3,gres/gpu=1,bob", header=header)
    assert (quoted.trace.gpus.tolist(), list(quoted.trace.user)) == ([2, 1], ["ann", "bob"])
    own = history(tmp_path, '7|FAILED|1|2|3|gres/gpu=1|a"b', header=f"{SHORT}|JobName")
    assert list(own.trace.name) == ['a"b']


@pytest.mark.parametrize("limit", ["", "UNLIMITED", "Partition_Limit", "4294967294", "4294967295", "0"])
def test_sacct__a_limit_that_is_none_is_not_known(tmp_path: Path, limit: str) -> None:
    """Neither as a word nor as Slurm's numbers for it."""
    rows = f"7|FAILED|1|2|3|{limit}|gres/gpu=1", "8|FAILED|1|2|3|5|gres/gpu=1"
    trace = history(tmp_path, *rows, header="JobIDRaw|State|Submit|Start|End|TimelimitRaw|AllocTRES").trace
    assert (trace.limit_known.tolist(), trace.time_limit_s[1]) == ([False, True], 300.0)


def test_sacct_json__says_what_sacct_said(tmp_path: Path) -> None:
    """Errors in the answer, a job that is none, and jobs of squeue, which has no history."""
    recorded = answer(tmp_path, told(), told(job_id="x"), errors=[{"description": "No association"}], strict=False)
    assert [text.partition(": ")[2] for text in recorded.warnings] == [
        "1 row cannot be read, the first in line 174: "
        "not a job of sacct --json (UnreadableError: not a number: \"'x'\")",
        "sacct printed errors with its answer, which may be cut: 'No association'",
    ]
    with pytest.raises(InputError, match="is the answer of squeue"):
        load_trace(HERE / "public" / "jobs-json-24.05-v0.0.41.json")
    with pytest.raises(InputError, match="no trace of a known kind"):
        load_trace(HERE / "public" / "nodes-json-25.11-v0.0.44.json")


def test_sacct_json__a_cut_file_is_refused(tmp_path: Path) -> None:
    """At any place: a part is not taken for the whole."""
    text = json.dumps({"jobs": [told(), told(job_id=8)], "errors": []})
    for share in (0.2, 0.5, 0.9, 0.999):
        (tmp_path / "t").write_text(text[: int(share * len(text))])
        with pytest.raises(InputError, match="is no JSON object with a list of jobs"):
            load_trace(tmp_path / "t", "sacct-json")


def test_sacct_json__holds_one_job_at_a_time(tmp_path: Path) -> None:
    """A file of 6 MB takes a part of that in memory."""
    job, jobs = json.dumps(told(steps=[{"x": "y" * 20_000}])), 300
    (tmp_path / "t").write_text('{"jobs": [' + ",\n".join(job for _ in range(jobs)) + "]}")
    tracemalloc.start()
    try:
        recorded = load_trace(tmp_path / "t", strict=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (len(recorded.trace), peak < 3 << 20) == (1, True)


def test_sacct__a_job_on_gpus_of_several_types_has_none(tmp_path: Path) -> None:
    """The type is of all its GPUs."""
    tres = ("gres/gpu:a100=2,gres/gpu:h100=2,gres/gpu=4", "gres/gpu:a100=2,gres/gpu=2", "gres/gpu:a100=2,gres/gpu=4")
    rows = [f"{job}|FAILED|1|2|3|{each}" for job, each in enumerate(tres, 7)]
    trace = history(tmp_path, *rows, header=SHORT).trace
    assert (trace.gpus.tolist(), list(trace.gpu_type)) == ([4, 2, 4], ["", "a100", ""])


OLDER = (
    "JobIDRaw",
    "StepID",
    "User",
    "State",
    "SubmitTS",
    "StartTS",
    "EndTS",
    "Timelimit",
    "NNodes",
    "ReqGRES",
    "NGPU",
)
NEWER = ("JobID", "JobStep", "User", "State", "Submit", "Start", "End", "Timelimit", "NNodes", "ReqGRES", "NGPU")


@pytest.mark.parametrize("names", [OLDER, NEWER])
def test_slurm2sql__reads_older_and_newer_tables(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Jobs only, steps passed over; GPUs by node, or slurm2sql's own count."""
    path = tmp_path / "jobs.sqlite3"
    rows = [
        (1, None, "ann", "COMPLETED", 1000.0, 1010.0, 1500.0, 3600.0, 2, "gpu:2", None),
        (1, "batch", "ann", "COMPLETED", 1000.0, 1010.0, 1500.0, None, 1, None, None),
        (2, None, "bob", "FAILED", 1100.0, 1110.0, 1200.0, None, 1, None, 1),
        (3, None, "bob", "PENDING", 1100.0, None, None, None, 1, "gpu:1", None),
    ]
    with sqlite3.connect(path) as database:
        database.execute(f"CREATE TABLE slurm ({', '.join(names)})")
        database.executemany(f"INSERT INTO slurm VALUES ({', '.join('?' * len(names))})", rows)
    database.close()
    recorded = load_trace(path, strict=True)
    assert (recorded.kind, recorded.trace.gpus.tolist()) == ("slurm2sql", [4, 1])
    assert (
        recorded.trace.duration_s.tolist(), recorded.trace.time_limit_s.tolist(),
    ) == ([490.0, 90.0], [3600.0, 90.0])  # fmt: skip


@pytest.mark.parametrize("elapsed", [400, 400.0, "00:06:40", None, ""])
def test_slurm2sql__takes_elapsed_for_the_run_time(tmp_path: Path, elapsed: Any) -> None:
    """A number of seconds or sacct's words, as its releases keep it."""
    path = tmp_path / "jobs.sqlite3"
    names = (*NEWER, "Elapsed")
    with sqlite3.connect(path) as database:
        database.execute(f"CREATE TABLE slurm ({', '.join(names)})")
        row = (1, None, "ann", "COMPLETED", 1000.0, 1010.0, 1500.0, 3600.0, 2, "gpu:2", None, elapsed)
        database.execute(f"INSERT INTO slurm VALUES ({', '.join('?' * len(names))})", row)
    database.close()
    assert load_trace(path, strict=True).trace.duration_s.tolist() == [400.0 if elapsed else 490.0]


def test_slurm2sql__refuses_another_database(tmp_path: Path) -> None:
    """A SQLite file without its table is named as such."""
    path = tmp_path / "other.sqlite3"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (x)")
    database.close()
    with pytest.raises(InputError, match="is it slurm2sql's"):
        load_trace(path)


def test_sacct__tells_partition_qos_and_shares(tmp_path: Path) -> None:
    """Nodes, and CPUs and memory as asked for; the components of a het job add up."""
    header = "JobID|JobIDRaw|State|Submit|Start|End|NNodes|Partition|QOS|ReqTRES|AllocTRES"
    alloc = "cpu=99,mem=9G,gres/gpu=4"
    trace = history(
        tmp_path,
        f"7|7|COMPLETED|100|110|190|2|short|high|cpu=8,mem=1536M,gres/gpu=4|{alloc}",
        f"8+0|8|COMPLETED|200|210|290|1|gpu|normal||{alloc}",
        f"8+1|9|COMPLETED|200|210|290|1|gpu|normal||{alloc}",
        header=header,
    ).trace
    assert (list(trace.partition), list(trace.qos)) == (["short", "gpu"], ["high", "normal"])
    assert (trace.nodes.tolist(), trace.cpus.tolist(), trace.memory_mib.tolist()) == (
        [2, 2], [8, 198], [1536.0, 2 * 9216.0],
    )  # fmt: skip


def test_sacct__eligible_is_when_a_job_could_start(tmp_path: Path) -> None:
    """Of a requeued job that of its first run; one before the submission or after the start is none."""
    trace = history(
        tmp_path,
        "1|ann|COMPLETED|100|160|200|300|00:00:00|60|1|gres/gpu=2",
        "2|ann|REQUEUED|100|110|120|190|00:00:00|60|1|gres/gpu=2",
        "2|ann|COMPLETED|195|315|320|400|00:00:00|60|1|gres/gpu=2",
        "3|ann|COMPLETED|100|50|200|300|00:00:00|60|1|gres/gpu=2",
        "4|ann|COMPLETED|100|Unknown|200|300|00:00:00|60|1|gres/gpu=2",
        header="JobIDRaw|User|State|Submit|Eligible|Start|End|Suspended|TimelimitRaw|NNodes|AllocTRES",
    ).trace
    assert [round(value) if value == value else None for value in trace.eligible_s.tolist()] == [60, 10, None, None]
