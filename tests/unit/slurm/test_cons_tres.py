"""What Slurm picks GPUs by, from what scontrol prints: recorded lines of 24.11.5 and 26.05.5, shortened."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmsched.config import TopologyConfig
from slurmsched.model import Site, Snapshot
from slurmsched.model.gpu_selection import JobGpuRequest
from slurmsched.slurm.cons_tres import NO_TYPES, SelectionReader, SelectionRecords, read_gpu_request
from slurmsched.slurm.job_records import read_record
from slurmsched.testing import snapshot
from slurmsched.topology.gres_nodes import TypedNode
from tests.recorded.playback import Scontrol
from tests.unit.planning.node_lists import node_list_cases

ASKED = (
    "JobId=7 JobName={name} UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=0 Nice=0 Account=root QOS=normal "
    "JobState=PENDING Reason=Priority Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 RunTime=00:00:00 "
    "TimeLimit=01:00:00 TimeMin=N/A SubmitTime=940 EligibleTime=940 Partition=gpu ReqNodeList=(null) "
    "ExcNodeList=(null) NodeList= NumNodes={nodes} NumCPUs=2 NumTasks={tasks} CPUs/Task={cpus} "
    "ReqB:S:C:T=0:0:{cores}:* ReqTRES=cpu=2,mem=1G,{least}billing=2,gres/gpu=2 AllocTRES=(null) Socks/Node={sockets} "
    "NtasksPerN:B:S:C={layout} CoreSpec=* MinCPUsNode=1 MinMemoryNode=1G MinTmpDiskNode=0 Features=(null) "
    "DelayBoot=00:00:00 {shared} Contiguous={contiguous} Licenses=(null) Network=(null) Command=(null) WorkDir=/src "
    "StdErr=/dev/null StdIn=/dev/null StdOut=/dev/null {options}"
)
PLAIN = {"name": "wrap", "nodes": "1-1", "tasks": 1, "cpus": 2, "cores": "*", "sockets": "*", "layout": "0:0:*:*",
         "contiguous": 0, "shared": "OverSubscribe=OK",
         "options": "TresPerNode=gres/gpu:2 TresPerTask=cpu=2"}  # fmt: skip
RUNS = (
    "JobId=8 JobName=wrap UserId=root(0) JobState=RUNNING Reason=None NodeList=n1 BatchHost=n1 NumNodes=1 NumCPUs=5 "
    "JOB_GRES=gpu:a100:2 Nodes=n1 CPU_IDs=0-3,32 Mem=1024 GRES=gpu:a100:2(IDX:0,2) MinCPUsNode=5 Features=(null)"
)


def wait(job_id: int, **columns: object) -> dict[str, object]:
    return node_list_cases.wait(job_id, **{"name": "wrap", **columns})


def record(**values: object) -> str:
    made = {**PLAIN, **values}
    return ASKED.format(**{"least": f"node={str(made['nodes']).partition('-')[0]},", **made})


def wish_of(text: str, name: str = "wrap") -> JobGpuRequest | None:
    """As read when the job has that name."""
    made = read_record(text, name)
    return None if made is None else read_gpu_request(7, made)


def bars(**values: object) -> tuple[str, ...]:
    found = wish_of(record(**values), str(values.get("name", "wrap")))
    assert found is not None
    return found.bars


@pytest.mark.parametrize(
    ("options", "form", "count", "bound"),
    [
        ("TresPerNode=gres/gpu:2 TresPerTask=cpu=2", "gpus-per-node", 2, False),
        ("TresPerJob=gres/gpu:a100:4", "gpus", 4, False),
        ("TresBind=gres/gpu:per_task:1 TresPerTask=gres/gpu=1", "gpus-per-task", 1, False),
        ("TresPerSocket=gres/gpu:1", "gpus-per-socket", 1, False),
        ("GresEnforceBind=Yes TresPerNode=gres/gpu:2", "gpus-per-node", 2, True),
    ],
)
def test_wish__every_form_of_request(options, form, count, bound):
    """As scontrol prints it at the end of a record."""
    found = wish_of(record(options=options), "wrap")
    assert found is not None
    assert (found.form, found.count, found.bound, found.bars) == (form, count, bound, ())
    assert (found.submit_s, found.tasks, found.cpus_per_task, found.sockets) == (940.0, 1, 2, 0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"options": "Switches=1@00:05:00 TresPerNode=gres/gpu:2"}, "switches"),
        ({"options": "SegmentSize=1 TresPerNode=gres/gpu:2"}, "a segment"),
        ({"options": "SpreadJob=Yes TresPerNode=gres/gpu:2"}, "spread nodes"),
        ({"options": "CpusPerTres=gres/gpu:3 TresPerNode=gres/gpu:2"}, "CPUs by GPU"),
        ({"options": "TresPerJob=gres/gpu:2 TresPerNode=gres/gpu:2"}, "GPUs in several ways"),
        ({"cores": "2"}, "a layout of its tasks"),
        ({"layout": "2:0:1:*"}, "a layout of its tasks"),
        ({"contiguous": 1}, "a layout of its tasks"),
        ({"shared": "OverSubscribe=NO"}, "a node of its own"),
        ({"shared": "OverSubscribe=USER"}, "a node of its own"),
        ({"shared": "OverSubscribe=NO Exclusive=NODE"}, "a node of its own"),
    ],
)
def test_wish__tells_what_keeps_a_job_from_being_pinned(values, expected):
    """Switches, segment, exclusive and the like; 26.05 has a field of its own for the latter."""
    assert bars(**values) == (expected,)


@pytest.mark.parametrize(
    ("nodes", "tasks", "expected"),
    [("1-1", 4, 1), ("1", 1, 1), ("1", 4, 0), ("1-4", 4, 0), ("2-2", 2, 2), ("2", 2, 0), ("", 1, 0), ("x", 1, 0)],
)
def test_wish__number_of_nodes(nodes, tasks, expected):
    """Where it may have more than the least, a list that comes a moment too late could shrink it: it is barred."""
    found = wish_of(record(nodes=nodes, tasks=tasks), "wrap")
    assert found is not None
    assert (found.nodes, found.bars) == (expected, () if expected else ("a number of nodes that is not fixed",))


def test_wish__more_nodes_than_the_least():
    """As 26.05.5 shows --nodes=2-3; --nodes=3 shows the same three everywhere."""
    told = [wish_of(record(nodes="3-3", tasks=2, least=f"node={least},"), "wrap") for least in (2, 3)]
    assert [gpu_request and gpu_request.nodes for gpu_request in told] == [0, 3]


@pytest.mark.parametrize(
    ("nodes", "field", "expected"),
    [("3-3", "TRES=cpu=2,node=2", 0), ("3-3", "TRES=cpu=2,node=3", 3), ("3-3", "X=1", 0), ("1-1", "X=1", 1)],
)
def test_wish__more_nodes_than_the_least_where_slurm_names_it_otherwise(nodes, field, expected):
    """20.11 prints TRES=. Where neither is told, only one node cannot be meant to be more."""
    old = record(nodes=nodes).replace(f"ReqTRES=cpu=2,mem=1G,node={nodes[0]},billing=2,gres/gpu=2", field)
    found = wish_of(old, "wrap")
    assert field in old
    assert found is not None
    assert found.nodes == expected


def test_wish__of_a_job_that_was_renamed_meanwhile():
    """Between the look at the queue and the one at the job: not read, and read again by the new name."""
    assert wish_of(record(name="new"), "old") is None
    slurm = Scontrol({7: record(name="new")})
    records = SelectionRecords(slurm, read_gpu_request)
    gpu_requests = [records.read(busy(name=name).jobs, cores=False)[1] for name in ("old", "new", "new")]
    assert [len(each) for each in gpu_requests] == [0, 1, 1]
    assert slurm.asked == ["all", [7], "all"]


GANG = {"nodes": "2-2", "tasks": 8}
BY_TASK = "TresBind=gres/gpu:per_task:1 TresPerTask=gres/gpu=1"


@pytest.mark.parametrize(
    ("values", "even", "whole", "barred"),
    [
        ({}, True, False, ()),
        ({"layout": "4:0:*:*"}, True, False, ()),
        ({"layout": "3:0:*:*"}, True, False, ("a layout of its tasks",)),
        ({"layout": "4:0:1:*"}, True, False, ("a layout of its tasks",)),
        ({"options": BY_TASK}, False, False, ()),
        ({"options": BY_TASK, "layout": "4:0:*:*"}, True, False, ()),
        ({"options": "TresPerJob=gres/gpu:8"}, False, False, ()),
        ({"shared": "OverSubscribe=NO Exclusive=NODE"}, True, True, ()),
        ({"shared": "OverSubscribe=NO"}, True, True, ()),
        ({"shared": "OverSubscribe=USER"}, True, True, ()),
        ({"shared": "OverSubscribe=NO Exclusive=NO"}, True, False, ()),
        ({"shared": "OverSubscribe=NO Exclusive=TOPO"}, True, True, ("a node of its own",)),
    ],
)
def test_wish__of_a_gang(values, even, whole, barred):
    """Whether each node gets as many GPUs, and whether nobody else may be there. Tasks by node are no hindrance."""
    found = wish_of(record(**{**GANG, **values}), "wrap")
    assert found is not None
    assert (found.nodes, found.even, found.whole, found.bars) == (2, even, whole, barred)


def test_wish__a_plain_job_has_no_bars():
    """In 26.05 `OverSubscribe=NO` is what an ordinary job has."""
    assert (bars(), bars(shared="OverSubscribe=NO Exclusive=NO")) == ((), ())


def test_wish__of_srun_and_salloc_which_have_no_files():
    """Their records end with the folder."""
    text = record(options="TresPerNode=gres/gpu:2").replace(" StdOut=/dev/null", "")
    assert "StdOut" not in text
    assert wish_of(text, "wrap") is not None


def test_wish__names_of_users_decide_nothing():
    """What looks like a field in the job's name or the path of its output is none."""
    assert bars(name="x SegmentSize=4 MinCPUsNode=9 Contiguous=1") == ()
    assert wish_of(record(options="").replace("StdOut=/dev/null", "StdOut=/a TresPerNode=gres/gpu:8 StdOut=b"),
                     "wrap") is None  # fmt: skip


