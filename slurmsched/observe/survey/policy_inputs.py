"""The inputs of a policy that this site gives, those that it lacks, and the levers that are off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import numpy as np

from slurmsched.config import Config
from slurmsched.model import Jobs, PolicyInput, PolicyLever, Snapshot
from slurmsched.model.columns import Bools
from slurmsched.model.hints import parse_hints
from slurmsched.plain_text import pluralize, pluralize_of


def missing_inputs(snapshot: Snapshot, needs: Sequence[PolicyInput]) -> tuple[str, ...]:
    """One sentence for each of `needs` that this snapshot does not give, in their order; () if all is there.

    Only waiting and running jobs that ask for GPUs count.
    """
    jobs = snapshot.jobs
    live = jobs.take((jobs.pending | jobs.running) & (jobs.gpus > 0))
    answers = ((need, _RULES[need](snapshot, live)) for need in needs if need in _RULES)
    return tuple(f"{need.value}: {what}" for need, what in answers if what)


def disabled_levers(config: Config, uses: Sequence[PolicyLever]) -> tuple[str, ...]:
    """One sentence for each of these levers that the configuration keeps from Slurm, in their order."""
    switch = {
        PolicyLever.REQUEUE: ("preemption.enabled", config.preemption.enabled),
        PolicyLever.START: ("lever.start", config.lever.start),
        PolicyLever.SIZE: ("lever.size", config.lever.size),
        PolicyLever.GPU_TYPE: ("placement.types", config.placement.types),
    }
    return tuple(f"{use.name.lower().replace('_', ' ')}: {switch[use][0]} is false, so it is not written to Slurm"
                 for use in uses if use in switch and not switch[use][1])  # fmt: skip


def available_inputs(snapshot: Snapshot, needs: Sequence[PolicyInput]) -> tuple[str, ...]:
    """One sentence for each of `needs` that only time brings and that exists now."""
    past = snapshot.past
    if PolicyInput.PAST not in needs or not len(past):
        return ()
    since = datetime.fromtimestamp(float(past.end_s[0]), UTC).date()
    return (f"{PolicyInput.PAST.value}: {len(past):,} since {since}, of {pluralize(len(past.user.names), 'user')}",)


def _hinted(*fields: str) -> Callable[[Snapshot, Jobs], str]:
    """A rule: how many jobs give one of these hints."""

    def rule(_: Snapshot, jobs: Jobs) -> str:
        having: Bools = jobs.comment.map(
            lambda comment: any(getattr(parse_hints(comment), name) is not None for name in fields), np.bool_
        )
        words = " or ".join(f"{name.removesuffix('_s')}=" for name in fields)
        without = pluralize_of(int((~having).sum()), len(jobs), "job", "gives", "give")
        return "" if having.all() else f"{without} no {words} hint"

    return rule


def _past(snapshot: Snapshot, _: Jobs) -> str:
    known = max(len(snapshot.past), len(snapshot.history_gpu_s))
    return "" if known else "no job that ended is on record"


def _shares(snapshot: Snapshot, _: Jobs) -> str:
    return "" if snapshot.shares else "Slurm shows no account shares; all accounts count alike"


_RULES: dict[PolicyInput, Callable[[Snapshot, Jobs], str]] = {
    PolicyInput.PAST: _past,
    PolicyInput.SHARES: _shares,
    PolicyInput.DURATION: _hinted("dur_s"),
    PolicyInput.PROGRESS: _hinted("progress"),
    PolicyInput.DEADLINE: _hinted("deadline"),
    PolicyInput.SIZES: _hinted("min_gpus", "max_gpus"),
    PolicyInput.SPEED: _hinted("model"),
}
