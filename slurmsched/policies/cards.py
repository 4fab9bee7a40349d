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
