"""For programs that may be preempted: notice the signal, save whole files, go back to the queue. Standard library only.

    asked = Asked("USR1")                      # as in --comment="slurmsched: preempt=yes ckpt=USR1@120"
    for step in range(begin, steps):
        train(step)
        if asked:
            save("state.json", encoded_state)
            asked.leave()

See docs/checkpointing.md. Copy this file beside your program, or put its folder into PYTHONPATH.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

SAVED = 75  # EX_TEMPFAIL; slurmsched-requeue takes it as: saved, requeue me


class Asked:
    """True once one of the signals has come. Make it in the main thread, before the work begins."""

    def __init__(self, *names):
        self._since_s = None
        for name in names or ("USR1",):
            signal.signal(getattr(signal, "SIG" + name.upper().replace("SIG", "", 1)), self._on_signal)

    def _on_signal(self, number, frame):
        if self._since_s is None:
            self._since_s = time.monotonic()

    def __bool__(self):
        return self._since_s is not None

    @property
    def for_s(self):
        """Seconds since the first signal; 0.0 before it."""
        return 0.0 if self._since_s is None else time.monotonic() - self._since_s

    def leave(self):
        """End, all being saved, so that the job goes back to the queue; does not return.

        Under slurmsched-requeue, or as one of many tasks, the exit code is enough. A batch job that is this very
        program requeues itself.
        """
        if _is_batch_script() and subprocess.run(["scontrol", "requeue", _job()], check=False).returncode == 0:
            time.sleep(600)  # until Slurm ends us
        sys.exit(SAVED)


def save(path, content):
    """Write bytes or text so that path has the old content or the new, whatever happens in between."""
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(prefix=".saving-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content.encode() if isinstance(content, str) else content)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _job():
    """This job. A task of an array by its number: the last one has the id of the array, which means all tasks."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    return array + "_" + os.environ.get("SLURM_ARRAY_TASK_ID", "0") if array else os.environ["SLURM_JOB_ID"]


def _is_batch_script():
    """Whether Slurm started this program itself as the batch script (or a script that said exec); no task of srun's."""
    batch = os.environ.get("SLURM_STEP_ID", "-5") in ("-5", "4294967291")  # newer Slurms number the batch step too
    if "SLURM_JOB_ID" not in os.environ or not batch:
        return False
    try:
        with open("/proc/{}/comm".format(os.getppid())) as comm:
            return comm.read().startswith("slurmstepd")
    except OSError:
        return False
