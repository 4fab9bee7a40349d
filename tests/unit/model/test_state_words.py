"""What a state printed as one word means."""

from __future__ import annotations

import pytest

from slurmsched.errors import UnreadableError
from slurmsched.model import JobState
from slurmsched.model.states import state_of_word


@pytest.mark.parametrize(
    ("word", "ran", "expected"),
    [
        ("PENDING", False, JobState.PENDING),
        ("RUNNING", True, JobState.RUNNING),
        ("CONFIGURING", True, JobState.RUNNING | JobState.CONFIGURING),
        ("COMPLETING", True, JobState.COMPLETING),
        ("COMPLETING", False, JobState.COMPLETING | JobState.PENDING),
        ("REQUEUE_HOLD", False, JobState.PENDING | JobState.REQUEUE_HOLD),
        ("SPECIAL_EXIT", False, JobState.PENDING | JobState.SPECIAL_EXIT),
        ("RESV_DEL_HOLD", False, JobState.PENDING | JobState.RESV_DEL_HOLD),
        ("STOPPED", True, JobState.RUNNING | JobState.STOPPED),
    ],
)
def test_state_of_word__adds_the_hidden_base_state(word, ran, expected):
    """squeue prints a flag instead of the state it goes with."""
    assert state_of_word(word, ran) == expected


def test_state_of_word__refuses_other_words():
    """A word of a future Slurm is an error."""
    with pytest.raises(UnreadableError, match="PONDERING"):
        state_of_word("PONDERING", False)
