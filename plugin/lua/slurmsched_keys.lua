-- Written by `python -m slurmsched.cli.hints_lua`. kind: the parser of slurmsched_hints.lua.
return {
    { name = "preempt", kind = "yes_no", example = "preempt=yes", meaning = "The job may be stopped and requeued to let others run; it goes on from its last checkpoint." },
    { name = "ckpt", kind = "checkpoint", example = "ckpt=USR1@120", meaning = "Before the job is stopped it gets this signal and so much time to save itself. Names with or without SIG, or numbers." },
    { name = "restart", kind = "duration_s", example = "restart=90s", meaning = "What a restart costs: from the start of the job until it is again where its checkpoint was." },
    { name = "dur", kind = "duration_s", example = "dur=2h", meaning = "Expected run time of the whole job at the GPUs it asks for, without waiting. Not a limit." },
    { name = "deadline", kind = "deadline", example = "deadline=+12h", meaning = "When the job must have ended: a time as 2027-01-31T12:00 (local to the cluster unless a zone follows: Z or +01:00), or so long after submission." },
    { name = "progress", kind = "progress", example = "progress=30/90", meaning = "How far the job is, in any unit: steps, epochs, samples. A job may update it while it runs (`scontrol update jobid=$SLURM_JOB_ID comment=...`)." },
    { name = "loss", kind = "losses", example = "loss=2.3:0.9:0.8", meaning = "Loss of the first step, of the step before and of now, each a number of at least 0 (0.8, 9.9e-05), updated as `progress` is: a job whose loss still falls much has more to learn." },
    { name = "topo", kind = "topology", example = "topo=nvlink", meaning = "The widest cell its GPUs may span: one NVLink island, one NUMA node, one network switch, or anything." },
    { name = "share", kind = "yes_no", example = "share=no", meaning = "The job may share its GPUs with another one." },
    { name = "min_gpus", kind = "count", example = "min_gpus=2", meaning = "Fewest GPUs an elastic job can run on." },
    { name = "max_gpus", kind = "count", example = "max_gpus=16", meaning = "Most GPUs an elastic job can make use of." },
    { name = "mixed", kind = "yes_no", example = "mixed=yes", meaning = "The job may have GPUs of several types at once: it shares out its batch by how fast they are." },
    { name = "model", kind = "name", example = "model=resnet50", meaning = "What is trained: jobs of one model are taken to speed up and to share alike." },
    { name = "batch", kind = "count", example = "batch=512", meaning = "Global batch size, for estimators of throughput." },
    { name = "batches", kind = "counts", example = "batches=32:64:128", meaning = "Batch sizes that the job may change to while it runs; `batch` is the one it has now." },
}
