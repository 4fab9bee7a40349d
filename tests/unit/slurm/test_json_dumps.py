"""Snapshots from files that Slurm's --json options wrote."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from slurmsched.errors import InputError
from slurmsched.model import Rights
from slurmsched.slurm.slurm_json import DUMP_WARNING, read_dump
from tests.recorded.playback import HERE

PUBLIC = HERE / "public"
QUEUES = sorted([*PUBLIC.glob("jobs-json-*"), *PUBLIC.glob("squeue-json-*")])
FLEETS = sorted([*PUBLIC.glob("nodes-json-*"), *PUBLIC.glob("sinfo-json-*")])


@pytest.mark.parametrize("path", QUEUES, ids=lambda path: path.name)
def test_read_dump__of_every_version(path: Path) -> None:
    """All jobs of the file, the version that wrote it, and a warning of what no file tells."""
    found = read_dump(path)
    assert len(found.jobs) == len(orjson.loads(path.read_bytes())["jobs"])
    assert (found.site.version.split(".")[0] in path.name, found.site.rights) == (True, Rights.OPERATOR)
    assert found.warnings == (DUMP_WARNING,)


@pytest.mark.parametrize("path", FLEETS, ids=lambda path: path.name)
def test_read_dump__with_nodes(path: Path) -> None:
    """They tell which partitions share machines."""
    found = read_dump(QUEUES[0], path)
    assert len(found.nodes) == len(orjson.loads(path.read_bytes())["nodes"])


def test_read_dump__clock_is_the_answers_own(tmp_path: Path) -> None:
    """Old answers tell none: then it is the file's."""
    assert read_dump(PUBLIC / "jobs-json-25.11-v0.0.44.json").now_s == 1_762_783_691.0
    copy = tmp_path / "old.json"
    copy.write_bytes((PUBLIC / "squeue-json-21.08-v0.0.37.json").read_bytes())
    os.utime(copy, (1_700_000_000.0, 1_700_000_000.0))
    found = read_dump(copy)
    assert (found.now_s, found.site.cluster) == (1_700_000_000.0, "cluster1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file or directory"),
        ("{\n]", "2: is not JSON"),
        ("[]", "is JSON, but no answer of Slurm"),
        ('{"nodes": []}', "has no list 'jobs'"),
        ('{"jobs": [{"job_id": 1}]}', "no job .* can be read: .*'job_state'"),
        ('{"jobs": [3]}', "no job of Slurm's JSON answer can be read"),
        ('{"jobs": [], "last_update": "yesterday"}', "not a number"),
    ],
)
def test_read_dump__of_something_else_names_the_file(tmp_path: Path, text: str | None, message: str) -> None:
    """What, where; never a traceback."""
    path = tmp_path / "queue.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_dump(path)
    assert str(caught.value).startswith(str(path))


def test_read_dump__accounting_is_no_queue() -> None:
    """sacct's jobs look alike and are another table."""
    with pytest.raises(InputError, match="no job of Slurm's JSON answer can be read"):
        read_dump(PUBLIC / "sacct-json-23.11.5.json")
