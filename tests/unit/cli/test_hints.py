from __future__ import annotations

import json


def test_check__explains_a_hint(run):
    """Each key with its value as understood."""
    answer = run("hints", "check", "run 17 slurmsched: dur=2h preempt=yes")
    assert answer.code == 0
    assert [line.split()[:2] for line in answer.out.splitlines()[1:]] == [["preempt", "yes"], ["dur", "2h"]]


def test_check__names_the_nearest_key_and_ends_with_2(run):
    """What is not understood is told, the rest still counts."""
    answer = run("hints", "check", "slurmsched: dur=2h ckp=USR1@60", "--json")
    told = json.loads(answer.out)
    assert (answer.code, list(told["hints"])) == (2, ["dur"])
    assert "did you mean ckpt?" in told["warnings"][0]


def test_check__of_a_comment_without_hints(run):
    """A comment of the user's own is no mistake."""
    answer = run("hints", "check", "my comment")
    assert (answer.code, answer.out) == (0, "no hints: nothing follows 'slurmsched:'\n")
