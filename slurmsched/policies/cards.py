"""Sentences that cards of several policies share."""

from __future__ import annotations

PREEMPTS = (
    "An order stops no running job: with [preemption] enabled = true more urgent jobs take GPUs from those that may "
    "be requeued, after their quantum; without it the policy acts when GPUs come free."
)
PROMISED = "A job whose deadline cannot be promised is not refused: it waits as best effort, and the plan says so."
RESIZES = "Slurm does not resize a running job: it changes its size only by a requeue, from its last checkpoint."
ROUNDS = (
    "Rounds of minutes are too short for requeues of jobs that take long to start: on Slurm a round is the lease of "
    "[preemption] quantum_s, 30 minutes by default."
)
SHARDS = (
    "Nobody shares GPUs on Slurm, whatever `space_sharing` says: which jobs are on one GPU Slurm decides by the shards "
    "or MPS that they ask for, and a plan gives each GPU to one job. The second job of each pair goes after all others "
    "of the round, to GPUs of its own; `plan` tells how many there are."
)
