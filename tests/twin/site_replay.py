"""The model on what a site has of a recorded day: sacct, slurm.conf, what Slurm prints; nothing of its log."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from slurmsched.model.job_outcomes import JobOutcomes
from slurmsched.model.trace import RecordedTrace
from slurmsched.sim.cluster_slurm_conf import CONFIG_FILE
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.traces.trace_io import load_trace
from tests.twin.fidelity import Fidelity, judged
from tests.twin.recording import Recording

POLICY = {"alone": "slurm", "srsf": "srsf"}
HISTORY = "sacct.txt"


def replayed_blind(recording: Recording, case: str, **settings: float) -> tuple[RecordedTrace, JobOutcomes]:
    """The history as `slurmsched compare` reads it, and what the model makes of it with its defaults.

    settings: fields of SlurmctldSettings.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in {**recording.files, CONFIG_FILE: config_text(recording)}.items():
            (folder / file).write_text(text)
        recorded = load_trace(folder / HISTORY)  # from an empty cluster on: a cold start, and all jobs count
        request = ReplayRequest(
            cluster=name, model="slurm", policy=POLICY[case], requeue=False, settings=settings,
        )  # fmt: skip
        session = ReplaySession(recorded.trace, request)
    return recorded, session.run().all_outcomes


def config_text(recording: Recording) -> str:
    """What is kept of `scontrol show config`."""
    return "".join(f"{key:<23} = {value}\n" for key, value in recording.settings.items())


def blind_fidelity(recorded: RecordedTrace, outcomes: JobOutcomes) -> Fidelity:
    """The recorded starts of the jobs that count beside the model's."""
    trace = recorded.trace
    model = dict(zip(outcomes.job_id.tolist(), outcomes.first_start_s.tolist(), strict=True))
    made = np.array([model.get(job, np.inf) for job in trace.job_id.tolist()])
    both = trace.counted & np.isfinite(made) & ~np.isnan(trace.start_s)
    return judged(trace.start_s[both], made[both], trace.submit_s[both])
