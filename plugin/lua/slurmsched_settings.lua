-- Settings of slurmsched's Lua plug-ins, beside them in the folder of slurm.conf. All are off; take out the dashes.
-- slurmctld reads this again when job_submit.lua changes: touch job_submit.lua after an edit.
return {
    -- defaults = { gpu = "preempt=yes ckpt=USR1@120", ["*"] = "preempt=no" }, -- hints that a job does not give
    -- gpus_per_node = true, -- one-node jobs with --gpus=N ask for --gpus-per-node=N instead
    -- guard = { nice = true, comment = true }, -- owners may not lower nice, nor change hints once a job has nodes
    -- refuse = true, -- a job with a hint that is wrong or unknown is not taken
    -- cli_filter = true, -- cli_filter.lua is on every login node: job_submit.lua does not say the same again
    -- explain = true, -- cli_filter.lua tells what each hint means, not only what is wrong
}
