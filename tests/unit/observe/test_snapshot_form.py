"""A snapshot as plain values and arrays, and back."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import numpy as np
import orjson
import pytest

from slurmsched.allocation.job_memory import JobMemory
from slurmsched.model import (
    GpuSelection,
    GpuTopology,
    JobGpuRequest,
    Labels,
    LinkKind,
    Rights,
    Site,
    SiteTopology,
    Snapshot,
)
from slurmsched.observe.snapshot_file import KINDS, packed_value, unpacked
from slurmsched.testing.builders import mixed_snapshot, snapshot
from slurmsched.topology.slurm_selection import SlurmNode
from tests.unit.planning.node_lists.node_list_cases import list_overrides


def there_and_back(value: Any) -> Any:
    """Through JSON, as in the file."""
    arrays: dict[str, Any] = {}
    tree = orjson.loads(orjson.dumps(packed_value(value, "x", arrays)))
    left_out: list[str] = []
    made = unpacked(tree, {place: array.copy() for place, array in arrays.items()}, left_out)
    assert left_out == []
    return made


def same(ours: Any, theirs: Any) -> bool:
    """Whether two values are equal to the bit, of the same types, arrays read-only."""
    if isinstance(ours, np.ndarray):
        return (
            ours.dtype == theirs.dtype
            and not theirs.flags.writeable
            and np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f")
        )
    if is_dataclass(ours):
        return type(ours) is type(theirs) and all(
            same(getattr(ours, s.name), getattr(theirs, s.name)) for s in fields(ours)
        )
    if isinstance(ours, tuple):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return type(ours) is type(theirs) and ours == theirs


def test_form__gives_a_whole_snapshot_back() -> None:
    """Tables, texts, site, topology, history, warnings: all equal, and the digest with them."""
    wires = GpuTopology.build("n", 2, kind=[[0, LinkKind.NVLINK], [LinkKind.NVLINK, 0]], nics=(("mlx5_0",), ()))
    node = SlurmNode.build(((), ()), (), sockets=1, cores_per_socket=4)
    given = snapshot(
        mixed_snapshot(50).jobs,
        "4x8",
        now_s=12.5,
        history_gpu_s=[3.0, 1.0],
        warnings=("odd",),
        seed=7,
        site=Site("c", "24.11.5", Rights.OPERATOR, "root", {"PriorityType": "priority/multifactor"}),
        topology=SiteTopology((wires,), np.zeros(4, np.int64)),
        allocations=[{"job_id": 1, "node": "n1", "gpus": 2}],
        overrides=list_overrides(1, "n1", submit_s=2.0, since_s=3.0).records,
        gpu_selection=GpuSelection(
            (node,), np.zeros(4, np.int64), ((4,), (), (4,), (4,)), (26, 5), (JobGpuRequest(1, 2.0, "gpus", 2),)
        ),
    )
    made = there_and_back(given)
    assert same(given, made)
    assert made.digest == given.digest


@pytest.mark.parametrize("value", [
    1.5, math.inf, -math.inf, True, None, "", 2**62, [], [1.5, math.inf], [1, "a", None], (), (1, (2.5,)),
    {"a": {3: [4]}}, Rights.USER, Labels.of(["b", "a", "b"]), np.array([1, 2], np.int8),
])  # fmt: skip
def test_form__gives_each_kind_of_value_back(value: Any) -> None:
    """Equal, and of the same type."""
    if isinstance(value, np.ndarray | Labels):
        assert same(value, there_and_back(value))
    else:
        assert (there_and_back(value), type(there_and_back(value))) == (value, type(value))


def test_form__gives_a_policys_memory_back() -> None:
    """A mapping of columns becomes a mapping of lists, which policies read alike; NaN stays."""
    jobs = mixed_snapshot(20).jobs
    memory = JobMemory(("since_s",), np.array([jobs.job_id, jobs.first_submit_s, np.full(20, np.nan)]))
    made = there_and_back({"memory": memory})["memory"]
    assert (list(made), made["job_id"]) == (list(memory), memory["job_id"])
    assert all(math.isnan(value) for value in made["since_s"])


def test_form__knows_every_table_and_record_of_a_snapshot() -> None:
    """A field of a new class must not be what first fails at a site."""
    found, todo = set[type](), [Snapshot]
    while todo:
        kind = todo.pop()
        found.add(kind)
        hints = get_type_hints(kind).values()
        parts = [
            part for hint in hints for part in (hint, *get_args(hint)) if is_dataclass(part) and part is not Labels
        ]
        todo += [part for part in parts if part not in found]
    assert {kind.__name__ for kind in found} <= set(KINDS)


def test_form__names_what_it_has_no_form_for() -> None:
    """And where it is."""
    with pytest.raises(TypeError, match="carry/0 is a set"):
        packed_value({"a": {1}}, "carry", {})


def test_form__reads_files_of_older_and_newer_versions() -> None:
    """Fields that are missing hold their defaults, unknown ones are told."""
    arrays: dict[str, Any] = {}
    tree = packed_value(mixed_snapshot(5), "", arrays)
    del tree["fields"]["jobs"]["fields"]["cron"]
    del tree["fields"]["topology"]
    tree["fields"]["jobs"]["fields"]["colour"] = {"labels": "jobs/user", "names": ["red"]}
    tree["fields"]["phase"] = 3
    left_out: list[str] = []
    made = unpacked(tree, arrays, left_out)
    assert (made.jobs.cron.tolist(), made.topology.classes) == ([False] * 5, ())
    assert left_out == ["Snapshot.phase", "Jobs.colour"]


@pytest.mark.parametrize(
    "tree", [{"kind": "Planner", "fields": {}}, {"array": "no"}, {"float": "x"}, {}, {"labels": "a", "names": []}]
)
def test_form__refuses_what_is_no_tree(tree: Any) -> None:
    """Only the model's own classes are made, and texts must be there."""
    with pytest.raises((KeyError, TypeError, ValueError)):
        unpacked(tree, {"a": np.array([0], np.int32)}, [])
