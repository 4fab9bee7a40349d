"""Shards in place of one GPU: given where no whole GPU is free, kept, given back, and refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurmsched.config import LeverConfig, PaceConfig, ScopeConfig
from slurmsched.model import Outcome, Override, Plan, Rights, SetShardNode, SetShards, Site, Snapshot
from slurmsched.model.columns import Labels
from slurmsched.observe.explain.explanation import size_outlook
from slurmsched.planning import shard_requests
from slurmsched.planning.admin_comments import admin_comments
from slurmsched.planning.gate import ASKS
from slurmsched.planning.job_overrides import SHARD_FIELDS
from slurmsched.planning.levers import undo_plan
from slurmsched.planning.planner import Planner
from slurmsched.planning.proposals import Proposal
from slurmsched.planning.shard_requests import ShardLever, with_own_gpus
from slurmsched.policies.fifo import Fifo
from slurmsched.slurm.writer import command
from slurmsched.testing import snapshot

NOW = 1_000.0
QUARTER, HALF = "slurmsched: share=yes gpu_part=0.25", "slurmsched: share=yes gpu_part=0.5"
TRACKED = {"AccountingStorageTRES": "cpu,mem,gres/gpu,gres/shard"}
SITE = Site(rights=Rights.OPERATOR, settings=TRACKED)
OURS = {"gpus": 0, "shards": 2, "gpu_request": "shard:2", "gpus_by": ""}  # what the queue shows of a job with ours
LISTED = {**OURS, "nodes_asked": "n1"}


FIRST = ("shard:2", "gpu:1")  # values until Slurm took a write
BUSY = ("2/4,0/4", "3/4,0/4")


def queue(*rows: dict[str, Any], shards: tuple[str, ...] = BUSY, used: int = 2, **others: Any) -> Snapshot:
    """Jobs of one GPU on nodes of two GPUs with four shards each. shards: of each node. used: GPUs of each node."""
    jobs = [{"job_id": number, "submit_s": 900.0 + number, "gpus": 1, "nodes": 1, "gpu_request": "gpu:1",
             "gpus_by": "node", "comment": HALF, **row} for number, row in enumerate(rows, 1)]  # fmt: skip
    made = snapshot(jobs, f"{len(shards)}x2", now_s=NOW, **{"site": SITE} | others)
    count = len(shards)
    return replace(
        made,
        nodes=made.nodes.with_columns(shards=Labels.of(shards), gpus_used=np.full(count, used, np.int32)),
    )


def plan(given: Snapshot, *, on: bool = True, always: bool = False, **settings: Any) -> Plan:
    lever = LeverConfig(share=on, share_always=always, admin_comment=False)
    return Planner(Fifo(), scope=ScopeConfig(partitions=("gpu",)), lever=lever, **settings).plan(given)


def asks(made: Plan | Proposal) -> list[tuple[int, str]]:
    """What is written, in order: job, and its new node list or request."""
    return [(step.job_id, step.new) for step in made.actions if isinstance(step, SetShardNode | SetShards)]


def record(job_id: int = 1, node: str = "n1", sent: str = "shard:2", **others: Any) -> tuple[Override, ...]:
    """What is on record of a job that asks for shards by us, "" = on no node of ours."""
    base = {"job_id": job_id, "submit_s": 900.0 + job_id, "since_s": NOW, "note": "why", **others}
    return (
        Override(field="shard_node", base="", sent=node, values=(node,) if node else (), **base),
        Override(field="shards", base="gpu:1", sent=sent, values=(sent,), **base),
    )


def test_shards__nothing_is_written_by_default() -> None:
    """lever.share is off, and an Operator's right is needed."""
    assert asks(plan(queue({}), on=False)) == []
    assert asks(plan(queue({}, site=Site(settings=TRACKED)))) == []


