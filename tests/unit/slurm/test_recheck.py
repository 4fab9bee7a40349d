"""The last look before writing: what it reads again, and how."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmsched.errors import SlurmError, SlurmUnreachableError
from slurmsched.model import (
    Jobs,
    JobState,
    Operation,
    Purpose,
    SetCpus,
    SetGpuRequest,
    SetMemory,
    SetNice,
    SetNodeList,
    SetShards,
    SetSiteFactor,
    SetSize,
    ShrinkJob,
    Victim,
)
from slurmsched.planning.gate import CurrentJob, GateContext, GateTime, refusal
from slurmsched.slurm import recheck
from slurmsched.slurm.recheck import Recheck
from slurmsched.testing import snapshot
from tests.recorded.playback import jobs_of


class Answers:
    """Commands that print what they are given; the calls are kept."""

    def __init__(self, **texts: str | Exception) -> None:
        self.texts, self.calls = texts, []

    def run(self, program: str, *arguments: str) -> str:
        self.calls.append((program, *arguments))
        answer = self.texts[program]
        if isinstance(answer, Exception):
            raise answer
        return answer


def nice(job_id: int = 7, old: int = 5, new: int = -10, base: int = 0) -> SetNice:
    return SetNice(job_id, 100.0, "", old, new, base)


def test_recheck__reads_only_the_jobs_of_the_actions():
    """One squeue for them all, no sprio for nice; tasks of the same array that were not asked for are left out."""
    slurm = Answers(
        squeue="7|100|5|PENDING|night|n[1-2]|gres:gpu:i1:1,gres:gpu:i0:1|300|\n7|100|5|PENDING|night|n[1-2]|gres:gpu:i1:1,gres:gpu:i0:1|300|\n8|90|-3|RUNNING|(null)||N/A|N/A|\n"
    )
    assert Recheck(slurm)([nice(7), nice(9)]) == {
        7: CurrentJob(
            100.0, JobState.PENDING, 5, None, "night", nodes="n[1-2]", gpus="gpu:i0:1,gpu:i1:1", eligible_s=300.0
        )
    }
    assert [call[0] for call in slurm.calls] == ["squeue"]
    assert "7,9" in slurm.calls[0]


def test_recheck__asks_sprio_for_site_factors():
    """squeue does not show them. A job in several partitions has several rows."""
    slurm = Answers(squeue="7|100|5|PENDING|(null)||gres/gpu:2|100|\n", sprio="7|-12\n7|-12\n8|3\n")
    found = Recheck(slurm)([SetSiteFactor(7, 100.0, "", -12, 0, 0)])
    assert found == {7: CurrentJob(100.0, JobState.PENDING, 5, -12, gpus="gpu:2", eligible_s=100.0)}


def test_recheck__reads_the_comment_of_a_job_that_is_to_lose_nodes():
    """Behind a mark: a comment that looks like the row of another job is none."""

    class Marked(Answers):
        def run(self, program: str, *arguments: str) -> str:
            if "Comment" not in arguments[-1]:
                return super().run(program, *arguments)
            mark = arguments[-1].rpartition(":0")[2]
            return f"7|a\n8|slurmsched: shrink=yes{mark}\n8|{mark}\n"

    slurm = Marked(squeue="".join(f"{job}|100|5|RUNNING|(null)||gres/gpu:2|100|4|0|\n" for job in (7, 8)))
    found = Recheck(slurm)([ShrinkJob(job, 100.0, "", f"shrink-{job}", 2, 4, 4, 0) for job in (7, 8)])
    assert [found[job].comment for job in (7, 8)] == ["a\n8|slurmsched: shrink=yes", ""]
    assert found[7].fields == {"NumNodes": "4", "RestartCnt": "0"}


ASKED = (
    "JobId=7 JobName=x UserId=a(1) JobState=PENDING SubmitTime=100 NumNodes={nodes} NumTasks=1 CPUs/Task=1 "
    "ReqTRES=cpu=1,node={least},billing=1 "
    "Socks/Node=* MinCPUsNode=1 OverSubscribe=OK WorkDir=/a StdOut=/dev/null {asked}TresPerNode=gres/gpu:2\n"
)


def record(nodes: str, asked: str) -> str:
    return ASKED.format(nodes=nodes, asked=asked, least=nodes.partition("-")[0])


class Records(Answers):
    """Also a scontrol that is told which jobs to show, and a squeue that knows their names."""

    def run(self, program: str, *arguments: str) -> str:
        if program == "squeue" and "Name:0" in arguments[-1]:
            mark = arguments[-1].rpartition(":0")[2]
            ids = next(words for words in arguments if words[0].isdigit()).split(",")
            return "".join(f"{job}|x{mark}\n" for job in ids)
        return super().run(program, *arguments)

    def start(self, program: str, *arguments: str, stdin: str) -> Records:
        self.calls.append((program, *arguments, str(jobs_of(stdin))))
        return self

    def finish(self) -> tuple[int, str, str]:
        return 0, str(self.texts["scontrol"]), ""


@pytest.mark.parametrize(
    ("text", "bars"),
    [(record(nodes="1-1", asked=""), ()),
     (record(nodes="1-1", asked="Switches=1@00:05:00 "), ("switches",)),
     ("", ("what could not be read",))],
)  # fmt: skip
def test_recheck__what_jobs_ask_for_that_get_a_list_or_request(text, bars):
    """One process for them all, and only these are asked for: not the whole queue."""
    slurm = Records(squeue="7|100|5|PENDING|(null)||gres/gpu:2|100|\n8|90|0|PENDING|(null)||N/A|N/A|\n", scontrol=text)
    key = (7, 100.0, "", "pin-7")
    found = Recheck(slurm)(
        [nice(8), SetNodeList(*key, "n2", "", "", True), SetGpuRequest(*key, "gpu:i0:2", "gpu:2", "gpu:2")]
    )
    assert (found[7].bars, found[8].bars) == (bars, ())
    assert slurm.calls[1:] == [("scontrol", "-o", "-d", "[7]")]


@pytest.mark.parametrize(
    ("asked", "other", "bars"),
    [
        ("TresPerNode=gres/gpu:2,gres/nic:1", "", ("other GRES beside GPUs",)),
        ("TresPerNode=gres/gpu:2,gres/mps:50", "", ("other GRES beside GPUs",)),
        ("TresPerTask=gres/nic:1 TresPerNode=gres/gpu:2", "", ("other GRES beside GPUs",)),
        ("TresPerTask=cpu=2 TresPerNode=gres/gpu:2", "", ()),
        ("TresPerJob=gres/gpu:2", "", ("GPUs in another way than by node",)),
        ("GresEnforceBind=Yes TresPerNode=gres/gpu:2", "", ("GPUs near its cores",)),
        (
            "TresPerNode=gres/gpu:2,gres/nic:1",
            "JobId=8 JobName=y Comment=a\n",
            ("something unknown: its record is ambiguous or forged",),
        ),
    ],
)
def test_recheck__a_request_of_ours_replaces_all_that_a_job_asks_by_node(asked, other, bars):
    """Other GRES would be lost for good; a list alone keeps them. A record that a user's comment may have made counts
    for nothing."""
    text = record(nodes="1-1", asked="").replace("TresPerNode=gres/gpu:2", asked)
    text += other + record(nodes="1-1", asked="") if other else ""
    key = (7, 100.0, "", "size-7")
    size = SetSize(*key, "gpu:4", "gpu:2", "gpu:2")
    squeue = "7|100|5|PENDING|(null)||gres/gpu:2|100|1|1|1|cpu=1,node=1|N/A|N/A|\n"
    seen = Recheck(Records(squeue=squeue, scontrol=text))([size])
    assert seen[7].bars == bars
    refused = refusal(size, GateContext(seen=seen), GateTime.SEND)
    assert (refused.rule if refused else "") == ("asks" if bars else "")
    if not other:
        squeue = "7|100|5|PENDING|(null)||gres/gpu:2|100|\n"
        assert Recheck(Records(squeue=squeue, scontrol=text))([SetNodeList(*key, "n2", "", "", True)])[7].bars == ()


@pytest.mark.parametrize(
    ("old", "new", "bars"),
    [
        ("", "", ()),
        ("MinMemoryNode=1G", "MinMemoryCPU=1000M", ("memory by CPU",)),  # --mem-per-cpu, or DefMemPerCPU of a partition
        ("NumTasks=1", "NumTasks=4", ("several tasks",)),
        ("MinCPUsNode=8", "MinCPUsNode=1", ("CPUs in another way than by --cpus-per-task alone",)),
        ("TresPerNode", "CpusPerTres=gres/gpu:4 TresPerNode", ("CPUs by GPU",)),
        ("OverSubscribe=OK", "OverSubscribe=NO", ("a node of its own",)),  # it gets all CPUs anyway
    ],
)
def test_recheck__what_keeps_a_job_from_fewer_cpus(old: str, new: str, bars: tuple[str, ...]) -> None:
    """Whatever would lose memory with them, or could not be given back as it was. The way back is always open."""
    text = record(nodes="1-1", asked="").replace("CPUs/Task=1", "CPUs/Task=8 NumCPUs=8")
    text = text.replace("MinCPUsNode=1", "MinCPUsNode=8 MinMemoryNode=1G MinTmpDiskNode=0 Features=(null)")
    squeue = "7|100|5|PENDING|(null)||gres/gpu:2|100|8|8|8|\n"
    for fewer, found in ((SetCpus(7, 100.0, "", "cpus-7", 4, 8, 8), bars), (SetCpus(7, 100.0, "", "", 8, 8, 8), ())):
        seen = Recheck(Records(squeue=squeue, scontrol=text.replace(old, new) if old else text))([fewer])
        assert seen[7].fields == dict.fromkeys(("cpus-per-task", "NumCPUs", "mincpus"), "8")
        assert seen[7].bars == found
        refused = refusal(fewer, GateContext(seen=seen), GateTime.SEND)
        assert (refused.rule if refused else "") == ("asks" if found else "")


@pytest.mark.parametrize(
    ("old", "new", "bars"),
    [
        ("", "", ()),
        ("MinMemoryNode", "MinMemoryCPU", ("memory by CPU",)),
        ("TresPerNode", "MemPerTres=gres/gpu:4 TresPerNode", ("memory by GPU",)),
        ("OverSubscribe=OK", "OverSubscribe=NO Exclusive=NODE", ("a node of its own",)),
    ],
)
def test_recheck__what_keeps_a_job_from_less_memory(old: str, new: str, bars: tuple[str, ...]) -> None:
    """Memory that does not go by node could not be given back as it was. squeue shows 8192 MiB as "8G"; another amount
    is somebody else's."""
    text = record(nodes="1-1", asked="").replace("MinCPUsNode=1", "MinCPUsNode=1 MinMemoryNode=8G MinTmpDiskNode=0")
    for shown, rule in (("8G", "asks" if bars else ""), ("8192M", "asks" if bars else ""), ("9G", "value")):
        less = SetMemory(7, 100.0, "", "memory-7", 4096, 8192, 8192)
        squeue = f"7|100|5|PENDING|(null)||gres/gpu:2|100|{shown}|\n"
        seen = Recheck(Records(squeue=squeue, scontrol=text.replace(old, new) if old else text))([less])
        assert seen[7].bars == bars
        refused = refusal(less, GateContext(seen=seen), GateTime.SEND)
        assert (refused.rule if refused else "") == rule


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("", "", ""),
        ("TresPerNode=gres/gpu:2", "TresPerNode=gres/gpu:1,gres/nic:1", "asks"),
        ("TresPerNode=gres/gpu:2", "TresPerJob=gres/gpu:1", "asks"),
        ("TresPerNode=gres/gpu:2", "TresPerTask=gres/gpu:1", "asks"),
        ("TresPerNode", "CpusPerTres=gres/gpu:4 TresPerNode", "asks"),
        ("TresPerNode", "MemPerTres=gres/gpu:4 TresPerNode", "asks"),
    ],
)
def test_recheck__what_keeps_a_job_from_shards(old: str, new: str, rule: str) -> None:
    """A GPU that is asked for in another way than by node, other GRES, and CPUs or memory by GPU."""
    text = record(nodes="1-1", asked="")
    assert not old or old in text
    part = SetShards(7, 100.0, "", "shards-7", "shard:2", "gpu:1", "gpu:1", 4)
    slurm = Records(
        squeue="7|100|5|PENDING|(null)||gres/gpu:1|100|\n", scontrol=text.replace(old, new) if old else text
    )
    seen = replace(Recheck(slurm)([part])[7], comment="slurmsched: share=yes gpu_part=0.5")
    refused = refusal(part, GateContext(seen={7: seen}), GateTime.SEND)
    assert (refused.rule if refused else "") == rule


