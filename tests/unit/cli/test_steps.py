"""Steps of acts, node lists and requests as commands show them."""

from __future__ import annotations

import pytest

from slurmsched.cli import steps
from slurmsched.model import PinNodes, Requeue, Retype

KEY = (7, 1.0, "why", "pin-7")


@pytest.mark.parametrize(
    ("step", "word"),
    [
        (PinNodes(*KEY, "n2"), "pin n2"),
        (PinNodes(*KEY, ""), "unpin"),
        (Retype(*KEY, "gpu:i0:2", "gpu:2", "gpu:2"), "ask gpu:i0:2"),
        (Requeue(*KEY), "requeue"),
    ],
)
def test_print_steps__says_what_is_done(step, word):
    """In a word or two, with the node or the request."""
    rows = []

    class Out:
        def table(self, head, body):
            rows.extend(body)

    steps.print_steps(Out(), [step])
    assert rows == [("pin-7", word, 7, "why")]


def test_step_rows__have_what_slurm_is_told():
    """As JSON: the request by Type."""
    (row,) = steps.step_rows([Retype(*KEY, "gpu:i0:2", "gpu:2", "gpu:2")])
    assert row == {"job_id": 7, "step": "retype", "act": "pin-7", "reason": "why", "gpus": "gpu:i0:2"}
