"""Which jobs ask for whole nodes, as squeue of either age tells."""

from __future__ import annotations

import pytest

from slurmsched.errors import UnreadableError
from slurmsched.slurm.job_options import ExclusiveJobs, exclusive_field, parse_exclusive

# What `squeue --Format=JobID:0|,FIELD:0` printed of jobs submitted without options, with --exclusive, with
# --oversubscribe and with --exclusive=user, on 24.11.5 and 26.05.5.
OLD = "4|USER\n3|YES\n2|NO\n1|OK\n"
NEW = "4|USER\n3|NO\n2|NODE\n1|NO\n"


@pytest.mark.parametrize(
    ("version", "field"),
    [("slurm-wlm 24.11.5", "OverSubscribe"), ("slurm 25.11.2", "OverSubscribe"), ("slurm-wlm 26.05.5", "Exclusive"),
     ("slurm 27.11.0", "Exclusive")],
)  # fmt: skip
def test_field_of__squeue_has_a_field_of_its_own_since_26_05(version, field):
    """The same word means another thing before and after."""
    assert exclusive_field(version)[0] == field


@pytest.mark.parametrize(("version", "text"), [("slurm 24.11.5", OLD), ("slurm 26.05.5", NEW)])
def test_exclusive__asks_in_the_words_of_its_version(version, text):
    """One squeue a time; its version is asked once."""
    asked = []

    class Commands:
        def run(self, *words: str) -> str:
            asked.append(words)
            return version if "--version" in words else text

    exclusive = ExclusiveJobs(Commands())
    assert (exclusive(), exclusive()) == (frozenset({2}), frozenset({2}))
    assert ["--version" in words for words in asked] == [True, False, False]


def test_exclusive__unreadable_answers_are_errors():
    """Nobody's nodes are cleared on a guess."""
    with pytest.raises(UnreadableError):
        exclusive_field("squeue")
    with pytest.raises(UnreadableError):
        parse_exclusive("x|NODE\n", "NODE")


@pytest.mark.parametrize("row", ["7", "7|", "7|NODE|NODE"])
def test_exclusive__a_row_of_another_form_asks_for_whole_nodes(row):
    """One row says nothing of the others; where in doubt a job needs more, not less."""
    assert parse_exclusive(f"1|NO\n{row}\n2|NODE\n", "NODE") == frozenset({2, 7})
