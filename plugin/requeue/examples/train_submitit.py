"""A job of submitit that may be preempted: train_submitit.py STEPS STATE_FILE. Prints the job's id."""

import json
import os
import sys
import time

import submitit

WRAPPER = os.environ.get("WRAPPER", "slurmsched-requeue")
SETUP = [  # submitit waits for srun: the wrapper hands the signal that comes to the batch shell on to it
    '[ -n "${WRAPPED:-}" ] || { export WRAPPED=1; exec %s -g -s USR2 bash "$0"; }' % WRAPPER,
    "trap : USR2",
]


class Train:
    def __init__(self, steps, path):
        self.steps, self.path, self.step = steps, path, 0

    def __call__(self):
        begin = self.step
        while self.step < self.steps:
            time.sleep(0.1)  # where an optimiser's step would be
            self.step += 1
            with open(self.path + ".new", "w") as file:
                json.dump({"begin": begin, "step": self.step}, file)
            os.replace(self.path + ".new", self.path)

    def checkpoint(self):
        """submitit calls this at its signal and requeues the job, which calls what is returned."""
        return submitit.helpers.DelayedSubmission(self)


def main(steps, path):
    executor = submitit.SlurmExecutor(folder=os.path.dirname(os.path.abspath(path)))
    executor.update_parameters(
        time=60,
        nodes=1,
        gpus_per_node=1,
        comment="slurmsched: preempt=yes ckpt=USR2@120",
        setup=SETUP,
        additional_parameters={"requeue": True},
    )
    print(executor.submit(Train(steps, path)).job_id)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
