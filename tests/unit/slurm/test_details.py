"""What runs hold, asked for once."""

from __future__ import annotations

import numpy as np

from slurmsched.model import JobState, Labels, Rights, Site
from slurmsched.slurm.details import Held
from tests.recorded.playback import Answer

RECORD = (
    "JobId={job} JobName=x UserId=a(1) JOB_GRES=gpu:1   Nodes=n{job} CPU_IDs=0 Mem=1 GRES=gpu:1(IDX:0) MinCPUsNode=1\n"
)


class Scontrol:
    """Answers for the jobs that are asked by standard input, or for all of `jobs`."""

    def __init__(self, *jobs: int, extra: str = "") -> None:
        self.jobs, self.extra = jobs, extra
        self.asked: list[str] = []

    def run(self, program: str, *arguments: str, stdin: str = "") -> str:
        self.asked.append("all")
        return "".join(RECORD.format(job=job) for job in self.jobs) + self.extra

    def start(self, program: str, *arguments: str, stdin: str = "") -> Answer:
        self.asked.append(stdin)
        jobs = [int(line.split()[-1]) for line in stdin.splitlines()]
        text = "".join(f"scontrol: show job {job}\n{RECORD.format(job=job)}" for job in jobs if job in self.jobs)
        return Answer(text + self.extra, status=1)  # scontrol's status is that of its last command


def columns(*jobs: int, start_s: float = 10.0, comment: str = "", rows: int = 100):
    """Columns of `rows` jobs, of which these run."""
    ids = np.arange(1, rows + 1)
    runs = np.isin(ids, jobs)
    return {
        "job_id": ids, "start_s": np.full(rows, start_s), "submit_s": np.ones(rows), "eligible_s": np.ones(rows),
        "node_list": Labels.constant("n1", rows), "cpus": np.ones(rows, np.int64), "name": Labels.constant("x", rows),
        "comment": Labels.constant(comment, rows), "batch": np.ones(rows, np.bool_),
        "state": np.where(runs, int(JobState.RUNNING), int(JobState.PENDING)),
    }, runs  # fmt: skip


def test_read__asks_for_new_runs_only():
    """Known runs are remembered, new ones asked for by id, ended ones forgotten."""
    scontrol = Scontrol(3, 4, 5)
    held = Held(scontrol)
    assert set(held.read(*columns(3, 4))) == {3, 4}
    assert held.read(*columns(4, 5)) == {4: (("n4", "gpu:1(IDX:0)"),), 5: (("n5", "gpu:1(IDX:0)"),)}
    assert scontrol.asked == ["show job 3\nshow job 4\n", "show job 5\n"]


def test_read__asks_again_after_a_requeue():
    """The same id with another start is another run."""
    scontrol = Scontrol(3)
    held = Held(scontrol)
    held.read(*columns(3))
    held.read(*columns(3, start_s=99.0))
    assert len(scontrol.asked) == 2


def test_read__prints_everything_when_most_is_new():
    """Where most jobs run, one listing of all is cheaper than asking for each."""
    scontrol = Scontrol(*range(1, 11))
    assert len(Held(scontrol).read(*columns(*range(1, 11), rows=10))) == 10
    assert scontrol.asked == ["all"]


def test_read__prints_everything_when_many_are_new():
    """Each single question is two requests to slurmctld: beyond 20 one listing of all is asked for instead."""
    scontrol = Scontrol(*range(1, 22))
    assert len(Held(scontrol).read(*columns(*range(1, 21), rows=1000))) == 20
    assert len(Held(scontrol).read(*columns(*range(1, 22), rows=1000))) == 21
    assert [asked[:3] for asked in scontrol.asked] == ["sho", "all"]


def test_read__goes_without_jobs_that_are_gone():
    """A job that ended between two commands has no details, and is asked for again while it is listed."""
    scontrol = Scontrol(3)
    held = Held(scontrol)
    assert set(held.read(*columns(3, 4))) == {3}
    held.read(*columns(3, 4))
    assert scontrol.asked[-1] == "show job 4\n"


def test_read__takes_no_record_from_a_comment():
    """A comment that goes on with a line like a record of another job is not one."""
    forged = (
        "\nJobId=4 JobName=x UserId=a(1) JOB_GRES=gpu:8   Nodes=n9 CPU_IDs=0 Mem=1 GRES=gpu:8(IDX:0-7) MinCPUsNode=1"
    )
    scontrol = Scontrol(4, extra="")
    scontrol.run = lambda *_, **__: (
        "JobId=3 JobName=x UserId=a(1) MinCPUsNode=1 Comment=" + forged + "\n" + RECORD.format(job=4)
    )  # type: ignore[method-assign]
    assert Held(scontrol).read(*columns(3, 4, comment=forged, rows=4))[4] == (("n4", "gpu:1(IDX:0)"),)


def test_put_spread__of_runs_that_ask_for_it():
    """By job, whatever the order of the rows; a job that asks for nothing, or is not known, has none."""
    scontrol = Scontrol()
    scontrol.start = lambda *_, stdin: Answer(
        RECORD.format(job=4).replace("\n", " WorkDir=/a StdOut=/b Switches=2@00:05:00 SegmentSize=3 TresPerNode=x\n")
        + RECORD.format(job=3)
    )  # type: ignore[method-assign]
    held, (table, runs) = Held(scontrol), columns(3, 4, 5)
    held.read(table, runs)
    held.put_spread(table)
    assert {name: table[name][[2, 3, 4]].tolist() for name in ("switches", "segment_nodes")} == {
        "switches": [0, 2, 0], "segment_nodes": [0, 3, 0],
    }  # fmt: skip


def site(parameters: str) -> Site:
    return Site("lab", "24.11.5", Rights.OPERATOR, "slurmsched", {"ScronParameters": parameters})


def test_cron_jobs__are_looked_for_where_there_is_scrontab():
    """Only waiting jobs that may start later than submitted can be scrontab's; each is asked for once."""
    scontrol = Scontrol(extra="JobId=7 JobName=x CronJob=Yes\nJobId=8 JobName=x\n")
    held = Held(scontrol)
    table, _ = columns()
    table["eligible_s"] = np.where(np.isin(table["job_id"], (7, 8)), 50.0, 1.0)
    assert np.flatnonzero(held.cron_jobs(table, site("enable"))).tolist() == [6]
    assert np.flatnonzero(held.cron_jobs(table, site("enable"))).tolist() == [6]
    assert scontrol.asked == ["show job 7\nshow job 8\n"]


def test_cron_jobs__cost_nothing_elsewhere():
    """A site without scrontab is not asked."""
    scontrol = Scontrol()
    assert not Held(scontrol).cron_jobs(columns()[0], site("(null)")).any()
    assert scontrol.asked == []
