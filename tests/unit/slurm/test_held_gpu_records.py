"""What runs hold, asked for once."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.model import JobState, Labels, Rights, Site
from slurmsched.slurm.cluster_state import HeldGpuRecords
from slurmsched.slurm.job_records import NODE_DETAIL, read_record
from tests.recorded.playback import HERE, Scontrol

RECORD = (
    "JobId={job} JobName={name} UserId=a(1) NodeList={nodes} JOB_GRES=gpu:1   Nodes=n{job} CPU_IDs=0 Mem=1 "
    "GRES=gpu:1(IDX:0) MinCPUsNode=1 WorkDir=/a"
)


def record(job: int, name: str = "x", more: str = "") -> str:
    return RECORD.format(job=job, name=name, nodes=f"n{job}") + more


def slurm(*jobs: int) -> Scontrol:
    return Scontrol({job: record(job) for job in jobs})


def columns(*jobs: int, start_s: float = 10.0, rows: int = 100, names: dict[int, str] | None = None):
    """Columns of `rows` jobs, of which these run, each on one GPU of its own node."""
    ids = np.arange(1, rows + 1)
    runs = np.isin(ids, jobs)
    return {
        "job_id": ids, "start_s": np.full(rows, start_s), "submit_s": np.ones(rows), "eligible_s": np.ones(rows),
        "node_list": Labels.of([f"n{job}" for job in ids]), "cpus": np.ones(rows, np.int64),
        "name": Labels.of([(names or {}).get(job, "x") for job in ids.tolist()]),
        "user": Labels.constant("a", rows), "gpu_request": Labels.constant("gpu:1", rows),
        "batch": np.ones(rows, np.bool_),
        "state": np.where(runs, int(JobState.RUNNING), int(JobState.PENDING)),
    }, runs  # fmt: skip


def read(held: HeldGpuRecords, table_and_runs, warnings: list[str] | None = None, tres: str = "gres/gpu=1"):
    """What the runs hold."""
    table, runs = table_and_runs
    return held.read(table, Labels.constant(tres, len(runs)), runs, [] if warnings is None else warnings)


def test_read__asks_for_new_runs_only():
    """Known runs are remembered, new ones asked for by id, ended ones forgotten."""
    scontrol = slurm(3, 4, 5)
    held = HeldGpuRecords(scontrol)
    assert set(read(held, columns(3, 4))) == {3, 4}
    assert read(held, columns(4, 5)) == {4: (("n4", "gpu:1(IDX:0)"),), 5: (("n5", "gpu:1(IDX:0)"),)}
    assert scontrol.asked == [[3, 4], [5]]


def test_read__asks_again_after_a_requeue():
    """The same id with another start is another run."""
    scontrol = slurm(3)
    held = HeldGpuRecords(scontrol)
    read(held, columns(3))
    read(held, columns(3, start_s=99.0))
    assert len(scontrol.asked) == 2


def test_read__prints_everything_when_most_is_new():
    """Where most jobs run, one listing of all is cheaper than asking for each."""
    scontrol = slurm(*range(1, 11))
    assert len(read(HeldGpuRecords(scontrol), columns(*range(1, 11), rows=10))) == 10
    assert scontrol.asked == ["all"]


def test_read__prints_everything_when_many_are_new():
    """Each single question is two requests to slurmctld: beyond 20 one listing of all is asked for instead."""
    scontrol = slurm(*range(1, 22))
    assert len(read(HeldGpuRecords(scontrol), columns(*range(1, 21), rows=1000))) == 20
    assert len(read(HeldGpuRecords(scontrol), columns(*range(1, 22), rows=1000))) == 21
    assert [asked == "all" for asked in scontrol.asked] == [False, True]


def test_read__goes_without_jobs_that_are_gone():
    """A job that ended between two commands has no details, and is asked for again while it is listed."""
    scontrol = slurm(3)
    held, warnings = HeldGpuRecords(scontrol), list[str]()
    assert set(read(held, columns(3, 4), warnings)) == {3}
    read(held, columns(3, 4))
    assert (scontrol.asked[-1], warnings) == ([4], [])


FORGED = "\nJobId={job} JobName=x UserId=a(1) NodeList=n9 Nodes=n9 CPU_IDs=0 Mem=1 GRES=gpu:8(IDX:0-7) MinCPUsNode=1 "
COUNTED = (("n3", "gpu:1"),)


@pytest.mark.parametrize("rows", [4, 100])  # all jobs in one listing, each job alone
@pytest.mark.parametrize(
    "words",
    ["\n", "\n\n", "\nJobId=", "\nJobId=4 \nJobId=5 ", FORGED.format(job=4), FORGED.format(job=4) * 3,
     FORGED.format(job=77), "Nodes=n2 CPU_IDs=0 Mem=1 GRES=gpu:1(IDX:7)",
     "\nscontrol: show job 4" + FORGED.format(job=4), "\rJobId=4 JobName=x ", "\x85JobId=4 ",
     " IDX:0-99999999 "],
)  # fmt: skip
@pytest.mark.parametrize("place", [" Comment=", " WorkDir=/a", " StdOut=/b", " Command="])
def test_read__a_users_text_takes_nothing_from_other_jobs_and_gives_them_nothing(rows, words, place):
    """Line breaks, forged records and huge numbers behind what Slurm wrote: every job holds what it held."""
    records = {job: record(job) for job in (3, 4)} | {2: record(2, more=place + words)}
    for order in ((2, 3, 4), (4, 3, 2)):
        scontrol = Scontrol({job: records[job] for job in order})
        told = read(HeldGpuRecords(scontrol), columns(2, 3, 4, rows=rows))
        assert {job: told[job] for job in (3, 4)} == {job: ((f"n{job}", "gpu:1(IDX:0)"),) for job in (3, 4)}
        assert told[2][0][0] == "n2"


@pytest.mark.parametrize("rows", [4, 100])
@pytest.mark.parametrize(
    "name",
    ["a\nb", FORGED.format(job=4), "x UserId=a(1) NodeList=n2 Nodes=n2 CPU_IDs=0 Mem=1 GRES=gpu:1(IDX:7) MinCPUsNode=1",
     "JobName=x UserId=a(1) ", "", "(null)", "  ", "\x1f\x1e"],
)  # fmt: skip
def test_read__a_name_decides_nothing(rows, name):
    """It stands before what Slurm writes; squeue told it. Its own job is read or in doubt, never another's."""
    scontrol = Scontrol({2: record(2, name or "(null)"), 3: record(3), 4: record(4)})
    told = read(HeldGpuRecords(scontrol), columns(2, 3, 4, rows=rows, names={2: name}))
    assert {job: told[job] for job in (3, 4)} == {job: ((f"n{job}", "gpu:1(IDX:0)"),) for job in (3, 4)}
    assert told[2] in ((("n2", "gpu:1(IDX:0)"),), (("n2", "gpu:1"),))


