"""Every public kind, on excerpts of the real files (data/README.md)."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from slurmsched import registry
from slurmsched.errors import InputError
from slurmsched.input_files import open_bytes
from slurmsched.model.hints import parse_hints
from slurmsched.model.trace import RecordedTrace, trace_digest
from slurmsched.sim.experiments.replay_result import deadlines_s
from slurmsched.sim.traces.trace_io import load_trace, read_trace

DATA = Path(__file__).parent / "data"
COMMON = files("slurmsched.sim.traces") / "shipped"
FILES = {
    "tiresias_60.csv": ("tiresias", 60), "muri.csv": ("muri", 25), "philly_list.csv": ("philly-list", 25),
    "philly.json": ("philly", 1), "pollux/workload.csv": ("pollux", 17), "gavel.trace": ("gavel", 20),
    "shockwave.trace": ("shockwave", 15), "helios.csv": ("helios", 3), "lucid.csv": ("lucid", 2),
    "openb.csv": ("openb-2023", 3), "pai_task_table.csv": ("pai-2020", 3), "pai_list.csv": ("pai-list", 2),
    "small.swf": ("swf", 2), "seren.csv": ("acme", 2), "kalos.csv": ("acme", 2), "chronus.csv": ("chronus", 11),
    "elasticflow.csv": ("elasticflow", 10), "gavel_philly.trace": ("gavel", 3),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_load__tells_the_kind_by_content(name: str) -> None:
    """No kind is named, and no row of an excerpt is unreadable."""
    recorded = load_trace(DATA / name, strict=True)
    assert FILES[name] == (recorded.kind, len(recorded.trace))


def test_tiresias__equals_its_common_form() -> None:
    """The same 60 jobs in the plain form."""
    ours, plain = load_trace(DATA / "tiresias_60.csv").trace, read_trace(COMMON / "tiresias_60.csv.gz")
    for name in ("job_id", "gpus", "submit_s", "duration_s"):
        assert getattr(plain, name).tolist() == getattr(ours, name).tolist()
    assert ours.model[0] == "vgg19"


def test_muri__takes_milliseconds_and_runs_iterations() -> None:
    """Run time is iterations times iteration_time; 25 rows of the plain form agree."""
    plain = read_trace(COMMON / "muri_trace3.csv.gz")
    run_s = dict(zip(plain.job_id.tolist(), zip(plain.submit_s, plain.duration_s, strict=True), strict=True))
    ours = load_trace(DATA / "muri.csv").trace
    assert [run_s[job] for job in ours.job_id.tolist()] == list(zip(ours.submit_s, ours.duration_s, strict=True))


def test_pollux__run_times_are_those_of_its_simulator() -> None:
    """Jobs alone on 16 nodes of 4 GPUs, to the second: gradient accumulation (bert), a cap of the local batch
    (yolov3) and one GPU with a batch of two passes (ncf) among them."""
    plain = read_trace(COMMON / "pollux_w6_fixed.csv.gz")
    expected = dict(zip(zip(plain.submit_s, plain.gpus, strict=True), plain.duration_s, strict=True))
    ours = load_trace(DATA / "pollux" / "workload.csv").trace
    jobs = list(zip(ours.submit_s, ours.gpus, strict=True))
    assert [expected[job] for job in jobs] == ours.duration_s.tolist()


def test_pollux__reads_run_times_that_are_told(tmp_path: Path) -> None:
    """A workload with isolated_duration_s needs no profiles, and is the same jobs."""
    profiled = load_trace(DATA / "pollux" / "workload.csv").trace
    jobs = zip(profiled.name, profiled.submit_s, profiled.model, profiled.gpus, profiled.duration_s, strict=True)
    rows = [f"{name},{submit_s},{model},{gpus},64,{run_s}" for name, submit_s, model, gpus, run_s in jobs]
    head = "name,submit_s,application,num_gpus,batch_size,isolated_duration_s"
    (tmp_path / "w.csv").write_text("\n".join((head, *rows)) + "\n")
    recorded = load_trace(tmp_path / "w.csv", strict=True)
    assert (recorded.kind, trace_digest(recorded.trace)) == ("pollux", trace_digest(profiled))


def test_pollux__says_what_was_not_profiled(tmp_path: Path) -> None:
    """A batch beyond the profiles is a bad row, not a guess."""
    (tmp_path / "w.csv").write_text("name,time,application,num_replicas,batch_size\na-0,0,bert,6,100000\n")
    with pytest.raises(InputError, match=r"w\.csv:2: bert was not profiled"):
        load_trace(tmp_path / "w.csv", parameters={"profiles": str(DATA / "pollux" / "profiles")}, strict=True)


def test_pollux__needs_profiles(tmp_path: Path) -> None:
    """The error names the option that gives them."""
    (tmp_path / "w.csv").write_text("name,time,application,num_replicas,batch_size\na-0,0,bert,6,384\n")
    with pytest.raises(InputError, match="--set profiles=FOLDER"):
        load_trace(tmp_path / "w.csv")


@pytest.mark.parametrize(("worker", "run_s"), [("v100", [13237.7, 4402.9]), ("k80", [132629.9, 26748.0])])
def test_gavel__divides_steps_by_throughput(worker: str, run_s: list[float]) -> None:
    """The first two jobs, by worker type."""
    trace = load_trace(DATA / "gavel.trace", "gavel", {"worker": worker}).trace
    assert run_s == [round(float(run), 1) for run in trace.duration_s[:2]]
    assert (trace.gpus[:2].tolist(), trace.model[0]) == ([4, 2], "ResNet-18 (batch size 128)")


def test_gavel__reads_the_older_form(tmp_path: Path) -> None:
    """Four columns: job type, steps, arrival, GPUs."""
    (tmp_path / "old.tsv").write_text("Transformer (batch size 128)\t44334\t6.0\t2\n")
    (tmp_path / "simulation_throughputs.json").write_bytes((DATA / "simulation_throughputs.json").read_bytes())
    trace = load_trace(tmp_path / "old.tsv").trace
    assert (trace.gpus.tolist(), trace.submit_s.tolist(), round(float(trace.duration_s[0]), 1)) == ([2], [6.0], 4402.9)


def test_gavel__reads_the_seven_columns_of_its_philly_traces() -> None:
    """Job type, command, argument, data, steps, arrival, GPUs."""
    trace = load_trace(DATA / "gavel_philly.trace", strict=True).trace
    assert (trace.gpus.tolist(), trace.submit_s.tolist()) == ([1, 1, 4], [0.0, 2_683_745.0, 2_831_625.0])
    assert [round(float(run_s)) for run_s in trace.duration_s] == [2_461_854, 6_976, 3_017]


@pytest.mark.parametrize(("columns", "line"), [
    (4, "T (batch size 1)\t100\t6.0\t2"), (6, "T (batch size 1)\tcd x\t-step\t100\t6\t2"),
    (7, "T (batch size 1)\tcd x\t-step\t1\t100\t6.0\t2"), (9, "T (batch size 1)\tcd x\t-s\t1\t100\t2\t1\t-1\t6"),
    (10, "T (batch size 1)\tcd x\ty\t-s\t1\t100\t2\t1\t-1\t6"),
])  # fmt: skip
def test_gavel__reads_every_form(tmp_path: Path, columns: int, line: str) -> None:
    """100 steps at 4 a second on 2 GPUs, from 6 s on."""
    (tmp_path / "t").write_text(line + "\n")
    (tmp_path / "simulation_throughputs.json").write_text(
        json.dumps({"v100": {"('T (batch size 1)', 2)": {"null": 4.0}}})
    )
    assert line.count("\t") == columns - 1
    trace = load_trace(tmp_path / "t", strict=True).trace
    assert (trace.gpus.tolist(), trace.submit_s.tolist(), trace.duration_s.tolist()) == ([2], [6.0], [25.0])


def test_acme__takes_run_times_from_start_and_end() -> None:
    """Kalos's `duration` is 18 s of which it waited 10; times count with their offsets, the hour stays the site's."""
    kalos, seren = load_trace(DATA / "kalos.csv", strict=True), load_trace(DATA / "seren.csv", strict=True)
    assert (kalos.trace.duration_s.tolist(), kalos.trace.wait_s.tolist()) == ([8.0, 70.0], [10.0, 12.0])
    assert (seren.trace.duration_s.tolist(), seren.trace.wait_s.tolist()) == ([117.0, 2_693.0], [32.0, 13.0])
    assert (kalos.origin_s, kalos.utc_offset_s) == (1_684_321_258.0, 0.0)
    assert (seren.origin_s, seren.utc_offset_s) == (1_677_601_102.0, 28_800.0)
    assert (kalos.trace.job_id.tolist(), seren.trace.job_id.tolist()) == ([0, 1], [5_778_432, 5_778_469])
    trace = kalos.trace
    assert (trace.gpus.tolist(), trace.nodes.tolist(), trace.cpus.tolist()) == ([64, 64], [8, 8], [960, 960])


def test_chronus__and_elasticflow_tell_deadlines() -> None:
    """From the submission on; a best-effort job has none, a job without GPUs is left out."""
    recorded = load_trace(DATA / "chronus.csv", strict=True)
    due = dict(zip(recorded.trace.job_id.tolist(), deadlines_s(recorded.trace) - recorded.trace.submit_s, strict=True))
    assert (due[0], due[1], due[2], recorded.trace.user[0]) == (1_105.0, 128.0, float("inf"), "vc_6c71a0")
    assert [text.rpartition(": ")[2] for text in recorded.warnings] == ["without GPUs"]
    trace = load_trace(DATA / "elasticflow.csv", strict=True).trace
    assert ((deadlines_s(trace) - trace.submit_s)[0], trace.duration_s[0], trace.model[0]) == (
        693.0,
        1_075.0,
        "deepspeech2",
    )
    assert parse_hints(trace.comment[0]).batch == 32


@pytest.mark.parametrize(("times", "best", "due"), [("60-90-200", 0, 60.0), ("60", 1, float("inf")), ("0", 0, None)])
def test_chronus__takes_the_first_of_several_times(tmp_path: Path, times: str, best: int, due: float | None) -> None:
    """A soft deadline has several, each worth less; one that is over at submission is a bad row."""
    head = (DATA / "chronus.csv").read_text().partition("\n")[0]
    rows = [f"{job},u,1,10,5,vgg16,30,1,{each},9,{best},soft" for job, each in ((1, times), (2, "70"), (3, "70"))]
    (tmp_path / "t").write_text("\n".join((head, *rows)) + "\n")
    trace = load_trace(tmp_path / "t").trace
    told = dict(zip(trace.job_id.tolist(), (deadlines_s(trace) - 10.0).tolist(), strict=True))
    assert told.get(1) == due


def test_gavel__needs_throughputs(tmp_path: Path) -> None:
    """Without a table beside it the error names the option; an unknown worker type lists the known."""
    (tmp_path / "t.trace").write_bytes((DATA / "gavel.trace").read_bytes())
    with pytest.raises(InputError, match="--set throughputs="):
        load_trace(tmp_path / "t.trace")
    with pytest.raises(InputError, match="has k80, p100, v100"):
        load_trace(DATA / "gavel.trace", "gavel", {"worker": "h100"})


def test_shockwave__takes_the_run_time_without_adaptation() -> None:
    """Second row: 143450 steps, 3338 s, arrives at 55."""
    trace = load_trace(DATA / "shockwave.trace").trace
    assert (trace.submit_s[1], trace.duration_s[1], trace.name[1]) == (55.0, 3338.0, "accordion")


def test_philly__adds_up_attempts() -> None:
    """Two attempts of 8 GPUs: 74 s and 193,182 s; one requeue; the first start 30 s after submission."""
    recorded = load_trace(DATA / "philly.json")
    trace = recorded.trace
    assert (trace.gpus.tolist(), trace.duration_s.tolist(), trace.requeues.tolist()) == ([8], [74.0 + 193_182.0], [1])
    assert (
        trace.wait_s[0], trace.state[0], trace.user[0], trace.account[0],
    ) == (30.0, "COMPLETED", "ce2f4c", "ee9e8c")  # fmt: skip


def test_philly__names_the_line_of_a_broken_array(tmp_path: Path) -> None:
    """The array is cut short in the middle of its second element."""
    text = (DATA / "philly.json").read_text().rstrip().removesuffix("]")
    (tmp_path / "cut.json").write_text(text + ',\n{"status": "Pa')
    with pytest.raises(InputError, match=rf"cut\.json:{text.count(chr(10)) + 2}: is no JSON array"):
        load_trace(tmp_path / "cut.json")


def test_helios__starts_at_zero_and_keeps_the_calendar() -> None:
    """2020-06-09 18:41:01 is the origin; waits of nothing."""
    recorded = load_trace(DATA / "helios.csv")
    assert (recorded.origin_s, recorded.trace.submit_s.tolist()) == (1_591_728_061.0, [0.0, 26.0, 27.0])
    assert recorded.trace.wait_s.tolist() == [0.0, 0.0, 0.0]


def test_pai__joins_the_tasks_of_a_job() -> None:
    """job-a: 2 half GPUs, its CPU task left out; job-b: 2 x 2 + 1 GPUs from the first start to the last end; job-c
    had not ended. Submit times and users from the job table."""
    recorded = load_trace(DATA / "pai_task_table.csv")
    trace = recorded.trace
    assert trace.gpus.tolist() == [2, 5, 1]
    assert (trace.gpu_share.tolist(), trace.duration_s.tolist()) == ([0.5, 1.0, 1.0], [480.0, 650.0, 60.0])
    assert (trace.submit_s.tolist(), trace.wait_s.tolist()) == ([0.0, 150.0, 380.0], [30.0, 50.0, 20.0])
    assert list(trace.user) == ["alice", "bob", "alice"]


def test_pai_list__multiplies_instances() -> None:
    """Half a GPU is one GPU with share 0.5; 2 GPUs on 4 instances are 8."""
    trace = load_trace(DATA / "pai_list.csv").trace
    assert (trace.gpus.tolist(), trace.gpu_share.tolist()) == ([1, 8], [0.5, 1.0])


def test_openb__leaves_out_pods_without_gpus_or_start() -> None:
    """Run time is scheduled to deleted; a quarter of a GPU has share 0.25; CPUs and memory are there."""
    recorded = load_trace(DATA / "openb.csv")
    assert (
        recorded.trace.job_id.tolist(), recorded.trace.duration_s.tolist(),
    ) == ([1, 2, 5], [3940.0, 3600.0, 200.0])  # fmt: skip
    assert recorded.trace.gpu_share[0] == 0.25
    assert (recorded.trace.cpus.tolist(), recorded.trace.memory_mib[0]) == ([4, 88, 4], 8_192)
    assert sorted(text.rpartition(": ")[2] for text in recorded.warnings) == ["never started", "without GPUs"]


def test_swf__counts_processors_as_gpus() -> None:
    """Job 2 has its request only; 3 never ran, 4 is part of another; UnixStartTime is the origin."""
    recorded = load_trace(DATA / "small.swf")
    trace = recorded.trace
    assert (
        trace.gpus.tolist(), trace.duration_s.tolist(), trace.time_limit_s.tolist(),
    ) == ([4, 8], [100.0, 50.0], [200.0, 50.0])  # fmt: skip
    assert (trace.limit_known.tolist(), recorded.origin_s) == ([True, False], 1_577_836_800.0)
    assert load_trace(DATA / "small.swf", "swf", {"processors_per_gpu": 3}).trace.gpus.tolist() == [2, 3]


def with_more(name: str, tmp_path: Path, *rows: str) -> RecordedTrace:
    """An excerpt with these rows behind its own."""
    (tmp_path / name).write_text((DATA / name).read_text().rstrip("\n") + "\n" + "\n".join(rows) + "\n")
    return load_trace(tmp_path / name, strict=True)


@pytest.mark.parametrize(("name", "rows", "waits_s"), [
    ("helios.csv", ["9,u,v,2,4,1,FAILED,2020-06-09 18:50:00,2020-06-09 18:51:00,2020-06-09 18:51:00,0,60",
                    "8,u,v,2,4,1,CANCELLED,2020-06-09 18:50:00,2020-06-09 18:51:00,2020-06-09 18:51:00,0,60",
                    "7,u,v,2,4,1,FAILED,2020-06-09 18:50:00,,2020-06-09 18:51:00,0,60"], [60.0]),
    ("small.swf", ["5 60 70 0 4 -1 -1 4 60 -1 0 4 1 -1 1 -1 -1 -1", "6 60 70 0 4 -1 -1 4 60 -1 5 4 1 -1 1 -1 -1 -1",
                   "7 60 -1 0 4 -1 -1 4 60 -1 0 4 1 -1 1 -1 -1 -1", "8 60 70 0 -1 -1 -1 4 60 -1 0 4 1 -1 1 -1 -1 -1"],
     [70.0]),
    ("openb.csv", ["openb-pod-0006,4000,8192,1,1000,,LS,Failed,1500,1580,1580"], [80.0]),
    ("pai_task_table.csv", ["job-e,worker,1.0,Failed,700.0,700.0,600.0,29.3,100.0,T4"], [0.0]),
])  # fmt: skip
def test_load__keeps_jobs_that_ended_at_once(name: str, rows: list[str], waits_s: list[float], tmp_path: Path) -> None:
    """Where a start is told and they cannot have been cancelled while they waited; their waits count."""
    trace = with_more(name, tmp_path, *rows).trace
    assert trace.wait_s[trace.duration_s == 0].tolist() == waits_s


def test_philly__keeps_a_job_that_ended_at_once(tmp_path: Path) -> None:
    """One attempt, which ends in the second of its start."""
    text = (DATA / "philly.json").read_text()
    (record,) = json.loads(text)
    attempt = record["attempts"][0]
    (tmp_path / "log").write_text(json.dumps([record | {"attempts": [attempt | {"end_time": attempt["start_time"]}]}]))
    trace = load_trace(tmp_path / "log", strict=True).trace
    assert (trace.duration_s.tolist(), trace.wait_s.tolist()) == ([0.0], [30.0])


def test_document__lists_every_kind() -> None:
    """docs/traces.md has a row for each loader and for no other."""
    text = (Path(__file__).parents[4] / "docs" / "traces.md").read_text(encoding="utf-8")
    kinds = text.partition("## The common form")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", kinds, re.MULTILINE)
    assert sorted(name for cell in cells for name in re.findall(r"`([^`]+)`", cell)) == list(
        registry.plugin_names("traces")
    )


def zst(text: bytes) -> bytes:
    import zstandard

    return zstandard.compress(text)


@pytest.mark.parametrize("pack", [gzip.compress, zst])
def test_load__unpacks_whatever_the_name(tmp_path: Path, pack: object) -> None:
    """gzip and zstd are told by their first bytes."""
    path = tmp_path / "trace"
    path.write_bytes(pack((DATA / "muri.csv").read_bytes()))  # type: ignore[operator]
    assert same(load_trace(DATA / "muri.csv"), load_trace(path))


def rows_of(jobs: int) -> bytes:
    """A plain trace that no packing makes small."""
    rows = (f"{job},{job % 7 + 1},{job * 7919 % 100_003},{job * 104_729 % 99_991 + 1}\n" for job in range(jobs))
    return b"job_id,num_gpus,submit_s,duration_s\n" + "".join(rows).encode()


@pytest.mark.parametrize("pack", [gzip.compress, zst])
def test_load__reads_all_parts_of_a_packed_file(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """Packed files set one behind the other, as `cat` and parallel packers do, are one; empty ones too."""
    whole = rows_of(20_000)
    cut = whole.index(b"\n", len(whole) // 3) + 1
    (tmp_path / "t").write_bytes(pack(whole[:cut]) + pack(b"") + pack(whole[cut:]))
    (tmp_path / "plain").write_bytes(whole)
    assert trace_digest(load_trace(tmp_path / "t").trace) == trace_digest(load_trace(tmp_path / "plain").trace)


@pytest.mark.parametrize("share", [0.001, 0.3, 0.999])
@pytest.mark.parametrize("pack", [gzip.compress, zst])
def test_load__refuses_a_packed_file_that_was_torn(
    pack: Callable[[bytes], bytes], share: float, tmp_path: Path
) -> None:
    """A part of a trace is not taken for the whole."""
    packed = pack(rows_of(20_000))
    (tmp_path / "t").write_bytes(packed[: max(int(share * len(packed)), 20)])
    with pytest.raises(InputError, match="cannot be read: Compressed file ended before"):
        load_trace(tmp_path / "t")


def test_open_bytes__unpacks_little_at_a_time(tmp_path: Path) -> None:
    """The first bytes of a file of 150 MiB zeros bring 32 MiB into memory at most."""
    (tmp_path / "t").write_bytes(zst(bytes(150 << 20)))
    with open_bytes(tmp_path / "t") as file:
        assert file.read(10) == bytes(10)
        assert len(file.raw._ready) <= 32 << 20  # type: ignore[attr-defined]


def test_load__says_of_an_empty_file_that_it_is_empty(tmp_path: Path) -> None:
    """It is not of an unknown kind; packed ones alike."""
    for content in (b"", gzip.compress(b""), zst(b"")):
        (tmp_path / "t").write_bytes(content)
        with pytest.raises(InputError, match="t: is empty"):
            load_trace(tmp_path / "t")


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (
            "job_id,gpus,submit_s,duration_s",
            "to be plain CSV it lacks num_gpus (job_id, num_gpus, submit_s, duration_s;",
        ),
        ("id,num_gpus,submit_s,runtime", "it lacks job_id and duration_s ("),
        (
            "job_id;gpus;submit_s;duration_s",
            "it lacks num_gpus (job_id, num_gpus, submit_s, duration_s; docs/traces.md); ",
        ),
        ("id,gpus,when,duration_s", "name its kind with --kind"),
    ],
)
def test_load__tells_a_table_what_it_lacks(tmp_path: Path, header: str, said: str) -> None:
    """One that has half of the plain form's columns was meant as that; any other is asked for its kind."""
    (tmp_path / "t.csv").write_text(f"{header}\n1,2,3,4\n")
    with pytest.raises(InputError, match=re.escape(said)):
        load_trace(tmp_path / "t.csv")


