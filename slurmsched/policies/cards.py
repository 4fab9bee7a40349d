"""Sentences that cards of several policies share."""

from __future__ import annotations

PREEMPTS = (
    "An order stops no running job: with [preemption] enabled = true more urgent jobs take GPUs from those that may "
    "be requeued, after their quantum; without it the policy acts when GPUs come free."
)
ROUNDS = (
    "Rounds of minutes are too short for requeues of jobs that take long to start: on Slurm a round is the lease of "
    "[preemption] quantum_s, 30 minutes by default."
)
