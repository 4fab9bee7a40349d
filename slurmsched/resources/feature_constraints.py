"""Slurm's grammar of node features (`--constraint`), and whether one node can be of a job that asks for it.

    constraint := part (("&" | "," | "|") part)*      (read from left to right, both signs bind alike)
    part       := name ["*" count] | "(" names ")" ["*" count] | "[" constraint "]"

`[a|b]`: all nodes of the job have one and the same of these. `[a*2&b*3]` and `a*4`: that many of its nodes have them.
Source: build_feature_list in Slurm's job_scheduler.c, job_features.c; tried on 26.05.5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_TOKEN = re.compile(r"(?P<sign>[&|,])|(?P<open>[(\[])|(?P<close>[)\]])|\*(?P<count>\d+)|(?P<name>[^\s&|,()\[\]*!\"']+)")
_PAIR = {"(": ")", "[": "]"}


@dataclass(frozen=True, slots=True)
class ConstraintMatch:
    """Of one node and one constraint.

    meets: whether the node can be of such a job.
    sure: whether that alone says so; else more is asked of the nodes together, or the constraint could not be read.
    why: what was not looked at.
    """

    meets: bool
    sure: bool = True
    why: str = ""


@lru_cache(maxsize=1 << 14)
def match_constraint(text: str, features: frozenset[str], nodes: int) -> ConstraintMatch:
    """Whether a node with these features can be of a job of that many nodes (0 = not known) with this constraint.

    A node that cannot be is told as such even where the whole was not looked at: one of `[a|b]` has a or b.
    """
    parts = parse_constraint(text)
    if parts is None:
        return ConstraintMatch(True, False, f"its constraint {text!r} (a form that is not understood)")
    if _has_counts(parts):
        return ConstraintMatch(True, False, f"its constraint {text!r} (how many nodes have a feature)")
    met = _term_holds(parts, features)
    if nodes == 1 or not any(part.bracket for part in parts):
        return ConstraintMatch(met)
    return ConstraintMatch(
        met, False, f"its constraint {text!r} (whether all its nodes have the same of the features in brackets)"
    )


@dataclass(frozen=True, slots=True)
class FeatureTerm:
    """One operand.

    sign: what joins it to those before it, "&" or "|".
    inner: of a group.
    count: 0 = none is given.
    bracket: whether the group is in square brackets.
    """

    sign: str
    name: str = ""
    inner: tuple[FeatureTerm, ...] = ()
    count: int = 0
    bracket: bool = False


@lru_cache(maxsize=1 << 12)
def parse_constraint(text: str) -> tuple[FeatureTerm, ...] | None:
    """The operands of a constraint; None for a text that is none of Slurm's."""
    tokens, at = list[tuple[str, str]](), 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            return None
        kind = str(found.lastgroup)
        tokens.append((kind, found[kind]))
        at = found.end()
    parsed = _group(tokens, 0, "")
    return parsed[0] if parsed is not None and parsed[1] == len(tokens) else None


def _group(tokens: list[tuple[str, str]], at: int, ends: str) -> tuple[tuple[FeatureTerm, ...], int] | None:
    """Operands up to the closing sign (or the end), and the token after it; None where the grammar is broken."""
    parts, sign = list[FeatureTerm](), "&"
    while at < len(tokens):
        operand = _operand(tokens, at, sign, ends)
        if operand is None:
            return None
        part, at = operand
        if at < len(tokens) and tokens[at][0] == "count":
            part, at = FeatureTerm(part.sign, part.name, part.inner, int(tokens[at][1]), part.bracket), at + 1
            if not part.count or part.bracket:
                return None
        parts.append(part)
        if at == len(tokens) or tokens[at][0] == "close":
            return _closed_group(parts, tokens, at, ends)
        if tokens[at][0] != "sign":
            return None
        sign, at = "|" if tokens[at][1] == "|" else "&", at + 1
    return None


def _operand(tokens: list[tuple[str, str]], at: int, sign: str, within: str) -> tuple[FeatureTerm, int] | None:
    kind, text = tokens[at]
    if kind == "name":
        return FeatureTerm(sign, text), at + 1
    if kind != "open" or within == ")" or (text == "[" and within):
        return None  # Slurm nests parentheses in brackets, nothing else
    inner = _group(tokens, at + 1, _PAIR[text])
    if inner is None or (text == "[" and not _has_counts(inner[0]) and any(one.sign == "&" for one in inner[0][1:])):
        return None  # "[a&b]" without counts
    return FeatureTerm(sign, "", inner[0], bracket=text == "["), inner[1]


def _closed_group(
    parts: list[FeatureTerm], tokens: list[tuple[str, str]], at: int, ends: str
) -> tuple[tuple[FeatureTerm, ...], int] | None:
    if at == len(tokens):
        return (tuple(parts), at) if not ends else None
    return (tuple(parts), at + 1) if tokens[at][1] == ends else None


def _term_holds(parts: tuple[FeatureTerm, ...], features: frozenset[str]) -> bool:
    """Whether a node with these features meets them, from left to right."""
    met = True
    for part in parts:
        one = part.name in features if part.name else _term_holds(part.inner, features)
        met = (met or one) if part.sign == "|" else (met and one)
    return met


def _has_counts(parts: tuple[FeatureTerm, ...]) -> bool:
    return any(part.count or _has_counts(part.inner) for part in parts)
