"""Hostlists to names and back, whoever wrote them."""

from __future__ import annotations

import re

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given
from hypothesis import strategies as st

from slurmsched.model import hostlists
from slurmsched.model.hostlists import (
    counting_key,
    expand_hostlist,
    fold_hostlist,
    folded,
    same_hosts,
    split_comma_list,
)

RANGES = st.tuples(st.integers(0, 30), st.integers(0, 9)).map(lambda pair: f"{pair[0]}-{pair[0] + pair[1]}")
GROUPS = st.lists(RANGES | st.integers(0, 99).map(str), min_size=1, max_size=3).map(lambda each: f"[{','.join(each)}]")
NAMES = st.lists(st.tuples(st.sampled_from("nx"), GROUPS, st.just("") | GROUPS.map("y".__add__)), min_size=1)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[123456789012345-123456789012346]", ("n123456789012345", "n123456789012346")),
        ("n[123456789012345,7]", ("n123456789012345", "n7")),
        ("n[1-3,7]", ("n1", "n2", "n3", "n7")),
        ("n[08-10]", ("n08", "n09", "n10")),
        ("a,b", ("a", "b")),
        ("", ()),
    ],
)
def test_expand__names_in_their_order(text, names):
    """Padding stays; what has no brackets is a comma list."""
    assert expand_hostlist(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "n[1-99999999]",
        "r[1-9999]n[1-9999]",
        "n[1-2000000]",
        "n[1-123456789012345]",
        "a,n[1-9999999],b",
        "n[00000000000001-9999999]",
    ],
)
def test_expand__more_names_than_any_cluster_has_are_refused_at_once(text):
    """A typing error, or a user who would have us use up the memory."""
    with pytest.raises(ValueError, match="more than 1048576 names"):
        expand_hostlist(text)


NO_LISTS = ("n[1-", "n[]", "n[5-1]", "n[a-b]", "n[[1-3]]", "[", "n[0-8:2]", "n[0-8/2]", "n[1-5]!n[3]", "n[1-5]&n[3-9]",
            "n[1-5]^n[2-9]")  # fmt: skip


@pytest.mark.parametrize("text", NO_LISTS)
def test_expand__what_is_none_is_refused(text):
    """With a ValueError, whatever the library raises; what only the library understands is none of Slurm's."""
    with pytest.raises(ValueError, match="not a hostlist"):
        expand_hostlist(text)


@given(NAMES)
def test_expand__counts_at_least_the_names_that_there_are(parts):
    """No list is longer than it was counted, so that the bound holds; twice the same name is counted twice."""
    text = ",".join("".join(part) for part in parts)
    assert len(NodeSet(text, resolver=RESOLVER_NOGROUP)) <= hostlists._spanned(text)


def test_fold__is_expand_turned_round():
    """And two ways to write the same are the same."""
    assert expand_hostlist(fold_hostlist(("n1", "n2", "n4"))) == ("n1", "n2", "n4")
    assert same_hosts("n[1-2]", "n2,n1")
    assert not same_hosts("n[1-2]", "n[1-")


HEADS = st.sampled_from(["n", "rack1-n", "rack01-n", "r2n", "x.y", "p0x", "-", ""])
WIDTHS = st.tuples(HEADS, st.integers(0, 120), st.sampled_from([0, 0, 2, 3]))
HOSTS = WIDTHS.map(lambda parts: f"{parts[0]}{parts[1]:0{parts[2]}}") | st.sampled_from(["login", "n", "n1z"])


@given(st.lists(HOSTS, max_size=12))
def test_fold__is_what_clustershell_makes_of_the_names(names):
    """Whatever their order, with leading zeros or not, and where a name occurs twice."""
    assert fold_hostlist(names) == str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))


@pytest.mark.parametrize(
    ("text", "names"),
    [("n1[8-12]", ("n18", "n19", "n110", "n111", "n112")), ("2[1-3]", ("21", "22", "23")),
     ("r1[2-3]n[09-10]", ("r12n09", "r12n10", "r13n09", "r13n10")), ("n[10,2]", ("n10", "n2"))],
)  # fmt: skip
def test_expand__digits_before_a_bracket_are_part_of_the_name(text, names):
    """As slurmctld: n1[8-12] is five nodes, not the 95 from n18 to n112."""
    assert expand_hostlist(text) == names


@pytest.mark.parametrize("text", ["n[5-2]", "n[1-2", "n[1-2],", "n[1--2]", "n[٣-5]", "n[1_0-2]", "n[]", "n[1-2]]"])
def test_expand__of_no_hostlist_is_an_error(text):
    """Nothing is made up."""
    with pytest.raises(ValueError, match="not a hostlist"):
        expand_hostlist(text)


@given(st.text("a,[]()1", max_size=30), st.sampled_from(["[]", "()"]))
def test_split_list__at_commas_outside_brackets(text, brackets):
    """Broken brackets too: as a look ahead from each comma finds it, which takes the square of the length."""
    opening, closing = map(re.escape, brackets)
    assert split_comma_list(text, brackets) == re.split(rf",(?![^{opening}]*{closing})", text)


def test_split_list__looks_at_each_comma_once():
    """A list of a million commas ends; by looking ahead from each it would take hours."""
    assert len(split_comma_list("," * 1_000_000)) == 1_000_001


def test_counting_key__sorts_names_as_people_count():
    """n2 before n10, and rack by rack; digits of other scripts are letters."""
    assert sorted(["n10", "n2", "n1", "rack2n1", "rack10n1", "n²"], key=counting_key) == [
        "n1", "n2", "n10", "n²", "rack2n1", "rack10n1",
    ]  # fmt: skip


def test_folded__is_in_that_order_too():
    """A text that is no hostlist stays as it is."""
    assert [folded(text) for text in ("n[10,2,1]", "n3", "", "n[1-", "a,b[2,1]")] == [
        "n[1-2,10]", "n3", "", "n[1-", "a,b[1-2]",
    ]  # fmt: skip