GOOD = record(3)


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("Nodes=n3", "Nodes=n9"),  # another node than squeue tells
        GOOD.replace("Nodes=n3", "Nodes=n[3-9]"),
        GOOD.replace("Nodes=n3", "Nodes=n[0-99999999]"),
        GOOD.replace("Nodes=n3", "Nodes=" + ",".join(f"n{at}" for at in range(9000))),
        GOOD.replace("gpu:1(IDX:0)", "gpu:8(IDX:0-7)"),  # other GPUs than AllocTRES counts
        GOOD.replace("(IDX:0)", "(IDX:0-7)"),  # others than it counts itself
        GOOD.replace("(IDX:0)", "(IDX:0-99999999)"),
        GOOD.replace("(IDX:0)", "(IDX:²)"),
        GOOD.replace("gpu:1(IDX:0)", "gpu:99999999999999999999999"),
        GOOD.replace("UserId=a(1)", "UserId=rival(2)"),
        GOOD.replace("JobName=x", "JobName=other"),
        GOOD.replace(
            " MinCPUsNode=1", " WCKey=x Nodes=n3 CPU_IDs=0 Mem=1 GRES=gpu:1(IDX:5) MinCPUsNode=1 MinCPUsNode=1"
        ),
        GOOD + " Comment=x MinCPUsNode=1",
        GOOD.replace(" NodeList=n3", " WCKey=x Nodes=n3 CPU_IDs=0 Mem=1 GRES=gpu:1(IDX:5) NodeList=n3"),
        GOOD + " Comment=\n" + GOOD,
    ],
)
def test_read__a_record_that_differs_from_squeue_is_in_doubt(text):
    """The job is named in a warning, and holds the GPUs that squeue counts, without indices. Others go on."""
    warnings: list[str] = []
    told = read(HeldGpuRecords(Scontrol({3: text, 4: record(4)})), columns(3, 4), warnings)
    assert told == {3: COUNTED, 4: (("n4", "gpu:1(IDX:0)"),)}
    assert [warning.startswith("job 3:") for warning in warnings] == [True]


