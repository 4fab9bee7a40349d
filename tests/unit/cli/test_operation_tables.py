"""Steps of operations, node lists and requests as commands show them."""

from __future__ import annotations

import pytest

from slurmsched.cli import operation_tables
from slurmsched.model import AskSize, Operation, Purpose, Requeue, SetAdminComment, SetGpuRequest, SetNodeList, Victim
from slurmsched.observe.plan_rows import step_records
from slurmsched.observe.queue_rows import operation_records

KEY = (7, 1.0, "why", "pin-7")


@pytest.mark.parametrize(
    ("step", "word"),
    [
        (SetNodeList(*KEY, "n2"), "pin n2"),
        (SetNodeList(*KEY, ""), "unpin"),
        (SetGpuRequest(*KEY, "gpu:i0:2", "gpu:2", "gpu:2"), "ask gpu:i0:2"),
        (Requeue(*KEY), "requeue"),
        (SetAdminComment(*KEY, "slurmsched: node list n2"), "set AdminComment slurmsched: node list n2"),
        (SetAdminComment(*KEY, ""), "clear AdminComment"),
        (AskSize(*KEY, 8), "want 8 GPUs"),
        (AskSize(*KEY), "want no other size"),
    ],
)
def test_print_steps__says_what_is_done(step, word):
    """In a word or two, with the node or the request."""
    rows = []

    class Out:
        def table(self, head, body):
            rows.extend(body)

    operation_tables.print_steps(Out(), [step])
    assert rows == [("pin-7", word, 7, "why")]


def test_step_records__have_what_slurm_is_told():
    """As JSON: the request by Type."""
    (row,) = step_records([SetGpuRequest(*KEY, "gpu:i0:2", "gpu:2", "gpu:2")])
    assert row == {"job_id": 7, "step": "retype", "operation": "pin-7", "reason": "why", "gpus": "gpu:i0:2"}
    (row,) = step_records([AskSize(*KEY, 8)])
    assert row == {"job_id": 7, "step": "want", "operation": "pin-7", "reason": "why", "gpus": 8}


def test_print_operations__tells_what_each_victim_loses_and_by_what_that_is_known():
    """In words and as JSON; one on record from before that was known has its loss alone."""
    victims = (Victim(8, 0.0, 0, 4, lost_gpu_s=480.0, cost_by="its hint"), Victim(9, 0.0, 0, 0, lost_gpu_s=0.0))
    operation = Operation("7-1", Purpose.PREEMPT, 7, 0.0, "bob", "n1", 60.0, 1_000.0, victims)
    lines = []

    class Out:
        def line(self, text, style=""):
            lines.append(text)

    operation_tables.print_operations(Out(), [operation], 1_000.0)
    assert lines[1:] == [
        "  victim 8 loses about 120 s of work on 4 GPUs, a restart by its hint",
        "  victim 9 loses about 0 s of work on 0 GPUs",
    ]
    told = [(each["lost_gpu_s"], each["cost_by"]) for each in operation_records([operation])[0]["victims"]]
    assert told == [(480.0, "its hint"), (0.0, None)]