@pytest.mark.parametrize(
    ("nodes", "asked", "picked", "bars"),
    [
        ("2-2", "", True, ()), ("2-2", "Switches=1@00:05:00 ", True, ("switches",)),
        ("2-2", "Switches=1@00:05:00 ", False, ()), ("3-3", "", True, ("3 nodes",)), ("3-3", "", False, ("3 nodes",)),
        ("2-4", "", False, ("a number of nodes that is not fixed",)),
    ],
)  # fmt: skip
def test_recheck__a_list_names_as_many_nodes_as_the_job_gets(nodes, asked, picked, bars):
    """A shorter one would end the others if the job starts right then; what it asks for beside counts only where the
    nodes were chosen by it."""
    text = record(nodes=nodes, asked=asked)
    found = Recheck(Records(squeue="7|100|5|PENDING|(null)||gres/gpu:2|100|\n", scontrol=text))(
        [SetNodeList(7, 100.0, "", "pin-7", "n[1-2]", "", "", picked)]
    )
    assert found[7].bars == bars


@pytest.mark.parametrize(("jobs", "listing"), [(20, False), (21, True)])
def test_recheck__many_jobs_are_one_listing(jobs, listing):
    """Each by its id is two requests of the few that slurmctld may grant a user at a time."""
    ids = range(1, jobs + 1)
    text = "".join(record("1-1", "").replace("JobId=7", f"JobId={job}") for job in ids)
    rows = "".join(f"{job}|100|5|PENDING|(null)||gres/gpu:2|100|\n" for job in ids)
    slurm = Records(squeue=rows, scontrol=text)
    found = Recheck(slurm)([SetNodeList(job, 100.0, "", f"pin-{job}", "n2", "", "", True) for job in ids])
    assert {seen.bars for seen in found.values()} == {()}
    asked = ("show", "job") if listing else (str([*ids]),)
    assert slurm.calls[1:] == [("scontrol", "-o", "-d", *asked)]


