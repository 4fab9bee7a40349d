"""Reservations as scontrol prints them."""

from __future__ import annotations

import pytest

from slurmsched.slurm.scontrol_tables import LAST_32_BIT_TIME_S, parse_reservations

LINE = (
    "ReservationName={} StartTime=2026-11-29T00:32:24 EndTime=2026-11-29T01:32:24 Duration=01:00:00 Nodes=n1 NodeCnt=1 "
    "CoreCnt=64 Features=(null) PartitionName=(null) Flags=IGNORE_JOBS,SPEC_NODES TRES=cpu=64 AllowedPartitions=(null) "
    "QOS=(null) Users=bob Groups=(null) Accounts=(null) Licenses=(null){} BurstBuffer=(null) MaxStartDelay=(null)\n"
)


@pytest.mark.parametrize(("state", "to_come"), [(" State=INACTIVE", True), (" State=ACTIVE", False), ("", False)])
def test_parse_reservations__tells_whether_one_has_begun(state: str, to_come: bool) -> None:
    """By Slurm's own word and clock; where there is none it counts as begun. Names ascend."""
    found = parse_reservations(LINE.format("zz", state) + LINE.format("aa", " State=ACTIVE"))
    assert list(found.name) == ["aa", "zz"]
    assert found.to_come.tolist() == [False, to_come]
    assert (found.node_list[1], found.users[1], found.end_s[1] - found.start_s[1]) == ("n1", "bob", 3_600.0)


def test_parse_reservations__none() -> None:
    """The sentence is no reservation."""
    assert len(parse_reservations("No reservations in the system\n")) == 0


@pytest.mark.parametrize(
    ("good", "odd", "kept"),
    [("StartTime=2026-11-29T00:32:24", "StartTime=odd", {"start_s": 0.0}),
     ("EndTime=2026-11-29T01:32:24", "EndTime=9999999-01-01T00:00:00", {"end_s": LAST_32_BIT_TIME_S}),
     (" BurstBuffer", " NodeName=n1 CoreIDs=0-5000 BurstBuffer", {"cores": ""}),
     ("Nodes=n1 ", "Nodes=n[1- ", {"node_list": "n[1-"})],
)  # fmt: skip
def test_parse_reservations__one_that_is_odd_keeps_more_and_hides_no_other(good: str, odd: str, kept: object) -> None:
    """It has begun, never ends, and keeps whole nodes; the others are as they were."""
    text = LINE.format("aa", "").replace(good, odd)
    found = parse_reservations(text + LINE.format("zz", ""))
    assert odd in text
    assert {name: getattr(found, name)[0] for name in kept} == kept
    assert (list(found.name), found.node_list[1], found.users[0]) == (["aa", "zz"], "n1", "bob")