def test_load__warns_of_jobs_that_start_before_they_come(tmp_path: Path) -> None:
    """How many, and by how much the worst; whose start is not told or in time is not meant."""
    path = tmp_path / "t.csv"
    path.write_text("job_id,num_gpus,submit_s,duration_s,start_s\n1,1,0,9,0\n2,1,50,9,40\n3,1,60,9,\n4,1,90,9,89.5\n")
    assert load_trace(path).warnings == (
        f"{path}: 2 jobs started before submission, job 2 by 10 s, the most: those recorded waits are below 0",
    )


def test_load__says_which_extra_zstd_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site without the package is told how to get it."""
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    (tmp_path / "t.zst").write_bytes(b"\x28\xb5\x2f\xfd rest")
    with pytest.raises(InputError, match=r"slurmsched\[traces\]"):
        load_trace(tmp_path / "t.zst")


def test_load__counts_bad_rows_and_strict_stops(tmp_path: Path) -> None:
    """Two of eight rows are bad: six jobs and one warning with the first line; strict names it and stops."""
    path = tmp_path / "t.csv"
    rows = [f"{n},1,{n},10" for n in range(6)] + ["x,1,0,10", "7,1,0,-3"]
    path.write_text("job_id,num_gpus,submit_s,duration_s\n" + "\n".join(rows) + "\n")
    recorded = load_trace(path)
    assert len(recorded.trace) == 6
    assert (f"{path}: 2 rows cannot be read, the first in line 8: job_id is 'x', not a number",) == recorded.warnings
    with pytest.raises(InputError, match=r"t\.csv:8: job_id is 'x'"):
        load_trace(path, strict=True)


def test_load__says_which_field_a_short_row_lacks(tmp_path: Path) -> None:
    """Not that it were None."""
    (tmp_path / "t.csv").write_text("job_id,num_gpus,submit_s,duration_s\n1,1,0,5\n2,1,0\n")
    with pytest.raises(InputError, match=r"t\.csv:3: duration_s is missing"):
        load_trace(tmp_path / "t.csv", strict=True)


def test_load__refuses_a_file_whose_rows_are_mostly_bad(tmp_path: Path) -> None:
    """Better no answer than one from the few rows that look right by chance."""
    path = tmp_path / "t.csv"
    path.write_text("job_id,num_gpus,submit_s,duration_s\n1,1,0,10\nx,1,0,1\ny,1,0,1\n")
    with pytest.raises(InputError, match="hardly a trace of kind csv"):
        load_trace(path)


def test_load__refuses_a_trace_without_jobs(tmp_path: Path) -> None:
    """What was left out is said."""
    path = tmp_path / "t.csv"
    with (DATA / "openb.csv").open() as file:
        rows = [row for row in csv.reader(file) if row[3] in ("num_gpu", "0")]
    path.write_text("\n".join(",".join(row) for row in rows) + "\n")
    with pytest.raises(InputError, match=r"no GPU job that ran; .*1 job left out: without GPUs"):
        load_trace(path)


def same(one: RecordedTrace, other: RecordedTrace) -> bool:
    """Whether two traces are equal, column by column."""
    pairs = [(values, other.trace.columns()[name]) for name, values in one.trace.columns().items()]
    return all(
        list(a) == list(b) if hasattr(a, "names") else np.array_equal(a, b, equal_nan=a.dtype == np.float64)
        for a, b in pairs
    )
