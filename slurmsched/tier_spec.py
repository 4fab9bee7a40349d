"""What a configuration says of tiers and soft caps, read without numpy: every command loads the configuration."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TIERS = {
    "partition": "PriorityJobFactor of the partition, the highest of several",
    "qos": "priority of the QOS",
    "fair_share": "the site's own fair-share factor in N bands, as in fair_share:4",
    "account": "priority of the association (sacctmgr Priority=)",
    "priority": "Slurm's own priority without our lever in bands of W points, as in priority:1000",
}
NUMBERED = {"fair_share": "bands", "priority": "points"}
MOST = 2**31
_GPUS = re.compile(r"gpu(:[^\s:,=]+)?")
OWNERS = ("user", "account", "qos")


@dataclass(frozen=True, slots=True)
class Tier:
    """One key that goes before the policy. number: bands of fair_share, width of priority in points; else 0."""

    kind: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}" if self.number else self.kind


def read_tier(text: str) -> Tier:
    """The tier that a text such as "qos" or "fair_share:4" names. Raises ValueError."""
    kind, colon, number = text.partition(":")
    if kind not in TIERS:
        near = difflib.get_close_matches(kind, TIERS, 1, 0.5)
        raise ValueError(f"{text!r} is no tier" + (f", did you mean {near[0]}" if near else "")
                         + "; tiers are partition, qos, fair_share:N, account and priority:W")  # fmt: skip
    if kind not in NUMBERED:
        if colon:
            raise ValueError(f"{kind} takes no number, got {text!r}")
        return Tier(kind)
    if not (number.isascii() and number.isdecimal() and 1 <= int(number) < MOST):
        example = "fair_share:4" if kind == "fair_share" else "priority:1000"
        raise ValueError(f"{kind} needs a number of {NUMBERED[kind]} from 1 to {MOST - 1}, as in {example}")
    return Tier(kind, int(number))


def read_tiers(texts: Sequence[str]) -> tuple[Tier, ...]:
    """The tiers in their order, each kind once. Raises ValueError."""
    made = tuple(read_tier(text) for text in texts)
    kinds = [tier.kind for tier in made]
    for kind in kinds:
        if kinds.count(kind) > 1:
            raise ValueError(f"{kind} is named twice; each tier once")
    return made


def checked_tiers(texts: tuple[str, ...]) -> tuple[str, ...]:
    """The same texts. Raises ValueError for one that is no tier, and for a tier named twice."""
    read_tiers(texts)
    return texts


def checked_gpus(caps: Mapping[str, int]) -> Mapping[str, int]:
    """The same caps. Raises ValueError for a key that is neither "gpu" nor "gpu:TYPE"."""
    for key in caps:
        if not _GPUS.fullmatch(key):
            raise ValueError(f'{key!r} must be "gpu" for all GPUs or "gpu:TYPE" for those of one type')
    return caps


def checked_names(named: Mapping[str, Mapping[str, int]]) -> Mapping[str, Mapping[str, int]]:
    """The same mapping. Raises ValueError for a key that is not user:NAME, account:NAME or qos:NAME."""
    for key, caps in named.items():
        owner, _, name = key.partition(":")
        if owner not in OWNERS or not name:
            raise ValueError(f'{key!r} must be "user:NAME", "account:NAME" or "qos:NAME"')
        checked_gpus(caps)
    return named