def test_shards__a_job_joins_the_fullest_shared_gpu_that_has_its_part() -> None:
    """n2 has one shard of four free on a shared GPU, n1 two. A quarter goes to n2, a half to n1, and the next half
    nowhere. The node is written before the request."""
    made = plan(queue({"comment": QUARTER}, {}, {}))
    assert asks(made) == [(1, "n2"), (1, "shard:1"), (2, "n1"), (2, "shard:2")]
    assert [command(action) for action in made.actions][:2] == [
        "update JobId=1 NodeList=n2",
        "update JobId=1 Gres=shard:1",
    ]
    why = "no whole GPU is free for it, and a shared GPU of n1 has its part: 2 of 4 shards"
    (node, part) = made.overrides[2:]
    unanswered = replace(record(2, note=why)[0], values=("n1", "")), replace(record(2, note=why)[1], values=FIRST)
    assert (node, part) == unanswered


def test_shards__whole_gpus_come_first() -> None:
    """One GPU of n1 and of n2 is free: jobs 1 and 2 get these whole. Job 3 finds none and gets its part. A
    job of two GPUs that cannot start takes nothing from the job behind it."""
    assert asks(plan(queue({}, {}, used=1))) == []
    assert asks(plan(queue({}, {}, {}, used=1))) == [(3, "n1"), (3, "shard:2")]
    whole = {"comment": "", "gpus": 2, "gpu_request": "gpu:2"}
    assert asks(plan(queue(whole, {"comment": QUARTER}, shards=("", "3/4,0/4"), used=2))) == [(2, "n2"), (2, "shard:1")]


def test_shards__always_also_where_a_whole_gpu_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """With share_always job 1 joins the shared GPU, though whole ones are free. No shared GPU has room for jobs 2 and
    3: they ask for shards anywhere, also one alone. They keep these, but not without share_always. A job that may have
    a node without shards keeps its request. Jobs that may not share, however many are before it, do not matter."""
    given = queue({}, {}, {}, used=1)
    made = plan(given, always=True)
    assert asks(made) == [(1, "n1"), (1, "shard:2"), (2, "shard:2"), (3, "shard:2")]
    why = [one.note for one in made.overrides if one.field == "shards"]
    assert why == [
        "a shared GPU of n1 has its part: 2 of 4 shards",
        *(f"job {n} can share a GPU with it" for n in (3, 2)),
    ]
    none = ("0/4,0/4", "0/4,0/4")
    made = plan(queue({}, shards=none, used=0), always=True)
    assert asks(made) == [(1, "shard:2")] and made.overrides[-1].note == "later jobs can share a GPU with it"
    ours = queue(OURS, shards=none, used=0, overrides=record(node=""))
    assert (asks(plan(ours, always=True)), asks(plan(ours))) == ([], [(1, "gpu:1")])
    assert asks(plan(queue({}, shards=("0/4,0/4", ""), used=0), always=True)) == []
    lost = plan(queue(LISTED, used=1, shards=("3/4,0/4", ""), overrides=record()), always=True)
    assert asks(lost) == [(1, ""), (1, "gpu:1")]
    assert {action.reason for action in lost.actions} == {"it may have no part of a GPU there any more"}
    monkeypatch.setattr(shard_requests, "MOST_JOBS", 1)
    long = queue({"comment": ""}, {})
    assert (asks(plan(long, always=True)), asks(plan(long))) == ([(2, "n1"), (2, "shard:2")], [])


def test_shards__never_on_a_gpu_that_is_held_whole_or_not_shown() -> None:
    """No shard of a GPU in use says that it is free, or held whole: only one with shards in use is joined. A node with
    GPUs of several types is left out."""
    for shards in ("0/4,0/4", "4/4,4/4", "3/4,4/4", ""):
        assert asks(plan(queue({}, shards=(shards,)))) == []
    given = queue({}, shards=("2/4,0/4",))
    types = given.nodes.with_columns(gpu_types=Labels.of(["gpu:a100:1,gpu:h100:1"]))
    assert asks(plan(replace(given, nodes=types))) == []


