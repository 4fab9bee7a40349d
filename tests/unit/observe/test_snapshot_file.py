"""Snapshot files: the same plan elsewhere, no secrets, clear errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from slurmsched.config import Config
from slurmsched.config_file import parse_config
from slurmsched.errors import InputError
from slurmsched.model import JobState, Labels, Past, Plan, Rights, SetNice, Site, Snapshot
from slurmsched.model.columns import Table, frozen
from slurmsched.model.gpu_selection import GpuSelection, JobGpuRequest, PlacedJob
from slurmsched.model.operations import NodeWait, Operation, Purpose, Reservations, Victim
from slurmsched.model.overrides import Override, OverrideState
from slurmsched.observe.anonymiser import TraceAnonymiser, anonymised_snapshot
from slurmsched.observe.snapshot_file import plan_digest, read_snapshot, saved_snapshot, write_snapshot
from slurmsched.planning.planner import Planner
from slurmsched.planning.priorities.priority_weights import slurm_weights
from slurmsched.testing.builders import mixed_snapshot, snapshot

POLICIES = ("discretized-las", "las", "gittins", "sjf", "srtf", "srsf", "themis", "gandiva-fair", "gavel")
MEMORIES = ("aonline", "astraea", "chronus", "elasticflow", "gandiva", "heet", "oasis", "pop", "shockwave", "spin")
SETTINGS = {
    "PriorityType": "priority/multifactor", "PriorityWeightAge": "1000", "SLURM_VERSION": "24.11.5",
    "ClusterName": "hpc", "JobCompPass": "hunter2", "JobCompLoc": "https://u:p@es:9200", "SlurmdbdPass": "hunter2",
    "AccountingStorageType": "accounting_storage/slurmdbd", "SlurmctldHost[0]": "ctl1",
    "AuthAltParameters": "jwt_key=/k",
}  # fmt: skip
SITE = Site("hpc", "24.11.5", Rights.OPERATOR, "root", SETTINGS)
NAMED = [
    {"user": "zoe", "account": "physics", "name": "secret", "comment": "of zoe slurmsched: dur=2h x=zoe", "gpus": 2},
    {"user": "bob", "account": "biology", "reservation": "bob_1", "gpus": 4},
    {"user": "zoe", "account": "biology", "gpus": 1, "comment": "call bob"},
]  # fmt: skip


def config(policy: str = "fifo", **more: object) -> Config:
    return parse_config({"policy": {"name": policy}, "scope": {"partitions": ["*"]}, **more})


def planned(held: Snapshot, tree: Config) -> Plan:
    return Planner.from_config(tree).plan(held)


@pytest.mark.parametrize("policy", POLICIES)
def test_file__gives_the_same_plan(tmp_path: Path, policy: str) -> None:
    """From the file alone, anonymised too: every policy that reorders, with what it remembers of the cycle before."""
    first = replace(mixed_snapshot(120, seed=3), site=SITE)
    ranking = planned(first, config(policy)).ranking
    assert ranking is not None
    now = replace(first, now_s=first.now_s + 60, carry=ranking.carry)
    tree = config(policy)
    held = saved_snapshot(now, planned(now, tree), tree)
    for number, kept in enumerate((held, anonymised_snapshot(held, TraceAnonymiser(b"k" * 32)))):
        write_snapshot(tmp_path / f"{number}", kept)
        read = read_snapshot(tmp_path / f"{number}")
        again = planned(read.snapshot, read.config)
        assert (plan_digest(again), len(again.actions)) == (held.plan, held.planned)
        assert held.planned > 0


@pytest.mark.parametrize("policy", ["gavel", "themis"])
def test_file__gives_the_same_plan_in_every_process(tmp_path: Path, policy: str) -> None:
    """Python orders sets of names by a seed of the process; no plan may depend on it."""
    given, tree = replace(mixed_snapshot(40, seed=3), site=SITE), config(policy)
    write_snapshot(tmp_path / "s", saved_snapshot(given, planned(given, tree), tree))
    argv = [sys.executable, "-m", "slurmsched.cli.main", "snapshot", "run", str(tmp_path / "s"), "--json", "--limit=0"]
    answers = [
        subprocess.run(argv, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in ("1", "2")
    ]
    assert orjson.loads(answers[0])["same_plan"] is True
    assert answers[0] == answers[1]


def test_file__holds_what_decides_and_no_secrets(tmp_path: Path) -> None:
    """Of slurm.conf what scheduling depends on, of the configuration no URL, no path."""
    tree = config(ledger={"url": "mysql://u:hunter2@db/x"})
    given = snapshot(NAMED, site=SITE)
    write_snapshot(tmp_path / "s", saved_snapshot(given, planned(given, tree), tree))
    with zipfile.ZipFile(tmp_path / "s") as file:
        content = b"".join(file.read(name) for name in file.namelist())
    assert [word in content for word in (b"hunter2", b"es:9200", b"ctl1", b"jwt", b"mysql")] == [False] * 5
    kept = read_snapshot(tmp_path / "s")
    assert [weight.points for weight in slurm_weights(kept.snapshot.site.settings)] == [1000.0]
    assert sorted(kept.settings) == ["lever", "pace", "policy", "scope"]


def test_file__is_equal_for_equal_snapshots(tmp_path: Path) -> None:
    """To the byte, whenever it is written."""
    given, tree = mixed_snapshot(30), config()
    for name in "ab":
        write_snapshot(tmp_path / name, saved_snapshot(given, planned(given, tree), tree))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_hidden__leaves_no_name_and_keeps_hints(tmp_path: Path) -> None:
    """Users, accounts, jobs, reservations, comments, the cluster, and names in a policy's memory."""
    past = Past.build(1, {"user": ["zoe"], "account": ["physics"], "name": ["secret"], "executed_s": [5.0]})
    given = snapshot(NAMED, [{"name": "n1", "gpus": 8, "reason": "ask zoe"}], site=replace(SITE, user="zoe"), past=past,
                     carry={"bob": [1.0], "tenants": ["zoe", "xyz"]}, warnings=("comment of zoe",))  # fmt: skip
    tree = config(scope={"partitions": ["*"], "accounts": ["physics"]})
    held = anonymised_snapshot(saved_snapshot(given, planned(given, tree), tree), TraceAnonymiser(b"k" * 32))
    write_snapshot(tmp_path / "s", held)
    with zipfile.ZipFile(tmp_path / "s") as file:
        content = b"".join(file.read(name) for name in file.namelist())
    words = (b"zoe", b"bob", b"physics", b"biology", b"secret", b"hpc", b"call", b"xyz")
    assert [word for word in words if word in content] == []
    made = read_snapshot(tmp_path / "s")
    assert made.anonymised
    assert list(made.snapshot.jobs.comment) == ["slurmsched: dur=2h", "", ""]
    assert made.config.scope.accounts == (made.snapshot.jobs.account[0],)
    assert set(made.snapshot.carry) == {made.snapshot.jobs.user[1], "tenants"}
    assert made.snapshot.carry["tenants"][0] == made.snapshot.jobs.user[0]
    assert made.snapshot.carry["tenants"][1].startswith("x")
    assert (made.snapshot.past.user[0], made.snapshot.past.executed_s[0]) == (made.snapshot.jobs.user[0], 5.0)