def test_recheck__a_request_alone_does_not_depend_on_the_number_of_nodes():
    """Only a list could shrink it."""
    text = record(nodes="1-4", asked="")
    size = SetSize(7, 100.0, "", "size-7", "gpu:4", "gpu:2", "gpu:2")
    squeue = "7|100|5|PENDING|(null)||gres/gpu:2|100|1|1|1|cpu=1,node=1|N/A|N/A|\n"
    assert Recheck(Records(squeue=squeue, scontrol=text))([size])[7].bars == ()


UNFIXED = "a number of nodes that is not fixed (--nodes={} fixes it)"


@pytest.mark.parametrize(
    ("by", "nodes", "now", "bars"),
    [
        ("job", "1-1", "1|1|1|N/A|gres/gpu:2|N/A", ()),
        ("job", "1", "1|1|1|N/A|gres/gpu:2|N/A", (UNFIXED.format(1),)),  # --gpus=2 without --nodes
        ("job", "1-1", "1|1|1|N/A|gres/gpu:4|N/A", None),  # another number
        ("job", "1-1", "1|1|1|N/A|N/A|N/A", None),
        ("task", "1-1", "2|1|2|N/A|N/A|cpu=1,gres/gpu=1", ()),
        ("task", "1-1", "2|1|1|N/A|N/A|cpu=1,gres/gpu=1", None),  # one task less
        ("task", "1-1", "4|1|2|N/A|N/A|cpu=2,gres/gpu=1", None),  # more CPUs
    ],
)
def test_recheck__a_size_is_written_as_the_job_asks_for_it(by, nodes, now, bars):
    """And only while nothing of what changes with it is another one, as far as Slurm leaves it no choice of nodes."""
    form = {"job": "TresPerJob=gres/gpu:2", "task": "TresPerTask=gres/gpu:1"}[by]
    text = record(nodes=nodes, asked="").replace("TresPerNode=gres/gpu:2", form)
    size = SetSize(7, 100.0, "", "size-7", "gpu:4", "gpu:2", "gpu:2", by, 1, 2 if by == "task" else 1, 2)
    seen = Recheck(Records(squeue=f"7|100|5|PENDING|(null)||N/A|100|{now}|\n", scontrol=text))([size])
    refused = refusal(size, GateContext(seen=seen), GateTime.SEND)
    assert (refused.rule if refused else "") == ("request" if bars is None else "asks" if bars else "")
    assert bars is None or seen[7].bars == bars