def test_shards__two_waiting_jobs_share_the_next_gpu() -> None:
    """Where every node has shards and nothing is shared yet, two halves ask for shards anywhere; a third waits for its
    own GPU, as does one alone. A node without shards would be lost to them."""
    none = ("0/4,0/4", "0/4,0/4")
    assert asks(plan(queue({}, {}, {}, shards=none))) == [(1, "shard:2"), (2, "shard:2")]
    assert asks(plan(queue({}, shards=none))) == []
    assert asks(plan(queue({}, {}, shards=("0/4,0/4", "")))) == []
    assert asks(plan(queue({}, {}, shards=("0/4,0/4", "0/8,0/8")))) == []
    # The second one began elsewhere: the first keeps its shards. With a whole GPU free it does not.
    ours = record(node="")
    assert asks(plan(queue(OURS, shards=none, overrides=ours))) == []
    assert asks(plan(queue(OURS, shards=("2/4,0/4", "0/4,0/4"), overrides=ours))) == []
    assert asks(plan(queue(OURS, shards=none, used=1, overrides=ours))) == [(1, "gpu:1")]


def test_shards__of_the_part_that_was_measured() -> None:
    """Without the hint gpu_part a job with share=yes gets what jobs like it needed; the hint comes first. A job for
    which that is not known keeps its request, and is told why. One that needs more by now gets its own back first."""
    measured = {"comment": "slurmsched: share=yes", "measured_part": 0.3, "measured_part_why": "computes 30%"}
    made = plan(queue(measured))
    assert asks(made) == [(1, "n1"), (1, "shard:2")]
    assert made.overrides[0].note.endswith("2 of 4 shards; its part is measured: computes 30%")
    assert asks(plan(queue({**measured, "comment": QUARTER}))) == [(1, "n2"), (1, "shard:1")]
    unknown = {**measured, "measured_part": np.nan, "measured_part_why": "measured for 0.1 of 1.0 h"}
    given = queue(unknown)
    assert size_outlook(given, plan(given), 0) == (
        "it keeps what it asks for: it has no gpu_part hint; measured for 0.1 of 1.0 h"
    )
    none = {**measured, "comment": "", "measured_part_why": ""}
    assert (asks(plan(queue(none))), plan(queue(none)).refused) == ([], ())
    ours = record()
    assert asks(plan(queue({**LISTED, **measured}, overrides=ours))) == []
    more = {**LISTED, **measured, "measured_part": 0.6}
    assert asks(plan(queue(more, shards=("1/4,0/4", "4/4,0/4"), overrides=ours))) == [(1, ""), (1, "gpu:1")]


def test_shards__beside_whom_the_least_speed_is_lost(tmp_path: Path) -> None:
    """Of two equally full GPUs the job joins the one whose job it slows less, as the daemon measured. Beside a job with
    which both would lose more than it makes it does not go, but to a GPU with more room. Without measured pairs the
    first one is taken."""
    table = tmp_path / "profiles.csv"
    kept = {("new", "bad"): 0.3, ("bad", "new"): 0.4, ("new", "good"): 0.9, ("good", "new"): 0.9}
    rows = [f"{kind},,1,a100,100," for kind in ("new", "bad", "good")]
    rows += [f"{kind},,1,a100,{100 * share},{other}" for (kind, other), share in kept.items()]
    table.write_text("\n".join(["model,batch,gpus,gpu_type,steps_per_s,beside", *rows]) + "\n")

    def joined(shards: tuple[str, ...], profiles: str, *models: str) -> list[tuple[int, str]]:
        runs = [{**OURS, "state": "RUNNING", "comment": f"slurmsched: model={model}", "shared_gpu": f"n{node} 0"}
                for node, model in enumerate(models, 1)]  # fmt: skip
        new = {"comment": "slurmsched: model=new share=yes gpu_part=0.25"}
        return asks(plan(queue(*runs, new, shards=shards), profiles=profiles))[:1]

    equal = ("2/4,0/4", "2/4,0/4")
    assert joined(equal, str(table), "bad", "good") == [(3, "n2")]
    assert joined(equal, "", "bad", "good") == [(3, "n1")]
    assert joined(("3/4,0/4", "2/4,0/4"), str(table), "bad", "good") == [(3, "n2")]
    assert joined(("3/4,0/4", "2/4,0/4"), str(table), "other", "good") == [(3, "n1")]
    assert joined(equal[:1], str(table), "bad") == []


MPS_BUSY = ("mps:50/100,0/100", "mps:75/100,0/100")
WITH_MPS = Site(rights=Rights.OPERATOR, settings={"AccountingStorageTRES": "gres/mps"})


