"""How gangs ask that may be on several GPU types at once."""

from __future__ import annotations

import pytest

from slurmsched.slurm.cons_tres import MixedGangRequests
from slurmsched.testing import snapshot
from tests.recorded.playback import Scontrol
from tests.unit.slurm.test_cons_tres import SITE, record, wait

GANG = {**wait(7), "nodes": 2, "comment": "slurmsched: mixed=yes"}


def test_gang_requests__reads_those_that_may_have_several_types() -> None:
    """One of three jobs that wait, once, on two nodes with as many GPUs on each."""
    slurm = Scontrol({7: record(nodes="2-2", tasks=2)})
    requests, at = MixedGangRequests(slurm), snapshot([GANG, wait(8), {**wait(9), "nodes": 2}], "2x8", site=SITE)
    for _ in range(2):
        gpu_selection = requests(at).gpu_selection
    assert gpu_selection is not None
    assert [
        (gpu_request.job_id, gpu_request.nodes, gpu_request.even) for gpu_request in gpu_selection.gpu_requests
    ] == [(7, 2, True)]
    assert (gpu_selection.kinds, gpu_selection.node_kind.tolist(), gpu_selection.version) == ((), [-1, -1], (26, 5, 5))
    assert len(slurm.calls) == 1


@pytest.mark.parametrize("change", [{"comment": ""}, {"nodes": 1}, {"comment": "slurmsched: mixed=no"}])
def test_gang_requests__asks_for_nothing_else(change: dict[str, object]) -> None:
    """No such gang waits: no process is started."""
    slurm, at = Scontrol({}), snapshot([{**GANG, **change}], "2x8", site=SITE)
    assert MixedGangRequests(slurm)(at) is at
    assert slurm.calls == []
