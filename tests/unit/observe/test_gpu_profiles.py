"""Profiles of what runs: kept by model, or by user and name, written and read, and taken as a table of throughputs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurmsched.config import LeverConfig
from slurmsched.config_file import parse_config
from slurmsched.errors import ConfigError, InputError
from slurmsched.estimators.group_speeds import GroupSpeeds, own_pairs
from slurmsched.estimators.throughput_table import throughput_table
from slurmsched.estimators.throughputs import Throughputs
from slurmsched.model import Snapshot
from slurmsched.model.columns import Labels
from slurmsched.observe.explain.explanation import interference_outlook
from slurmsched.observe.gpu_profiles import (
    GpuProfile,
    MeasuredParts,
    ProfileKey,
    ProfileStore,
    profile_rows,
    read_profiles,
    with_seen,
    write_profiles,
)
from slurmsched.planning.planner import Planner
from slurmsched.testing import snapshot


def at(now_s: float, *jobs: dict):
    """Jobs that run on two GPUs of one node each."""
    rows = [{"job_id": number, "state": "R", "gpus": 2, "user": "ann", "name": "a,b\n", **job}
            for number, job in enumerate(jobs, 1)]  # fmt: skip
    held = [
        {"job_id": row["job_id"], "node": f"n{row['job_id']}", "gpu_type": "a100", "gpus": row["gpus"]} for row in rows
    ]
    return snapshot(rows, "4x8", now_s=now_s, allocations=held)


def test_store__keeps_means_over_the_time_that_was_seen(tmp_path: Path) -> None:
    """By model and batch, or by user and name; a job counts from its second look; a new daemon goes on."""
    path, tells = tmp_path / "profiles.csv", "slurmsched: model=bert batch=64 throughput="
    store = ProfileStore(path)
    store.add(at(0.0, {"comment": f"{tells}100"}, {"gpu_use": 0.5, "gpu_memory_mib": 1_000.0}, {}))
    store.add(at(100.0, {"comment": f"{tells}100"}, {"gpu_use": 0.5, "gpu_memory_mib": 3_000.0}, {}))
    store.add(at(400.0, {"comment": f"{tells}200"}, {"gpu_use": 1.0, "gpu_memory_mib": 2_000.0}, {}))
    again = ProfileStore(path)
    again.add(at(10_000.0, {"comment": f"{tells}200"}))
    again.add(at(20_000.0, {"comment": f"{tells}200"}))
    found = read_profiles(path)
    bert, group = (found[ProfileKey(*key, 2, "a100", "ann")] for key in (("bert", 64), ("ann:a_b_", 0)))
    assert (bert.speed_s, round(bert.samples_per_s), bert.jobs, bert.last_s) == (1_000.0, 190, 2, 20_000.0)
    assert (group.use, group.memory_mib, math.isnan(group.samples_per_s), len(found)) == (0.875, 3_000.0, True, 2)


def test_profiles__are_a_table_of_throughputs(tmp_path: Path) -> None:
    """For a policy's speeds: of a model, of a user's jobs of one name; rows without a throughput say nothing."""
    path = tmp_path / "profiles.csv"
    keys = {ProfileKey(model, 0, 2, kind): speed for model, kind, speed in
            (("bert", "a100", 10.0), ("bert", "h100", 30.0), ("ann:train", "a100", 10.0),
             ("ann:train", "h100", 20.0))}  # fmt: skip
    profiles = {key: GpuProfile(speed * 100, 100.0, last_s=1.0) for key, speed in keys.items()}
    write_profiles(path, profiles | {ProfileKey("dark", 0, 1, "a100"): GpuProfile(used_s=5.0, use_s=9.0)})
    jobs = [{"gpus": 2, "comment": "slurmsched: model=bert"}, {"gpus": 2, "user": "ann", "name": "train"},
            {"gpus": 2, "user": "bob", "name": "train"}]  # fmt: skip
    speeds = Throughputs(str(path), "a100").speeds(snapshot(jobs), ("a100", "h100"))
    assert speeds.round(2).tolist() == [[1.0, 3.0], [1.0, 2.0], [1.0, 2.45]]


def shared(now_s: float, *jobs: dict):
    """Jobs with shards of one GPU of n1."""
    rows = [{"job_id": number, "state": "R", "gpus": 0, "shards": 2, "gpu_request": "shard:2", "shared_gpu": "n1 0",
             "user": "ann", "name": "train", **job} for number, job in enumerate(jobs, 1)]  # fmt: skip
    return snapshot(rows, "1x2", now_s=now_s)


def test_store__measures_pairs_on_one_gpu(tmp_path: Path) -> None:
    """Bert makes 100 alone and 83 beside the other job, which tells nothing. Beside two jobs nobody is measured, and
    with MPS, which limits it always, nobody alone. The file is a table with this pair, and has it again when read."""
    path, tells = tmp_path / "profiles.csv", "slurmsched: model=bert batch=64 throughput="
    store, alone = ProfileStore(path), {"comment": f"{tells}100", "job_id": 7}
    pair = {"comment": f"{tells}83", "job_id": 7}, {"job_id": 8}
    mps = {**alone, "gpu_request": "mps:50", "comment": f"{tells}40"}
    looks = [(alone,), (alone,), pair, pair, (*pair, {"job_id": 9}), (*pair, {"job_id": 9}), (mps,), (mps,)]
    for number, jobs in enumerate(looks):
        store.add(shared(400.0 * number, *jobs))
    found = read_profiles(path)
    assert {(key.beside, one.samples_per_s) for key, one in found.items()} == {("", 100.0), ("ann:train", 83.0)}
    assert {(key.gpus, key.gpu_type, one.speed_s) for key, one in found.items()} == {(1, "a100", 400.0)}
    assert [(row.beside, row.samples_per_s) for row in profile_rows(found)] == [("", 100.0), ("ann:train", 83.0)]
    assert own_pairs(str(path), 1) == {("bert (batch size 64)", "ann:train"): pytest.approx(0.83, abs=1e-4)}


def test_profiles__of_pairs_are_for_policies_that_share(tmp_path: Path) -> None:
    """Gavel's programmes have the pair. On a type where a model was only seen beside others its speed alone is
    estimated: it is not one that cannot run there."""
    path, keys = tmp_path / "profiles.csv", (("a", ""), ("b", ""), ("a", "b"), ("b", "a"), ("c", "a"))
    speeds = dict(zip(keys, (100.0, 50.0, 90.0, 30.0, 70.0), strict=True))
    write_profiles(path, {ProfileKey(model, 0, 1, "a100", "ann", other): GpuProfile(speed * 10.0, 10.0)
                          for (model, other), speed in speeds.items()})  # fmt: skip
    lines = path.read_text().splitlines()
    alone = [line.replace(",a100,", ",h100,") for line in lines if line.startswith(("a,,1,a100,100,", "c,"))]
    path.write_text("\n".join([*lines, *(line.replace(",ann,a,", ",ann,,") for line in alone)]) + "\n")
    table = Throughputs(str(path), "a100")
    jobs = snapshot([{"gpus": 1, "comment": f"slurmsched: model={model}"} for model in "abc"])
    kept = table.shared_speeds(jobs, np.array([0, 0]), np.array([1, 2]), ("a100",))
    assert kept.round(3).tolist() == [[[0.9, 0.6]], [[0.0, 0.0]]]
    assert table.speeds(jobs, ("a100", "h100"))[2].tolist() == pytest.approx([1.0, 1.0])


def test_explain__says_what_a_job_keeps_and_how_that_is_known(tmp_path: Path) -> None:
    """By the daemon's own file for the job that it has, else by stages, pairs or the fit. A job that waits for its part
    is beside those on the fullest GPU with room. Without others there is nothing to say."""
    path = tmp_path / "profiles.csv"
    bert, other = "slurmsched: model=bert batch=64", {"job_id": 8}
    rows = {ProfileKey("bert", 64, 1, "a100", "ann", beside): speed for beside, speed in (("", 100), ("ann:train", 83))}
    write_profiles(path, {key: GpuProfile(speed * 10.0, 10.0) for key, speed in rows.items()})
    own = GroupSpeeds(measured=str(path))
    both = shared(0.0, {"comment": bert, "job_id": 7}, other)
    said = [interference_outlook(both, row, own) for row in (0, 1)]
    assert said[0].startswith("beside job 8: 0.83 of its speed, measured here; of theirs job 8 0.")
    assert said[1].endswith("of its speed, estimated from other pairs; of theirs job 7 0.83")
    gavel = [
        {"job_id": 7, "comment": "slurmsched: model=A3C"},
        {"job_id": 8, "comment": "slurmsched: model=LM batch=80"},
    ]
    assert ", by published pairs; " in interference_outlook(shared(0.0, *gavel), 0, own)
    muri = [{**row, "comment": "slurmsched: model=bert"} for row in gavel]
    assert ", by published stages; " in interference_outlook(shared(0.0, *muri), 0, own)
    assert interference_outlook(shared(0.0, other), 0, own) == ""
    waits = {"job_id": 7, "state": "PD", "shared_gpu": "", "nodes_asked": "n1", "comment": bert}
    here = shared(0.0, waits, other, {"job_id": 9, "shared_gpu": "n1 1"})
    for text, joined in (("2/4,1/4", "job 8"), ("3/4,1/4", "job 9"), ("3/4,4/4", "")):
        nodes = here.nodes.with_columns(shards=Labels.of([text]))
        said = interference_outlook(replace(here, nodes=nodes), 0, own)
        assert said.partition(":")[0] == f"beside {joined}" * bool(joined)


def test_profiles__one_user_does_not_price_the_jobs_of_others(tmp_path: Path) -> None:
    """The median over users counts, in the table, in what is shown, and of two users the lower."""
    path = tmp_path / "profiles.csv"
    told = {"ann": (10.0, 30.0), "bob": (11.0, 33.0), "eve": (1e9, 1e-3)}
    profiles = {ProfileKey("bert", 0, 2, kind, user): GpuProfile(speed * 100, 100.0, jobs=1)
                for user, both in told.items() for kind, speed in zip(("a100", "h100"), both, strict=True)}  # fmt: skip
    write_profiles(path, profiles)
    speeds = Throughputs(str(path), "a100").speeds(
        snapshot([{"gpus": 2, "comment": "slurmsched: model=bert"}]), ("h100",)
    )
    assert speeds.round(3).tolist() == [[round(30.0 / 11.0, 3)]]
    few = {key: one for key, one in read_profiles(path).items() if key.user != "bob"}
    shown = [[(row.gpu_type, row.samples_per_s, row.jobs) for row in profile_rows(some)]
             for some in (profiles, few)]  # fmt: skip
    assert shown == [[("a100", 11.0, 3), ("h100", 30.0, 3)], [("a100", 10.0, 2), ("h100", 1e-3, 2)]]


def test_profiles__what_cannot_be_is_left_out(tmp_path: Path) -> None:
    """A throughput beyond all machines, values that are not finite: neither kept, nor read, nor shown."""
    path = tmp_path / "profiles.csv"
    store = ProfileStore(path)
    for now_s in (0.0, 600.0):
        idle = {"gpu_use": 0.5, "gpu_memory_mib": math.inf, "comment": "slurmsched: throughput=1e-300"}
        store.add(at(now_s, {"comment": "slurmsched: model=x throughput=1e308"}, idle))
    assert "inf" not in path.read_text()
    (row,) = profile_rows(read_profiles(path))
    assert (row.samples_per_s, row.memory_mib, row.use) == (None, None, 0.5)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[1].replace("0.5000", "inf").replace(",a100", ",h100")]) + "\n")
    assert len(read_profiles(path)) == 1
    assert throughput_table(str(path)) == {}


def test_profiles__are_read_when_there_are_any(tmp_path: Path) -> None:
    """By the documented configuration slurmsched starts before there is a file, and says so in its plans; a policy of
    elastic jobs too. A table that is not the daemon's own must be there."""
    path = str(tmp_path / "profiles.csv")
    for policy in ("gavel", "best-scaling"):
        speeds = {"name": "throughputs", "table": path, "reference": "a100"}
        tree = {"policy": {"name": policy, "speeds": speeds}}
        planner = Planner.from_config(parse_config(tree | {"measured_use": {"profiles": path}}))
        (note,) = [one for one in planner.plan(snapshot([{"gpus": 2}], "4x8")).notes if path in one]
        assert "has no rows of GPU type 'a100' yet" in note
        with pytest.raises(ConfigError, match=r"no speed estimator and no file"):
            Planner.from_config(parse_config(tree))


