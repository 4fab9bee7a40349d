"""sacct's history: text of any version, and slurm2sql's databases."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from slurmsched.errors import InputError
from slurmsched.replay.loaders.sacct_gpus import gpus_of
from slurmsched.replay.trace_files import Recorded, load
from slurmsched.replay.traces import trace_digest
from tests.recorded.playback import HERE

HEADER = "JobID|JobIDRaw|User|State|Submit|Start|End|Suspended|TimelimitRaw|NNodes|AllocTRES|JobName"


def history(tmp_path: Path, *rows: str, header: str = HEADER, strict: bool = True) -> Recorded:
    """The trace of these sacct rows."""
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join((header, *rows)) + "\n")
    return load(path, strict=strict)


def row(job: str, state: str, times: str, tres: str = "gres/gpu=2", raw: str = "", more: str = "00:00:00|60|1") -> str:
    """One row. times: "submit start end"."""
    return "|".join((job, raw or job.partition("_")[0], "ann", state, *times.split(), more, tres, "train"))


def test_sacct__of_a_published_answer() -> None:
    """51 rows of 23.x to 24.x: steps passed over, 10 GPU jobs, "CANCELLED by UID" is CANCELLED."""
    trace = load(HERE / "public" / "sacct-P-gpu-mixed-states.txt", strict=True).trace
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
def test_sacct__who_was_cancelled_while_waiting_never_started(tmp_path: Path, header: str, told: str) -> None:
    """Older versions tell the end of such a job as its start; nothing was given to it."""
    rows = f"7|CANCELLED by 5|100|160|160|{told}", f"8|COMPLETED|100|110|110|{told}"
    recorded = history(tmp_path, *rows, header=f"JobIDRaw|State|Submit|Start|End|{header}")
    assert recorded.trace.job_id.tolist() == [8]
    assert [text.rpartition(": ")[2] for text in recorded.warnings] == ["never started"]


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
    assert [warning.rpartition(": ")[2] for warning in twice.warnings] == ["the same run told twice"]


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
    with pytest.raises(InputError, match="a header line"):
        load(tmp_path / "t", "sacct")


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
    ],
)  # fmt: skip
def test_gpus_of__takes_the_first_field_that_tells(fields: dict[str, str], gpus: int) -> None:
    """AllocTRES, ReqTRES, the command line's own options, old GRES by node; MIG slices are no GPUs."""
    assert gpus == gpus_of(fields).gpus


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
    recorded = load(path, strict=True)
    assert (recorded.kind, recorded.trace.gpus.tolist()) == ("slurm2sql", [4, 1])
    assert (
        recorded.trace.duration_s.tolist(), recorded.trace.time_limit_s.tolist(),
    ) == ([490.0, 90.0], [3600.0, 90.0])  # fmt: skip


def test_slurm2sql__refuses_another_database(tmp_path: Path) -> None:
    """A SQLite file without its table is named as such."""
    path = tmp_path / "other.sqlite3"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (x)")
    database.close()
    with pytest.raises(InputError, match="is it slurm2sql's"):
        load(path)


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