def test_hidden__of_a_memory_our_own_keys_stay_and_no_others() -> None:
    """A tenant without jobs, a job's name, a node that is gone, a model that is a job's name: in whatever form."""
    names = ("alice", "projectx", "bob", "old-node-7", "secret", "h100", "lab_a")
    given = snapshot([*NAMED, {"name": "projectx"}, {"name": "h100"}], site=SITE,
                     carry={"tenants": dict.fromkeys(names, 1), "share a100": {f"{name}@1800": 2 for name in names},
                            "rows": [{f"7/{name}": 3} for name in names]})  # fmt: skip
    made = anonymised_snapshot(saved_snapshot(given, Plan(), config()), TraceAnonymiser(b"k" * 32)).snapshot.carry
    assert [name for name in names if name in str(made)] == []
    assert list(made) == ["tenants", "share a100", "rows"]
    assert len(made["tenants"]) == len(made["share a100"]) == len(names)


@pytest.mark.parametrize("policy", MEMORIES)
def test_hidden__keeps_the_keys_of_our_policies(policy: str) -> None:
    """Without them the plan of the file would be another."""
    given = mixed_snapshot(8, seed=3)
    comments = [f"slurmsched: dur=1h deadline=+{row + 2}h" for row in range(len(given.jobs))]
    given = replace(given, site=SITE, jobs=given.jobs.with_columns(comment=Labels.of(comments)))
    ranking = planned(given, config(policy)).ranking
    assert ranking is not None
    held = replace(given, carry=ranking.carry)
    made = anonymised_snapshot(saved_snapshot(held, Plan(), config(policy)), TraceAnonymiser(b"k" * 32)).snapshot.carry
    assert list(made) == list(ranking.carry)
    assert made