@pytest.mark.parametrize(("tres", "rule"), [("node=1", ""), ("node=2", "request"), ("billing=1", ""), ("N/A", "")])
def test_recheck__a_gang_keeps_its_size_while_slurm_shows_the_nodes_of_its_last_run(tres, rule):
    """A requeued gang got its own two nodes back, and slurmctld had been restarted before: NumNodes was 1 for 5 s."""
    size = SetSize(7, 100.0, "", "size-7", "gpu:3", "gpu:4", "gpu:4", "node", 1, 2, 2)
    squeue = f"7|100|5|PENDING|(null)||gres/gpu:4|100|2|1|2|cpu=2,{tres}|N/A|N/A|\n"
    seen = Recheck(Records(squeue=squeue, scontrol=record("1-1", "")))([size])
    refused = refusal(size, GateContext(seen=seen), GateTime.SEND)
    assert (refused.rule if refused else "") == rule


def test_recheck__asks_no_more_where_jobs_get_their_own_back():
    """Nothing that they ask for keeps them from it."""
    slurm = Records(squeue="7|100|5|PENDING|(null)|n2|gres/gpu:i0:2|100|\n")
    key = (7, 100.0, "", "pin-7")
    Recheck(slurm)([SetNodeList(*key, "", "n2", ""), SetGpuRequest(*key, "gpu:2", "gpu:i0:2", "gpu:2")])
    assert [call[0] for call in slurm.calls] == ["squeue"]