def test_read__jobs_in_doubt_are_asked_for_less_and_less():
    """After 1, 2, 4 ... reads; those that were asked for least come first. What is well is not asked for again."""
    texts = {job: record(job, more=FORGED.format(job=job)) for job in range(1, 31)}
    scontrol = Scontrol(texts)
    held = HeldGpuRecords(scontrol)
    for _ in range(8):
        warnings: list[str] = []
        told = read(held, columns(*texts, rows=40), warnings)
        assert (len(told), len(warnings), warnings[0][:12]) == (30, 1, "jobs 1, 2, 3")
    singly = [asked for asked in scontrol.asked if asked != "all"]
    assert [asked[0] for asked in singly] == [1, 21, 11, 1][: len(singly)] or len(singly) < 8
    scontrol.records = {job: record(job) for job in texts}
    for _ in range(64):
        told = read(held, columns(*texts, rows=40), warnings := [])
    assert (told[30], warnings) == ((("n30", "gpu:1(IDX:0)"),), [])


def test_read__attacks_on_every_job_are_undone_a_few_at_a_time():
    """One comment doubles all records of a listing: 20 jobs a read are asked for alone, until each is known."""
    jobs = range(1, 60)
    texts = {job: record(job) for job in jobs}
    texts[1] = record(1, more=" Comment=" + "".join(f"\nJobId={job} " for job in jobs if job > 1))
    held, table = HeldGpuRecords(Scontrol(texts)), columns(*jobs, rows=60)
    known = []
    for _ in range(12):
        told = read(held, table, warnings := [])
        known.append(sum("IDX" in parts[0][1] for parts in told.values()))
    assert (known[0], known[-1], warnings) == (21, 59, [])


def test_put_spread__of_runs_that_ask_for_it():
    """By job, whatever the order of the rows; a job that asks for nothing, or is not known, has none."""
    held, (table, runs) = (
        HeldGpuRecords(Scontrol({4: record(4, more=f" StdOut=/b {SPREAD}"), 3: record(3)})),
        columns(3, 4, 5),
    )
    read(held, (table, runs))
    held.put_spread(table)
    assert {name: table[name][[2, 3, 4]].tolist() for name in ("switches", "segment_nodes")} == {
        "switches": [0, 2, 0], "segment_nodes": [0, 3, 0],
    }  # fmt: skip
    held = HeldGpuRecords(
        Scontrol({3: record(3, more=FORGED.format(job=3)), 4: record(4, more=" Comment= WorkDir=/x")})
    )
    read(held, (table, runs))
    held.put_spread(table)
    assert [(table["switches"][row], table["segment_nodes"][row]) for row in (2, 3)] == [(-1, -1)] * 2


SPREAD = "Switches=2@00:05:00 SegmentSize=3 TresPerNode=x"


def site(parameters: str) -> Site:
    return Site("lab", "24.11.5", Rights.OPERATOR, "slurmsched", {"ScronParameters": parameters})


def test_cron_jobs__are_looked_for_where_there_is_scrontab():
    """Only waiting jobs that may start later than submitted can be scrontab's; each is asked for once."""
    plain = "JobId={} JobName=x UserId=a(1) {}MinCPUsNode=1 Comment= CronJob=Yes CrontabSpec= "
    scontrol = Scontrol({7: plain.format(7, "CronJob=Yes CrontabSpec= "), 8: plain.format(8, "")})
    held = HeldGpuRecords(scontrol)
    table, _ = columns()
    table["eligible_s"] = np.where(np.isin(table["job_id"], (7, 8)), 50.0, 1.0)
    assert np.flatnonzero(held.cron_jobs(table, site("enable"))).tolist() == [6]
    assert np.flatnonzero(held.cron_jobs(table, site("enable"))).tolist() == [6]
    assert scontrol.asked == [[7, 8]]