MARK = "Zq7marker"


def marked(value: Any, place: str, planted: set[str]) -> Any:
    """The value with the mark in every text of it; the tables keep their rows."""
    if isinstance(value, str):
        planted.add(place)
        return MARK + place.rpartition(".")[2]
    if isinstance(value, Labels):
        planted.add(place)
        return Labels.of([f"{MARK}{row}" for row in range(len(value))])
    if place.endswith(".shares"):
        return {MARK: 2.0}
    if place.endswith(".settings"):
        return {
            MARK: "1",
            **dict.fromkeys(value, MARK),
            "PriorityFlags": f"A,{MARK}",
            "PriorityWeightTRES": f"gres/gpu:{MARK}=5",
        }
    if isinstance(value, Mapping):
        return {MARK: 1.0, "list": [MARK, {MARK: MARK}]}
    if isinstance(value, Table):
        columns = {
            spec.name: marked(getattr(value, spec.name), f"{place}.{spec.name}", planted) for spec in fields(value)
        }
        return value.with_columns(**columns)
    if isinstance(value, tuple):
        return tuple(marked(part, place, planted) for part in value)
    if is_dataclass(value) and not isinstance(value, IntEnum):
        parts = {spec.name: getattr(value, spec.name) for spec in fields(value)}
        made = {name: marked(part, f"{place}.{name}", planted) for name, part in parts.items()}
        return replace(value, **made)  # type: ignore[type-var]
    return value


def test_hidden__leaves_no_mark_in_any_field(tmp_path: Path) -> None:
    """A mark in every text of every table, record, setting and memory: none of it is in the file."""
    wait, gpu_request = NodeWait("n1", 3, 9.0), JobGpuRequest(7, 1.0, form="gpus", count=2, bars=("x",), asks="gpu:2")
    operation = Operation(
        "7-1",
        Purpose.PREEMPT,
        7,
        1.0,
        "zoe",
        "n1",
        60.0,
        1.0,
        (Victim(3, 1.0, 0, 1, "USR1", 5.0, 1.0, "hint"),),
        waits=(wait,),
    )
    given = snapshot(
        NAMED, [{"name": "n1", "gpus": 8}], site=SITE, operations=(operation,), past_operations=(operation,),
        past=Past.build(1, {"user": ["zoe"]}),
        overrides=(
            Override(7, 1.0, "node_list", "n2", "n1", OverrideState.ABANDONED, ("n1",), 1.0, "x"),
            Override(7, 1.0, "gpu_type", "gpu:1", "gpu:2", values=("gpu:2",), since_s=1.0, note="x"),
            Override(7, 1.0, "start_time", 0.0, 2.0, note="x"),
        ),
        shares={"physics": 2.0},
        placed=(PlacedJob(7, 1.0, 2.0, "n1", 2, 9.0, 9.0, 1.0, False, "x"),),
        carry={"who": ["zoe"]}, warnings=("x",), tag="x",
        reservations=Reservations.build(1, {"name": ["x"], "node_list": ["n1"], "users": ["zoe"]}),
        gpu_selection=GpuSelection((), frozen([-1], np.int64), ((),), (24, 11, 5), (gpu_request,)),
    )  # fmt: skip
    planted: set[str] = set()
    full = marked(given, "", planted)
    assert len(planted) > 60
    tiers = ["qos", "fair_share:4"]
    settings = {"policy": {"name": "fifo", "weights": {MARK: 1.0}, "tiers": tiers,
                           "file": f"/home/{MARK}", "one": MARK},
                "scope": {"partitions": [MARK], "accounts": [MARK], "qos": [MARK, "*"]}}  # fmt: skip
    held = anonymised_snapshot(
        replace(saved_snapshot(given, Plan(), config()), snapshot=full, settings=settings), TraceAnonymiser(b"k" * 32)
    )
    assert held.settings["policy"]["tiers"] == tiers  # else the snapshot could not be run
    assert [name for name in texts_of(held) if MARK.lower() in name.lower()] == []
    write_snapshot(tmp_path / "s", held)
    with zipfile.ZipFile(tmp_path / "s") as file:
        assert [name for name in file.namelist() if MARK.encode() in file.read(name)] == []