@pytest.mark.parametrize("broken", [{"options": ""}, {"tasks": "many"}])
def test_wish__what_cannot_be_read_is_none(broken):
    """No GPUs by any form, or a number that is none."""
    assert wish_of(record(**broken), "wrap") is None


NODE = {"%N %X %Y %Z": "n1 2 32 1\n"}  # what sinfo is asked for


@pytest.fixture
def gres_conf(tmp_path):
    lines = [f"NodeName=n1 Name=gpu File=/dev/nvidia{g} Cores={g // 4 * 32}-{g // 4 * 32 + 31}\n" for g in range(8)]
    path = tmp_path / "gres.conf"
    path.write_text("".join(lines))
    return TopologyConfig(gres_conf=str(path))


SITE = Site("lab", "26.05.5", settings={"SelectTypeParameters": "CR_CORE_MEMORY"})


def test_pickers__add_the_nodes_as_slurm_has_them(gres_conf):
    """Sockets of the node, GPUs of gres.conf; both are read once."""
    slurm = Scontrol({7: record()}, NODE)
    pickers, at = SelectionReader(gres_conf, slurm), snapshot([wait(7)], "1x8", site=SITE)
    for _ in range(2):
        gpu_selection = pickers(at).gpu_selection
    assert gpu_selection is not None
    assert (gpu_selection.kinds[0].sockets, gpu_selection.kinds[0].socket.tolist()) == (2, [0, 0, 0, 0, 1, 1, 1, 1])
    assert [call[-1] for call in slurm.calls] == ["%N %X %Y %Z", "job"]


