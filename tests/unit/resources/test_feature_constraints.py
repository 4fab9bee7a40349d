"""Slurm's grammar of node features, and what it says of one node."""

from __future__ import annotations

import pytest

from slurmsched.resources.feature_constraints import match_constraint, parse_constraint

NODES = tuple(frozenset(text.split()) for text in ("a b ib", "a c", "b c", "d"))


@pytest.mark.parametrize(
    ("asked", "which"),
    [
        ("a", "yyn"), ("a,b", "ynn"), ("a&b", "ynn"),
        ("ib|c", "yyy"), ("a|b&c", "nyy"), ("a&b|c", "yyy"), ("a&(b|c)", "yyn"),
        ("(a|b)&c", "nyy"), ("b|a&(b|c)", "yyy"), ("[a|b]", "yyy"), ("a&[b|c]", "yyn"), ("[a|b]&c", "nyy"),
        ("[(a&b)|(b&c)]", "yny"), ("(a|b)&(ib|c)", "yyy"), ("x86_64_v4|gpu.a100|a", "yyn"),
    ],
)  # fmt: skip
def test_judge_constraint__of_one_node(asked, which):
    """From left to right, both signs bind alike; for one node brackets are parentheses. By srun -w on 26.05.5."""
    found = [match_constraint(asked, has, 1) for has in NODES]
    assert [one.meets for one in found] == [*(letter == "y" for letter in which), False]
    assert all(one.sure and not one.why for one in found)


@pytest.mark.parametrize("asked", ["a*2", "[a*2&b*3]", "rack1*2&rack2*1", "(a&b)*2", "[(a|b)*1&c*2]", "d&a*2"])
def test_judge_constraint__counts_are_not_judged(asked):
    """So many of its nodes have a feature: the others need not, so no node is ruled out and none is sure."""
    found = {match_constraint(asked, has, nodes) for has in NODES for nodes in (1, 2, 5)}
    assert {(one.meets, one.sure) for one in found} == {(True, False)}
    assert all(repr(asked) in one.why for one in found)


def test_judge_constraint__brackets_of_several_nodes():
    """All nodes have the same of them: none without any can be there, and for the others that is not enough."""
    found = [match_constraint("[ib|c]", has, 2) for has in NODES]
    assert [(one.meets, one.sure) for one in found] == [(True, False)] * 3 + [(False, False)]


@pytest.mark.parametrize(
    "asked",
    ["!a", "((a|b)&c)", "a&&b", "", '"a"', "a & b", "[a&b]", "a*0", "(a", "[a|b", "a)", "[[a]]", "([a|b])", "a*", "&a"],
)
def test_judge_constraint__what_slurm_does_not_take(asked):
    """Nothing is ruled out and nothing is sure."""
    assert parse_constraint(asked) is None
    found = match_constraint(asked, NODES[0], 1)
    assert (found.meets, found.sure, found.why != "") == (True, False, True)