def texts_of(value: Any) -> list[str]:
    """Every text in it, keys too."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Labels):
        return [*value.names]
    if isinstance(value, Mapping):
        return [text for pair in value.items() for part in pair for text in texts_of(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in texts_of(part)]
    if is_dataclass(value):
        return [text for spec in fields(value) for text in texts_of(getattr(value, spec.name))]
    return []


def test_hidden__keeps_what_is_no_name() -> None:
    """GPU models that are sold, Slurm's words and numbers; nodes keep their order, lists of nodes their nodes."""
    jobs = [{"gpus": 4, "nodes": 2, "node_list": "b[1-2]", "gpu_request": "gpu:a100:4",
             "features_asked": "[rack1*2&ib]"},
            {"gpus": 1, "gpu_request": "gpu:zoes_own:1", "dependency": "afterok:7(unfulfilled),singleton"}]  # fmt: skip
    given = snapshot(jobs, [{"name": name, "gpus": 8} for name in ("b1", "b2", "a9")], site=SITE)
    made = anonymised_snapshot(saved_snapshot(given, Plan(), config()), TraceAnonymiser(b"k" * 32)).snapshot
    assert list(made.nodes.name) == ["n1", "n2", "n3"]
    assert made.jobs.node_list[0] == "n2,n3"
    assert made.jobs.gpu_request[0] == "gpu:a100:4"
    assert re.fullmatch("gpu:t[0-9a-f]{12}:1", made.jobs.gpu_request[1])
    assert re.fullmatch(r"\[f[0-9a-f]{12}\*2&f[0-9a-f]{12}\]", made.jobs.features_asked[0])
    assert made.jobs.dependency[1] == "afterok:7(unfulfilled),singleton"
    assert made.site.settings == {name: SETTINGS[name] for name in (
        "PriorityType", "PriorityWeightAge", "SLURM_VERSION", "AccountingStorageType")}  # fmt: skip


