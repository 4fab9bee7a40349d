#!/bin/sh
# TaskProlog of slurm.conf: puts the GPUs of CUDA_VISIBLE_DEVICES in ring order, which is the order NCCL ranks want.
# The orders come from a table that `slurmsched topology rings` writes. Whatever is missing or not as expected: the
# task runs as it would have. $RING_TABLE: another table, for tests; Slurm gives a TaskProlog the job's variables.
table=${RING_TABLE:-/etc/slurm/slurmsched-rings}
held=${SLURM_STEP_GPUS:-$SLURM_JOB_GPUS}
[ -n "$CUDA_VISIBLE_DEVICES" ] && [ -n "$held" ] && [ -r "$table" ] || exit 0
awk -v node="$SLURMD_NODENAME" -v seen="$CUDA_VISIBLE_DEVICES" -v held="$held" '
$1 == "nodes" { ours = 0; for (i = 2; i <= NF; i++) if ($i == node || $i == "*") ours = 1 }
$1 == "ring" && ours && ($2 == seen || $2 == held) { ring[$2] = $3 }
END {
    if (seen in ring && split(seen, a, ",") < split(held, b, ",") || seen == held && seen in ring) {
        print "export CUDA_VISIBLE_DEVICES=" ring[seen]
        exit
    }
    # With ConstrainDevices a job sees its GPUs as 0 to n-1: the ring is told in those numbers.
    count = split(held, gpu, ",")
    for (i = 1; i <= count; i++) { place[gpu[i]] = i - 1; plain = plain (i > 1 ? "," : "") (i - 1) }
    if (!(held in ring) || seen != plain) exit
    split(ring[held], gpu, ",")
    for (i = 1; i <= count; i++) order = order (i > 1 ? "," : "") place[gpu[i]]
    print "export CUDA_VISIBLE_DEVICES=" order
}' "$table" 2>/dev/null
exit 0
