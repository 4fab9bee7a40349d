"""For programs in a job: tell slurmsched how the job does, and read what is wanted of it. Standard library only.

    from slurmsched_job import report, wants

    for step in range(begin, steps):
        train(step)
        report(progress=(step + 1, steps), throughput=samples / seconds, batch=64)
        asked = wants()
        if asked.stop or asked.checkpoint or asked.gpus not in (0, held):
            ...

`report` never raises for want of a folder and costs nothing when it is called too soon, so it may stand in every step.
See docs/talking-jobs.md. Copy this file beside your program, or put its folder into PYTHONPATH.
"""

import collections
import contextlib
import os
import shutil
import subprocess
import tempfile
import time

FOLDER = "/var/spool/slurmsched/jobs"
KEYS = ("progress", "loss", "batch", "throughput", "noise", "metric")
Wants = collections.namedtuple("Wants", "gpus checkpoint stop")
_last_s = {}


def report(every_s=30.0, **values):
    """Tell these: progress=(done, total), loss=(first, before, now), batch, throughput, noise, metric; True if told.

    At most once in every_s seconds: a call that comes sooner does nothing. Raises ValueError for another name.
    """
    unknown = [name for name in values if name not in KEYS]
    if unknown or not values:
        raise ValueError("report takes {}, got {}".format(", ".join(KEYS), ", ".join(unknown) or "nothing"))
    job, now_s = os.environ.get("SLURM_JOB_ID", ""), time.monotonic()
    if not job.isdigit() or now_s - _last_s.get(job, -every_s) < every_s:
        return False
    _last_s[job] = now_s
    words = " ".join("{}={}".format(name, _text(name, value)) for name, value in values.items())
    folder = os.path.join(_folder(), "reports")
    if os.path.isdir(folder) and os.access(folder, os.W_OK):
        return _to_folder(folder, job, words)
    return _by_script(words)


def wants():
    """What slurmsched wants of the job: gpus (0 = no other size), checkpoint (when it was asked for, 0 = not), stop.

    A size that was asked of the run before a requeue is not wanted of this one: it would come back for it for ever.
    """
    found = {}
    try:
        with open(os.path.join(_folder(), "wants", os.environ.get("SLURM_JOB_ID", ""))) as lines:
            for line in lines:
                key, _, value = line.strip().partition("=")
                found[key] = value
    except OSError:
        pass
    run = os.environ.get("SLURM_RESTART_COUNT") or "0"
    gpus = found.get("gpus") if found.get("run", run) == run else ""
    return Wants(_whole(gpus), _whole(found.get("checkpoint")), found.get("stop") == "yes")


def _folder():
    return os.environ.get("SLURMSCHED_JOBS", FOLDER)


def _text(name, value):
    parts = value if isinstance(value, (tuple, list)) else (value,)
    return {"progress": "/", "loss": ":"}.get(name, ":").join(_number(part) for part in parts)


def _number(value):
    return str(value) if isinstance(value, int) else "{:.10g}".format(float(value))


def _whole(text):
    return int(text) if text and text.isdigit() else 0


def _to_folder(folder, job, words):
    made = ""
    try:
        handle, made = tempfile.mkstemp(prefix="." + job + ".", dir=folder)
        with os.fdopen(handle, "w") as out:
            os.chmod(made, 0o644)  # slurmsched must read it
            out.write("time={} {}\n".format(int(time.time()), words))
        os.replace(made, os.path.join(folder, job))
    except OSError:
        if made:
            _remove(made)
        return False
    return True


def _remove(path):
    with contextlib.suppress(OSError):
        os.unlink(path)


def _by_script(words):
    """Into the job's comment, as slurmsched-job does it: the one in PATH, else the one beside this file."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slurmsched-job")
    script = shutil.which("slurmsched-job") or beside
    try:
        return subprocess.run([script, "report", *words.split()], check=False, timeout=30).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