def test_hidden__uses_the_names_of_anonymised_traces() -> None:
    """The same key gives the same name in both."""
    given, tree, key = snapshot(NAMED, site=SITE), config(), TraceAnonymiser(b"k" * 32)
    made = anonymised_snapshot(saved_snapshot(given, planned(given, tree), tree), key).snapshot
    assert made.jobs.user[0] == key.name("zoe", "u") == made.jobs.user[2] != made.jobs.user[1]


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.RUNNING])
@pytest.mark.parametrize("sent", ["there", "there, unsure", "other", "only of before"])
def test_hidden__admin_comments_on_record_give_the_same_plan(sent: str, state: JobState) -> None:
    """A text that is there stays as it should be, one that is to change changes, and no name is in either."""
    at_s, size = 1_796_000_400.0, "gpu:zoes:2"
    text = f"slurmsched: requeued 2026-11-30T01:00Z for job 3; node list n1; GPUs {size}, asked gpu:4"
    text = text if state is JobState.RUNNING else text.replace("node list n1; ", "")
    text = {"other": "slurmsched: GPUs gpu:zoes:1", "only of before": text.partition("; GPUs")[0]}.get(sent, text)
    unsure = (text,) if sent.endswith("unsure") else ()
    records = (
        Override(7, at_s, "size", "gpu:4", "gpu:4" if sent == "only of before" else size),
        Override(7, at_s, "admin_comment", "", text, values=unsure),
    )
    job = {"job_id": 7, "submit_s": at_s, "gpus": 4, "state": int(state)}
    given = snapshot([job], "12x8", now_s=at_s + 60, site=replace(SITE, rights=Rights.ADMINISTRATOR))
    given, tree = replace(given, overrides=records), config()
    held = saved_snapshot(given, planned(given, tree), tree)
    made = anonymised_snapshot(held, TraceAnonymiser(b"k" * 32))
    again = planned(made.snapshot, made.config)
    kinds = [action.kind for action in again.actions]
    assert (plan_digest(again), "comment" in kinds) == (held.plan, sent in ("there, unsure", "other"))
    assert "zoes" not in str(made.snapshot.overrides)


def test_plan_digest__differs_with_any_action() -> None:
    """Job, value, order and what was deferred."""
    one, two = SetNice(1, 0.0, "a", 0, 5, 0), SetNice(2, 0.0, "b", 0, 5, 0)
    plans = [
        Plan(),
        Plan((one,)),
        Plan((one, two)),
        Plan((two, one)),
        Plan((replace(one, new=6),)),
        Plan((one,), deferred=1),
    ]
    assert len(set(map(plan_digest, plans))) == len(plans)
    assert plan_digest(Plan((replace(one, reason="other words"),))) == plan_digest(Plan((one,)))


def damaged(path: Path, change: object) -> None:
    """The file with a changed head."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    members["snapshot.json"] = orjson.dumps({**orjson.loads(members["snapshot.json"]), **change})  # type: ignore[dict-item]
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "other"}, "its format is 'other'"),
        ({"format_version": 2, "made_by": "9.9"}, "is of format 2, made by slurmsched 9.9"),
        ({"digest": "0" * 16}, "damaged: its digest differs"),
        ({"snapshot": {"kind": "Site", "fields": {}}}, "damaged"),
        ({"snapshot": {"kind": "os", "fields": {}}}, "damaged"),
    ],
)
def test_read__refuses_what_it_cannot_trust(tmp_path: Path, change: object, said: str) -> None:
    """Another format, a newer one, another content than was written."""
    given, tree = mixed_snapshot(5), config()
    write_snapshot(tmp_path / "s", saved_snapshot(given, planned(given, tree), tree))
    damaged(tmp_path / "s", change)
    with pytest.raises(InputError, match=said):
        read_snapshot(tmp_path / "s")


@pytest.mark.parametrize("keep", [0, 0.5, 0.99])
def test_read__refuses_a_file_that_was_cut(tmp_path: Path, keep: float) -> None:
    """As mail does at times."""
    given, tree = mixed_snapshot(5), config()
    write_snapshot(tmp_path / "s", saved_snapshot(given, planned(given, tree), tree))
    whole = (tmp_path / "s").read_bytes()
    (tmp_path / "s").write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(InputError, match="is no snapshot file, or damaged"):
        read_snapshot(tmp_path / "s")


def test_read_and_write__name_the_file(tmp_path: Path) -> None:
    """Not there; a folder that is not there; a memory that has no form, of which nothing is left behind."""
    given, tree = mixed_snapshot(5), config()
    held = saved_snapshot(given, planned(given, tree), tree)
    with pytest.raises(InputError, match="no: cannot be read: No such file"):
        read_snapshot(tmp_path / "no")
    with pytest.raises(InputError, match="no/s: cannot be written: No such file"):
        write_snapshot(tmp_path / "no" / "s", held)
    with pytest.raises(InputError, match="cannot be written: carry/0 is a set"):
        write_snapshot(tmp_path / "s", replace(held, snapshot=replace(given, carry={"a": {1}})))
    assert list(tmp_path.iterdir()) == []
