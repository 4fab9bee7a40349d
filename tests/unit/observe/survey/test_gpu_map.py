from __future__ import annotations

import numpy as np
import pytest

from slurmsched.observe.survey.gpu_overview import CLOSED, FREE, HELD, STUCK, gpu_map, gpu_overview, linked_groups
from slurmsched.topology.gpu_links import machines
from tests.unit.observe.survey.survey_site import node, site
from tests.unit.observe.web.frame_samples import look


def test_map__says_who_holds_what():
    """By index; free GPUs of a node that drains are closed, those beside a job that took all CPUs are stranded."""
    snapshot = look()
    found = gpu_map(snapshot, frozenset(one.node for one in gpu_overview(snapshot).stranded))
    whats = [[gpu.what for gpu in one.gpus] for one in found]
    assert whats == [[HELD] * 4 + [FREE] * 4, [HELD] * 2 + [STUCK] * 6, [CLOSED] * 8]
    assert [(gpu.job_id, gpu.user) for gpu in found[0].gpus[:1]] == [(21, "carol")]
    assert [(one.standing, one.free, one.exact) for one in found] == [
        ("open", 4, True),
        ("open", 0, True),
        ("drained", 0, True),
    ]


def test_map__where_slurm_tells_only_counts():
    """As many as are held, by nobody known, and that it is not exact."""
    (one,) = gpu_map(site([node("n1", gpus_used=3, gpu_mask_used=0)]))
    assert ([gpu.what for gpu in one.gpus].count(HELD), one.exact, one.gpus[0].job_id) == (3, False, 0)


def test_map__counts_as_the_overview_does():
    """Free GPUs of all nodes, stranded ones included, are those of `gpus`."""
    snapshot = look()
    whats = [gpu.what for one in gpu_map(snapshot) for gpu in one.gpus]
    (v100,) = gpu_overview(snapshot).types
    assert (whats.count(FREE), whats.count(HELD), len(whats)) == (v100.free, v100.used, v100.gpus)


@pytest.mark.parametrize(("name", "expected"), [("dgx-1v", 1), ("bridged-pairs", 4)])
def test_groups__are_what_nvlink_joins(name, expected):
    """A mesh is one, bridged pairs are four; every GPU is in one, and each only linked to its own."""
    topology = machines()[name]
    groups = linked_groups(topology)
    assert len(set(groups)) == expected
    assert len(groups) == topology.gpus


def test_groups__where_nothing_is_known_of_the_wiring():
    """Not told."""
    (one,) = gpu_map(site([node("n1")], wired=False))
    assert np.unique([gpu.group for gpu in one.gpus]).tolist() == [-1]