def test_shards__or_mps_where_a_node_has_these() -> None:
    """As many of the 100 of a GPU as the hint says. They are kept, and given back by undo. Accounting must count
    gres/mps, and a node whose kind it does not count is not taken."""
    rows: tuple[dict[str, Any], ...] = ({"comment": QUARTER}, {})
    made = plan(queue(*rows, shards=MPS_BUSY, site=WITH_MPS))
    assert asks(made) == [(1, "n2"), (1, "mps:25"), (2, "n1"), (2, "mps:50")]
    assert command(made.actions[3]) == "update JobId=2 Gres=mps:50"
    ours = record(sent="mps:50")
    assert "a shared GPU of n1 has its part: 50 of 100 MPS" in made.overrides[2].note
    listed = {"gpus": 0, "shards": 50, "gpu_request": "mps:50", "gpus_by": "", "nodes_asked": "n1"}
    given = queue(listed, shards=MPS_BUSY, site=WITH_MPS, overrides=ours)
    assert (asks(plan(given)), asks(undo_plan(given))) == ([], [(1, ""), (1, "gpu:1")])
    refused = plan(queue(*rows, shards=MPS_BUSY)).refused
    assert {each.reason[:37] for each in refused} == {"AccountingStorageTRES lacks gres/mps,"}
    assert asks(plan(queue(*rows, shards=("2/4,0/4", MPS_BUSY[1])))) == [(1, "n1"), (1, "shard:1")]


def test_shards__two_waiting_jobs_share_a_gpu_by_mps_on_a_node_without_any() -> None:
    """Slurm gives MPS of one GPU of a node at a time: with some in use, the next free GPU would help nobody. Nodes with
    shards and nodes with MPS are not one choice."""
    both = Site(rights=Rights.OPERATOR, settings={"AccountingStorageTRES": "gres/mps,gres/shard"})
    none = "mps:0/100,0/100"
    assert asks(plan(queue({}, {}, shards=(none,), site=WITH_MPS))) == [(1, "mps:50"), (2, "mps:50")]
    assert asks(plan(queue({}, {}, shards=("mps:75/100,0/100",), site=WITH_MPS))) == []
    assert asks(plan(queue({}, {}, shards=(none, "0/100,0/100"), site=both))) == []


@pytest.mark.parametrize(
    "row",
    [
        {"comment": "slurmsched: share=yes"},  # it says no part
        {"comment": "slurmsched: gpu_part=0.5"},  # its user does not let it share
        {"comment": "slurmsched: share=no gpu_part=0.5"},
        {"comment": "slurmsched: share=yes gpu_part=0.6"},  # three shards
        {"gpus": 2, "gpu_request": "gpu:2"},
        {"nodes": 2, "gpus": 2, "gpu_request": "gpu:2"},
        {"gpus": 0, "shards": 2, "gpu_request": "shard:2"},  # its user asks for shards
        {"array_job_id": 1, "array_tasks": 4},
        {"het_job_id": 1},
        {"exclusive": True},
        {"state": "RUNNING"},
        {"priority": 0},
        {"reason": "QOSMaxGRESPerUser"},
        {"cpus": 10_000},
        {"nodes_asked": "n2"},
        {"gpu_request": "gpu:h100:1"},
        {"features_asked": "a*1"},  # which nodes it may have is not known
    ],
)  # fmt: skip
def test_shards__not_for_other_jobs(row: dict[str, Any]) -> None:
    """Only a waiting job of one whole GPU with both hints, which may be on the node and has its CPUs there."""
    assert asks(plan(queue(row))) == []
    if "features_asked" in row:
        assert asks(plan(queue(row, row, shards=("0/4,0/4",)))) == []


@pytest.mark.parametrize(("by", "words"), [("job", "--gpus;"), ("task", "--gpus-per-task;"), ("", "an unknown option")])
def test_shards__other_options_are_refused(by: str, words: str) -> None:
    """Slurm would take shards of a job that asks by --gpus, and then never start it."""
    made = plan(queue({"gpus_by": by}))
    assert asks(made) == []
    (refused,) = (each for each in made.refused if each.rule == "share-form")
    assert words in refused.reason
    assert size_outlook(queue({"gpus_by": by}), made, 0).startswith("it keeps what it asks for: it asks for its GPU by")