def test_profiles__are_bounded_and_a_bad_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ones seen last stay, in memory and in the file; of one user only so many."""
    monkeypatch.setattr("slurmsched.observe.gpu_profiles.MOST_OF_USER", 3)
    monkeypatch.setattr("slurmsched.observe.gpu_profiles.MOST_ROWS", 5)
    path, profiles = tmp_path / "profiles.csv", {}
    for now_s, user in enumerate(["ann", "bob", "cid", *["eve"] * 9]):
        seen = at(float(now_s), {"user": user, "gpu_use": 0.5, "name": f"m{now_s}"})
        profiles, _ = with_seen(profiles, seen, 1.0, {1: ProfileKey(f"{user}:m{now_s}", 0, 2, "a100", user)})
    assert [key.model for key in profiles] == ["bob:m1", "cid:m2", "eve:m9", "eve:m10", "eve:m11"]
    write_profiles(path, profiles)
    assert len(read_profiles(path)) == 5
    path.write_text("model,batch\nx,y\n")
    with pytest.raises(InputError, match=r"profiles\.csv"):
        ProfileStore(path)


# The part of a GPU by measured use: with a margin, not below the peak, and only where enough is known.


HOUR_S = 3_600.0
ANN = ProfileKey("ann:train", 0, 1, "l40", "ann")


def here(*rows: dict[str, Any], gpu_types: str = "gpu:l40:2") -> Snapshot:
    """Waiting jobs of ann that are called train, and a node with shards."""
    jobs = [{"user": "ann", "name": "train", "comment": "slurmsched: share=yes", **row} for row in rows]
    return snapshot(jobs, [{"name": "n1", "gpus": 2, "gpu_types": gpu_types, "shards": "0/4,0/4"}])


def used(hours: float = 2.0, *, use: float = 0.2, peak: float = 0.2, gib: float = 4.8) -> GpuProfile:
    return GpuProfile(used_s=use * hours * HOUR_S, use_s=hours * HOUR_S, peak_use=peak, memory_mib=gib * 1024)


@pytest.fixture
def parts(tmp_path: Path) -> Any:
    """Reads the parts of a snapshot by these profiles, with 48 GB on an l40."""

    def read(profiles: dict[ProfileKey, GpuProfile], given: Snapshot, **lever: Any) -> list[tuple[float, str]]:
        write_profiles(tmp_path / "p.csv", profiles)
        found = MeasuredParts(tmp_path / "p.csv", LeverConfig(**{"gpu_memory_gb": {"l40": 48}} | lever))(given).jobs
        return list(zip(found.measured_part.tolist(), found.measured_part_why, strict=True))

    return read


@pytest.mark.parametrize(
    ("seen", "part"),
    [
        (used(), 0.25),  # 0.2 and a margin of a fourth
        (used(peak=0.6), 0.6),  # not below the peak
        (used(gib=24.0), 0.625),  # half of the memory and the margin
    ],
)
def test_measured_part__is_the_larger_of_use_and_memory(parts: Any, seen: GpuProfile, part: float) -> None:
    """With the margin, and not below the peak of either."""
    ((found, why),) = parts({ANN: seen}, here({}))
    assert found == pytest.approx(part) and why.startswith("computes 20% of the time and at most ")
    assert parts({ANN: used(peak=0.22)}, here({}), share_margin=0.0)[0][0] == pytest.approx(0.22)
    assert parts({ANN: seen}, here({}, gpu_types="gpu:2"), gpu_memory_gb={"gpu": 48})[0][0] == pytest.approx(part)


def test_measured_part__is_of_jobs_alike(parts: Any) -> None:
    """By model and batch over all users and types, else by user and name; on one GPU and alone. A job that says its
    part, may not share or runs has none."""
    bert = {"comment": "slurmsched: share=yes model=bert batch=8"}
    keys = {
        ProfileKey("bert", 8, 1, "l40", "ann"): used(),
        ProfileKey("bert", 8, 1, "a100", "bob"): used(use=0.2, peak=0.6),
        ProfileKey("bert", 8, 2, "l40", "ann"): used(peak=0.9),
        ProfileKey("bert", 8, 1, "l40", "ann", "x"): used(peak=0.9),
        ProfileKey("bert", 16, 1, "l40", "ann"): used(peak=0.9),
        ANN: used(),
    }
    others = [{"comment": "slurmsched: share=yes gpu_part=0.5"}, {"comment": ""}, {"state": "RUNNING"}, {"user": "bob"}]
    found = parts(keys, here(bert, {}, *others, {**bert, "user": "cid"}))
    assert [part for part, _ in found] == pytest.approx([0.6, 0.25, *[math.nan] * 4, 0.6], nan_ok=True)
    assert [why for _, why in found][2:5] == ["", "", ""]


def test_measured_part__no_other_user_sets_it_alone(parts: Any) -> None:
    """Jobs that use little, under the model of somebody else, would give that one's jobs too small a part."""
    waits = here({"comment": "slurmsched: share=yes model=bert batch=8"})
    ann, bob, eve = (ProfileKey("bert", 8, 1, "l40", user) for user in ("ann", "bob", "eve"))
    little = used(use=0.01, peak=0.01, gib=0.5)
    ((part, why),) = parts({eve: little, bob: used(0.5)}, waits)
    assert math.isnan(part) and why == "only one other user's jobs like it were measured for 1.0 h"
    assert parts({eve: little, bob: used(2.0)}, waits)[0][0] == pytest.approx(0.2)
    assert parts({eve: little, ann: used(2.0, peak=0.3)}, waits)[0][0] == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("profiles", "gpu_types", "why"),
    [
        ({}, "gpu:l40:2", "jobs like it were measured for 0.0 of 1.0 h"),
        ({ANN: used(0.5)}, "gpu:l40:2", "jobs like it were measured for 0.5 of 1.0 h"),
        ({ANN: used(gib=math.nan)}, "gpu:l40:2", "the GPU memory of jobs like it was not measured"),
        ({ANN: used()}, "gpu:other:2", "the memory of its GPUs is not known; see lever.gpu_memory_gb"),
        ({ANN: used()}, "gpu:2", "the memory of its GPUs is not known; see lever.gpu_memory_gb"),
        ({ANN: used(peak=1.0)}, "gpu:l40:2", "as measured it needs a whole GPU: computes 20% of the time"),
        ({ANN: used(gib=40.0)}, "gpu:l40:2", "as measured it needs a whole GPU: computes 20% of the time"),
    ],
)
def test_measured_part__is_not_guessed(parts: Any, profiles: Any, gpu_types: str, why: str) -> None:
    """Too little time, no memory, GPUs of unknown memory, and a job that needs a whole one: each says so."""
    ((part, said),) = parts(profiles, here({}, gpu_types=gpu_types))
    assert math.isnan(part) and said.startswith(why)


def test_measured_part__the_file_is_read_when_it_changes(tmp_path: Path) -> None:
    """None at first, then what the daemon wrote; a bad file is a warning."""
    path = tmp_path / "p.csv"
    reader, waits = MeasuredParts(path, LeverConfig()), here({}, gpu_types="gpu:a100:2")
    assert math.isnan(reader(waits).jobs.measured_part[0])
    write_profiles(path, {ANN: used()})
    assert reader(waits).jobs.measured_part[0] == pytest.approx(0.25)
    path.write_text("model,batch\nx,y\n")
    found = reader(waits)
    assert math.isnan(found.jobs.measured_part[0]) and "no measured parts of GPUs" in found.warnings[0]