def test_cron_jobs__run_too_and_count_as_such_in_doubt():
    """A job of scrontab that runs is not requeued. What its record does not tell is asked again."""
    forged = "JobId=8 JobName=x UserId=a(1) MinCPUsNode=1 Comment=\nJobId=8 JobName=x UserId=a(1) MinCPUsNode=1"
    texts = {7: "JobId=7 JobName=x UserId=a(1) CronJob=Yes CrontabSpec= MinCPUsNode=1", 8: forged}
    scontrol = Scontrol(texts | {9: "JobId=9 JobName=x UserId=a(1) MinCPUsNode=1"})
    held, (table, _) = HeldGpuRecords(scontrol), columns(7, 8, 9)
    table["eligible_s"] = np.where(table["job_id"] > 6, 50.0, 1.0) * (table["job_id"] < 10)
    for _ in range(3):
        assert np.flatnonzero(held.cron_jobs(table, site("enable"))).tolist() == [6, 7]
    scontrol.records[8] = "JobId=8 JobName=x UserId=a(1) MinCPUsNode=1"
    assert np.flatnonzero(held.cron_jobs(table, site("enable"))).tolist() == [6]


def test_cron_jobs__cost_nothing_elsewhere():
    """A site without scrontab is not asked."""
    scontrol = Scontrol({})
    assert not HeldGpuRecords(scontrol).cron_jobs(columns()[0], site("(null)")).any()
    assert scontrol.asked == []


def test_read_record__of_published_excerpts():
    """`scontrol -d` lines of 20.02 to 24.x, several lines a job."""
    excerpts = (HERE / "public" / "scontrol-d-gres-idx-lines.txt").read_text().split("---")
    records = [read_record(f"JobId=5 JobName=x\n   UserId=a(1)\n{text}\n   MinCPUsNode=1\n", "x") for text in excerpts]
    assert [NODE_DETAIL.findall(record.record_text)[0][::2] for record in records if record] == [
        ("gpu003", "gpu:a100:4(IDX:0-3)"), ("gpu01", "gpu:1(IDX:0)"), ("node1", "gpu:a100:1(IDX:0)"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tail", "spread"),
    [
        ("WorkDir=/a StdErr= StdIn=/dev/null StdOut=/b SegmentSize=2 Switches=1@00:00:10 TresPerNode=g", (1, 2)),
        ("WorkDir=/a Switches=3@INVALID TresPerNode=gres/gpu:1", (3, 0)),  # srun and salloc: no files
        ("WorkDir=/a StdOut=/b TresPerNode=gres/gpu:1", (0, 0)),
        ("Comment=x SegmentSize=9 Command=/SegmentSize=9 WorkDir=/a StdOut=/b", (0, 0)),
        ("WorkDir=/a StdOut=/b Switches=99999999999999@0 SegmentSize=-1", (-1, -1)),
        ("WorkDir=/a StdOut=/b Switches=²@0 SegmentSize=٣", (-1, -1)),
        ("WorkDir=/a StdOut=/b Switches=1@0 Switches=9@0", (-1, -1)),
        ("WorkDir=/a StdOut=/b Switches=9@0 StdOut=/c Switches=1@0", (-1, -1)),
        ("WorkDir=/a StdOut=/b Switches=1@0 MailUser=x MailType=END", (1, 0)),
        ("WorkDir=/a StdOut=/b Switches=1@0 MailUser=x Switches=9@0 SegmentSize=9", (-1, -1)),
        ("WorkDir=/a StdOut=/b MailUser=x Switches=1@0 TresPerNode=gres/gpu:1", (-1, -1)),  # the file's name has it
        ("Comment= WorkDir=/x WorkDir=/a StdOut=/b Switches=1@0", (-1, -1)),
        ("Comment= StdOut=/x WorkDir=/a StdOut=/b SegmentSize=2", (-1, -1)),
        ("", (-1, -1)),
    ],
)
def test_spread__what_a_record_tells_behind_its_users_words(tail, spread):
    """Comments, files and the mail address of users decide nothing. -1: they leave it in doubt, or it is no count."""
    found = read_record(f"JobId=1 JobName=Switches=9 UserId=a(1) MinCPUsNode=1 {tail}", "Switches=9")
    assert found is not None
    assert found.spread == spread