def test_recheck__other_gres_are_part_of_what_a_job_asks_for():
    """Its user added some to a request of ours: its own is not written over them, at undo neither."""
    back = SetSize(7, 100.0, "", "size-7", "gpu:2", "gpu:4", "gpu:2")
    for more, rule in (("", ""), (",gres/nic:1", "request")):
        squeue = f"7|100|5|PENDING|(null)||gres/gpu:4{more}|100|1|1|1|cpu=1,node=1|N/A|N/A|\n"
        seen = Recheck(Answers(squeue=squeue))([back])
        refused = refusal(back, GateContext(seen=seen), GateTime.SEND)
        assert (refused.rule if refused else "") == rule


def test_recheck__job_that_is_gone_is_absent():
    """squeue refuses a single id that it does not know."""
    gone = SlurmError("squeue: slurm_load_jobs error: Invalid job id specified")
    assert Recheck(Answers(squeue=gone))([nice(7)]) == {}


@pytest.mark.parametrize("error", [SlurmUnreachableError("away"), SlurmError("another trouble")])
def test_recheck__other_errors_are_raised(error):
    """Only a job that is gone is no error."""
    with pytest.raises(type(error), match=str(error)):
        Recheck(Answers(squeue=error))([nice(7)])


@pytest.mark.parametrize(
    "texts",
    [{"squeue": "7|100|5\n{good}", "sprio": ""},
     {"squeue": "7|100|5|PENDING|(null)||gres/gpu:2|100|\n{good}", "sprio": "7|x\n"},
     {"squeue": "7|100|²|PENDING|(null)||gres/gpu:2|100|\n{good}", "sprio": ""},
     {"squeue": "7|nan|5|PENDING|(null)||gres/gpu:2|100|\n{good}", "sprio": ""}],
)  # fmt: skip
def test_recheck__a_job_whose_row_cannot_be_read_is_absent(texts):
    """Nothing is written on a guess, and nothing of another job is held up by it."""
    good = "8|100|5|PENDING|(null)||gres/gpu:2|100|\n"
    slurm = Answers(squeue=texts["squeue"].format(good=good), sprio=texts["sprio"])
    assert list(Recheck(slurm)([SetSiteFactor(7, 100.0, "", 0, 1, 0), SetSiteFactor(8, 100.0, "", 0, 1, 0)])) == [8]


