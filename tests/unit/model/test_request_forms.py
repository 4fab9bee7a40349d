"""A job's request in every form Slurm knows."""

from __future__ import annotations

import pytest

from slurmsched.errors import UnreadableError
from slurmsched.model.gres import NO_REQUEST, GpuRequest, RequestForms, read_request_forms

FORMS = [
    (RequestForms(per_node="gres/gpu:4"), GpuRequest(4, 0, 0, "gpu:4")),
    (RequestForms(per_node="gres:gpu:2", nodes=3), GpuRequest(6, 0, 0, "gpu:6")),
    (RequestForms(per_node="gpu:titanxp:1"), GpuRequest(1, 0, 0, "gpu:titanxp:1")),
    (RequestForms(per_job="gres/gpu:h100:1"), GpuRequest(1, 0, 0, "gpu:h100:1")),
    (RequestForms(per_job="gres/gpu:8", nodes=2), GpuRequest(8, 0, 0, "gpu:8")),
    (RequestForms(per_task="gres/gpu=2", tasks=2), GpuRequest(4, 0, 0, "gpu:4")),
    (RequestForms(per_task="cpu=4,gres/gpu=2", tasks=3), GpuRequest(6, 0, 0, "gpu:6")),
    (RequestForms(per_socket="gres/gpu:2", sockets=2, nodes=2), GpuRequest(8, 0, 0, "gpu:8")),
    (RequestForms(per_node="gres/gpu:h100:2,gres/gpu:h200:4", nodes=2), GpuRequest(12, 0, 0, "gpu:h100:4,gpu:h200:8")),
    (RequestForms(per_node="gres/gpu:1g.5gb:2"), GpuRequest(0, 2, 0, "gpu:1g.5gb:2")),
    (RequestForms(per_node="gres/shard:4", nodes=2), GpuRequest(0, 0, 8, "shard:8")),
    (RequestForms(per_node="gres/shard:4", per_job="gres/gpu:2"), GpuRequest(2, 0, 4, "gpu:2,shard:4")),
    (RequestForms(per_job="gres/gpu:8", per_node="gres/gpu:4", nodes=2), GpuRequest(8, 0, 0, "gpu:8")),
    (RequestForms(tres="cpu=1,mem=2G,node=1,gres/gpu=1"), GpuRequest(1, 0, 0, "gpu:1")),
    (RequestForms(per_node="N/A", per_job="N/A", tres="cpu=1,mem=2G"), NO_REQUEST),
    (RequestForms(), NO_REQUEST),
]


@pytest.mark.parametrize(("forms", "expected"), FORMS)
def test_asked__gives_one_normal_form(forms, expected):
    """Every option of sbatch comes to the GPUs of all nodes together."""
    assert read_request_forms(forms) == expected


def test_asked__believes_the_option_over_req_tres():
    """TresPerJob=gres/gpu:4 with ReqTRES gres/gpu=1 means four GPUs (seen on a 24.x site)."""
    assert (
        read_request_forms(RequestForms(per_job="gres/gpu:4", tres="cpu=4,mem=60G,node=1,billing=28,gres/gpu=1")).gpus
        == 4
    )


def test_asked__refuses_what_it_cannot_read():
    """A request outside the grammar is an error, not zero GPUs."""
    with pytest.raises(UnreadableError):
        read_request_forms(RequestForms(per_node="gres/gpu:4:4:"))
