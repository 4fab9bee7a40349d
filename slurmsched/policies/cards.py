"""Sentences that cards of several policies share."""

from __future__ import annotations

MIXED_GANGS = (
    "Several GPU types at once: Slurm gives every node of a job the same, so that only a gang of several nodes with as "
    "many GPUs on each, and no type in its request, is sent to nodes of both. A job of one node is sent to the type "
    "with most of its GPUs. The components of a heterogeneous job are its user's."
)
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
    "Nobody shares GPUs by a policy: whoever asks for a whole GPU is left one, and which jobs are on one GPU is up to "
    "Slurm, among those that ask for shards or MPS. The second job of each pair goes after all others of the round, to "
    "GPUs of its own; time and progress are counted as if they shared, and `plan` tells how many there are."
)