def test_again__job_victims_and_nodes_as_slurm_shows_them_now(monkeypatch):
    """One squeue and one scontrol. A victim that is gone is gone, a node that is not shown takes no job; all else is as
    before, without jobs that do not matter."""
    operation = Operation("a", Purpose.PREEMPT, 1, 100.0, "alice", "n[1-2]", 60.0, 0.0,
              (Victim(2, 100.0, 0, 8), Victim(3, 100.0, 0, 8)))  # fmt: skip
    rows = [{"job_id": job, "submit_s": 100.0, "gpus": 8} for job in (1, 2, 3, 4, 5)]
    before = snapshot(rows, "3x8", allocations=[{"job_id": 4, "node": "n2", "gpus": 4}])
    now = [{"job_id": 1, "submit_s": 100.0, "gpus": 16, "nodes_asked": "n3"}, {"job_id": 2, "submit_s": 100.0}]
    asked: list[list[int]] = []

    def read_few(_: object, jobs: list[int], *__: object) -> Jobs:
        asked.append(jobs)
        return snapshot(now).jobs

    monkeypatch.setattr(recheck, "read_few", read_few)
    node = (
        "NodeName=n1 State=MIXED Gres=gpu:a100:8 GresUsed=gpu:a100:3 CPUTot=64 CPUAlloc=9 RealMemory=100 AllocMem=7\n"
    )
    slurm = Answers(scontrol=node)
    seen = Recheck(slurm).again(before, operation, (operation,))
    assert (asked, slurm.calls) == ([[1, 2, 3]], [("scontrol", "-o", "-d", "show", "node", "n[1-2]")])
    assert (seen.jobs.job_id.tolist(), seen.jobs.gpus.tolist(), seen.jobs.nodes_asked[0]) == (
        [1, 2, 4],
        [16, 1, 8],
        "n3",
    )
    assert (seen.nodes.gpus_used.tolist(), seen.nodes.closed.tolist()) == ([3, 4, 0], [False, True, False])
    assert (seen.nodes.cpus_used[0], seen.operations) == (9, (operation,))
