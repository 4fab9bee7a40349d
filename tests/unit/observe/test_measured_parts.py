"""The part of a GPU by measured use: with a margin, not below the peak, and only where enough is known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from slurmsched.config import LeverConfig
from slurmsched.model import Snapshot
from slurmsched.observe.gpu_profiles import GpuProfile, ProfileKey, write_profiles
from slurmsched.observe.measured_parts import MeasuredParts
from slurmsched.testing import snapshot

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