def test_shards__accounting_must_count_them() -> None:
    """Without gres/shard in AccountingStorageTRES a job with shards would count as one without GPUs."""
    untracked = Site(rights=Rights.OPERATOR, settings={"AccountingStorageTRES": "gres/gpu"})
    made = plan(queue({}, site=untracked))
    assert asks(made) == []
    assert [each.reason for each in made.refused if each.rule == "share-accounting"] == [
        "AccountingStorageTRES lacks gres/shard, so limits and fair share would not see its part"
    ]
    assert asks(plan(queue({**OURS, "nodes_asked": "n1"}, site=untracked, overrides=record()))) == [
        (1, ""),
        (1, "gpu:1"),
    ]


LISTED = {**OURS, "nodes_asked": "n1"}


@pytest.mark.parametrize(
    ("row", "world", "abandoned"),
    [
        ({}, {"used": 1}, False),  # a whole GPU is free
        ({}, {"shards": ("3/4,0/4", "2/4,0/4")}, False),  # somebody else took its part
        ({"comment": ""}, {}, False),  # its user thought better of it
        ({"reason": "AssocGrpGRES"}, {}, True),
        ({}, {"since_s": NOW - 10_000}, True),  # it did not start in time
    ],
)
def test_shards__given_back(row: dict[str, Any], world: dict[str, Any], abandoned: bool) -> None:
    """The list goes first, then the shards; a job that is left alone then gets none until it is submitted again."""
    ours = record(since_s=world.pop("since_s", NOW))
    made = plan(queue({**LISTED, **row}, overrides=ours, **world))
    assert asks(made) == [(1, ""), (1, "gpu:1")]
    assert [one.abandoned for one in made.overrides] == [abandoned] * 2
    again = queue({**row, "comment": HALF, "reason": ""}, overrides=made.overrides)
    assert (asks(plan(again)) == []) == abandoned


def test_shards__kept_taken_back_and_left_alone() -> None:
    """A job keeps its part while it is free, as it does when another one comes. Undo, the lever off, and a requeue with
    no room give its own back. A running job is not written to, and a request of somebody else's stays."""
    ours = record()
    assert asks(plan(queue(LISTED, {"comment": QUARTER}, overrides=ours))) == [(2, "n2"), (2, "shard:1")]
    given = queue(LISTED, overrides=ours)
    back = [(1, ""), (1, "gpu:1")]
    assert asks(plan(given, on=False)) == asks(undo_plan(given)) == back
    assert asks(undo_plan(queue({**LISTED, "state": "RUNNING"}, overrides=ours))) == []
    assert asks(plan(queue({**LISTED, "submit_s": 990.0}, shards=("", ""), overrides=ours))) == back
    assert asks(plan(queue({**LISTED, "submit_s": 990.0}, overrides=ours))) == []
    foreign = {**LISTED, "shards": 1, "gpu_request": "shard:1"}
    made = plan(queue(foreign, overrides=ours))
    assert asks(made) == [(1, "")] and all(one.abandoned for one in made.overrides)
    assert "somebody changed it" in size_outlook(queue(foreign, overrides=made.overrides), None, 0)
    typed = (ours[0], replace(ours[1], base="gpu:a100:1"))
    assert asks(undo_plan(queue(LISTED, overrides=typed))) == [(1, ""), (1, "gpu:a100:1")]


def test_shards__policies_see_the_users_own_request() -> None:
    """One GPU by node on any node; running jobs and jobs without ours are as they are."""
    jobs = with_own_gpus(queue(LISTED, {**OURS, "state": "RUNNING"}, OURS, overrides=(*record(1), *record(2)))).jobs
    columns = (jobs.gpus, jobs.shards, jobs.gpu_request, jobs.gpus_by, jobs.nodes_asked)
    assert list(zip(*map(list, columns), strict=True)) == [
        (1, 0, "gpu:1", "node", ""),
        (0, 2, "shard:2", "", ""),
        (0, 2, "shard:2", "", ""),
    ]