@pytest.mark.parametrize(("used", "free"), [(5, (28, 31)), (4, ())])
def test_pickers__cores_that_jobs_hold(gres_conf, used, free):
    """By socket; not known where Slurm counts other CPUs on the node than jobs show."""
    found = SelectionReader(gres_conf, Scontrol({7: record(), 8: RUNS}, NODE))(busy(used)).gpu_selection
    assert found is not None
    assert (found.free_cores, [gpu_request.job_id for gpu_request in found.gpu_requests]) == ((free,), [7])


def busy(used: int = 5, **columns: object) -> Snapshot:
    """Job 7 waits, job 8 runs."""
    runs = {"job_id": 8, "state": "RUNNING", "start_s": 1.0, "cpus": 5, "node_list": "n1", "name": "wrap"}
    return snapshot([wait(7, **columns), runs], [{"name": "n1", "gpus": 8, "cpus_used": used}], site=SITE)


def test_pickers__ask_for_jobs_that_are_new_or_look_otherwise(gres_conf):
    """What one read tells is not asked again: the cost goes with what changes, not with the queue."""
    slurm = Scontrol({7: record(), 8: RUNS}, NODE)
    pickers = SelectionReader(gres_conf, slurm)
    pickers(busy())
    asked = len(slurm.calls)
    again = pickers(busy()).gpu_selection
    assert again is not None
    assert (len(slurm.calls), again.free_cores, len(again.gpu_requests)) == (asked, ((28, 31),), 1)
    pickers(busy(gpu_request="gpu:4", gpus=4))
    assert len(slurm.calls) == asked + 1


