"""What a policy would need of this site and does not find here, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import numpy as np

from slurmsched.config import Config
from slurmsched.model import Input, Jobs, Snapshot, Use
from slurmsched.model.columns import Bools
from slurmsched.model.hints import parse_hints
from slurmsched.words import some, some_of


def lacking(snapshot: Snapshot, needs: Sequence[Input]) -> tuple[str, ...]:
    """One sentence for each of `needs` that this snapshot does not give, in their order; () if all is there.

    Only waiting and running jobs that ask for GPUs count.
    """
    jobs = snapshot.jobs
    live = jobs.take((jobs.pending | jobs.running) & (jobs.gpus > 0))
    told = ((need, _RULES[need](snapshot, live)) for need in needs if need in _RULES)
    return tuple(f"{need.value}: {what}" for need, what in told if what)


def switched_off(config: Config, uses: Sequence[Use]) -> tuple[str, ...]:
    """One sentence for each of these levers that the configuration keeps from Slurm, in their order."""
    switch = {
        Use.REQUEUE: ("preemption.enabled", config.preemption.enabled),
        Use.START: ("lever.start", config.lever.start),
        Use.SIZE: ("lever.size", config.lever.size),
        Use.GPU_TYPE: ("placement.types", config.placement.types),
    }
    return tuple(f"{use.name.lower().replace('_', ' ')}: {switch[use][0]} is false, and Slurm is not told"
                 for use in uses if use in switch and not switch[use][1])  # fmt: skip


def given(snapshot: Snapshot, needs: Sequence[Input]) -> tuple[str, ...]:
    """One sentence for each of `needs` that only time brings and that is there by now."""
    past = snapshot.past
    if Input.PAST not in needs or not len(past):
        return ()
    since = datetime.fromtimestamp(float(past.end_s[0]), UTC).date()
    return (f"{Input.PAST.value}: {len(past):,} since {since}, of {some(len(past.user.names), 'user')}",)


def _hinted(*fields: str) -> Callable[[Snapshot, Jobs], str]:
    """A rule: how many jobs give one of these hints."""

    def rule(_: Snapshot, jobs: Jobs) -> str:
        having: Bools = jobs.comment.map(
            lambda comment: any(getattr(parse_hints(comment), name) is not None for name in fields), np.bool_
        )
        words = " or ".join(f"{name.removesuffix('_s')}=" for name in fields)
        told = some_of(int((~having).sum()), len(jobs), "job", "gives", "give")
        return "" if having.all() else f"{told} no {words} hint"

    return rule


def _past(snapshot: Snapshot, _: Jobs) -> str:
    known = max(len(snapshot.past), len(snapshot.history_gpu_s))
    return "" if known else "no job that ended is on record"


def _shares(snapshot: Snapshot, _: Jobs) -> str:
    return "" if snapshot.shares else "Slurm tells no shares of accounts; every account counts alike"


_RULES: dict[Input, Callable[[Snapshot, Jobs], str]] = {
    Input.PAST: _past,
    Input.SHARES: _shares,
    Input.DURATION: _hinted("dur_s"),
    Input.PROGRESS: _hinted("progress"),
    Input.DEADLINE: _hinted("deadline"),
    Input.SIZES: _hinted("min_gpus", "max_gpus"),
    Input.SPEED: _hinted("model"),
}