def test_shards__explain_says_what_and_why() -> None:
    """Node, shards, the reason and its own request."""
    said = size_outlook(queue(LISTED, overrides=record()), None, 0)
    assert said == "a part of a GPU, shard:2 on n1: why; its own request is gpu:1"
    said = size_outlook(queue(OURS, overrides=record(node="")), None, 0)
    assert said == "a part of a GPU, shard:2: why; its own request is gpu:1"


def test_shards__a_job_whose_part_is_free_goes_first() -> None:
    """Behind a job that waits for a whole GPU Slurm would not start it. The order is the policy's own once the part is
    gone, the lever is off, or a whole GPU is free."""

    def order(given: Snapshot, **settings: Any) -> list[int]:
        made = plan(given, **settings).ranking
        return [] if made is None else given.jobs.job_id[made.order].tolist()

    rows: list[dict[str, Any]] = [
        {"comment": ""},
        {**LISTED},
        {**OURS, "comment": QUARTER, "shards": 1, "gpu_request": "shard:1"},
    ]
    ours = (*record(2), *record(3, node="", sent="shard:1"))
    assert order(queue(*rows, overrides=ours)) == [2, 3, 1]
    assert order(queue(*rows, overrides=ours), on=False) == [1, 2, 3]
    assert order(queue(*rows, overrides=ours, shards=("3/4,0/4", "4/4,0/4"))) == [3, 1, 2]
    assert order(queue(*rows, overrides=ours, shards=("0/4,0/4", "4/4,0/4"))) == [1, 2, 3]
    assert plan(queue(*rows, overrides=ours)).ranking.why["decided_by"].tolist() == ["shared GPU", "", "policy"]


@pytest.mark.parametrize(("ago_s", "late"), [(29.0, False), (30.0, True)])
def test_shards__a_write_without_an_answer_may_arrive_late(ago_s: float, late: bool) -> None:
    """Its process was killed, and slurmctld had the writes in its queue: the job's own are on record until that is
    over, and undo writes them. Then it gets its part again. What has arrived by then goes back."""
    node, part = record(since_s=NOW - ago_s)
    ours = (replace(node, values=("n1", "")), replace(part, values=FIRST))
    given = queue({}, overrides=ours)
    parts, own = [(1, "n1"), (1, "shard:2")], [(1, ""), (1, "gpu:1")]
    assert (asks(plan(given)), asks(undo_plan(given))) == ((parts, []) if late else ([], own))
    assert [one.open for one in undo_plan(given).overrides] == [False, False]
    assert asks(plan(queue({**LISTED, "comment": ""}, overrides=ours))) == own
    half = plan(queue({"nodes_asked": "n1"}, overrides=ours))
    assert asks(half) == [(1, "")] * late and not any(one.abandoned for one in half.overrides)


def test_shards__a_job_gets_all_its_writes_or_none() -> None:
    """Two writes a job: of three in a cycle the second job needs one more, and waits."""
    made = plan(queue({"comment": QUARTER}, {}), pace=PaceConfig(writes_per_cycle=3))
    assert (asks(made), made.deferred) == ([(1, "n2"), (1, "shard:1")], 1)


def test_shards__what_slurm_refuses_is_left_alone() -> None:
    """A job whose node list is refused by what it asks for keeps its own request, and is not tried again. One whose
    shards are refused after the list gets its list back; the AdminComment of another one says both."""
    made = plan(queue({}))
    listed, part = made.actions
    barred = Outcome(listed, "refused", f"{ASKS} other GRES beside GPUs")
    kept = ShardLever.settled(made.overrides, (), [barred], 2)
    assert [(one.field, one.open, one.abandoned) for one in kept] == [(field, False, True) for field in SHARD_FIELDS]
    answers = [Outcome(listed, "written"), Outcome(part, "refused", "x")]
    left = ShardLever.settled(made.overrides, (), answers, 2)
    assert [one.values for one in left] == [("n1",), ("shard:2",)]
    assert ShardLever.settled(made.overrides, (), [Outcome(listed, "unknown")], 2) == ()
    again = plan(queue({"nodes_asked": "n1"}, overrides=left))
    assert asks(again) == [(1, "")] and all(one.abandoned for one in again.overrides)
    told = admin_comments(queue(LISTED, overrides=record()))
    assert told == {0: "slurmsched: node list n1; part of a GPU shard:2, asked gpu:1"}