@pytest.mark.parametrize(
    ("told", "known"), [("gpu:i0:2(S:0),gpu:i1:2(S:1)", True), ("gpu:i1:2,gpu:i0:2", False), ("gpu:a100:4", False)]
)
def test_pickers__know_nodes_by_their_types(tmp_path, told, known):
    """GPUs of several Types are told apart by these, whatever cores are free, if slurmctld has the same ones."""
    path, types = tmp_path / "gres.conf", ("i0", "i0", "i1", "i1")
    lines = [f"NodeName=n1 Name=gpu Type={kind} File=/dev/nvidia{g}\n" for g, kind in enumerate(types)]
    path.write_text("".join(lines))
    at = snapshot([wait(7)], "1x4", site=SITE)
    slurm = Scontrol({7: record()}, {**NODE, "%N %G": f"n1 {told}\n"})
    gpu_selection = SelectionReader(TopologyConfig(gres_conf=str(path)), slurm)(at).gpu_selection
    assert gpu_selection is not None
    assert (gpu_selection.kinds, gpu_selection.free_cores) == (((TypedNode(types),), ((0,),)) if known else ((), ((),)))


@pytest.mark.parametrize(
    ("request_", "asks", "alone"),
    [("gres/gpu:2", "gpu:2", True), ("gres/gpu:i1:1,gres/gpu:i0:1", "gpu:i0:1,gpu:i1:1", True),
     ("gres/gpu:2,gres/nic:1", "gpu:2", False)],
)  # fmt: skip
def test_wish__what_it_asks_for_by_node(request_, asks, alone):
    """By Type, and beside GPUs."""
    found = wish_of(record(options=f"TresPerNode={request_}"), "wrap")
    assert found is not None
    assert (found.asks, found.count, found.alone, found.bars) == (asks, 2, alone, ())


@pytest.mark.parametrize(("retype", "warnings"), [(True, (NO_TYPES,)), (False, ())])
def test_pickers__say_when_no_request_can_be_rewritten(gres_conf, retype, warnings):
    """It is turned on, and no node has Types: nothing would happen, and nobody would know why."""
    slurm = Scontrol({7: record()}, NODE)
    assert SelectionReader(gres_conf, slurm, retype=retype)(snapshot([wait(7)], "1x8", site=SITE)).warnings == warnings


def test_pickers__ask_nothing_while_nobody_could_be_pinned(gres_conf):
    """No job of several GPUs waits."""
    slurm = Scontrol({})
    assert SelectionReader(gres_conf, slurm)(snapshot([wait(7, gpus=1)], "1x8", site=SITE)).gpu_selection is None
    assert slurm.calls == []


@pytest.mark.parametrize(
    ("site", "text"),
    [
        (replace(SITE, version="27.05.1"), "how Slurm 27.05.1 picks GPUs is not known"),
        (replace(SITE, settings={"SelectTypeParameters": "CR_SOCKET"}), "SelectTypeParameters=CR_SOCKET"),
    ],
)
def test_pickers__say_where_the_model_does_not_hold(gres_conf, site, text):
    """Nobody is pinned on a guess."""
    found = SelectionReader(gres_conf, Scontrol({}))(snapshot([wait(7)], "1x8", site=site))
    assert found.gpu_selection is None
    assert text in found.warnings[-1]


def test_pickers__say_when_gres_conf_cannot_be_read(tmp_path):
    """The nodes are unknown then, and the warning names the file."""
    pickers = SelectionReader(TopologyConfig(gres_conf=str(tmp_path / "none")), Scontrol({7: record()}))
    found = pickers(snapshot([wait(7)], "1x8", site=SITE))
    assert found.gpu_selection is not None
    assert found.gpu_selection.node_kind.tolist() == [-1]
    assert "cannot be read" in found.warnings[-1]
