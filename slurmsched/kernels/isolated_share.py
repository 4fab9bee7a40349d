"""When the jobs of a tenant would have ended alone on a fixed share of the GPUs."""

from __future__ import annotations

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.model.columns import Floats, Int64s

LEAST = 1e-9  # GPUs: what is left of a share below it is rounding


# Over 30 lines: one loop over events; each step changes the clock, the rest of each job and the ends.
@kernel(plain_below=512)
def ends_alone(submit_s: Floats, gpus: Int64s, duration_s: Floats, share: float) -> Floats:
    """When each job ends if its tenant has `share` GPUs for itself [s]. (J,) float64.

    Earlier jobs come first. Each holds the GPUs that it asked for, as far as the jobs before it leave any. It
    progresses in proportion. So the whole share works while enough GPUs are asked for.

    submit_s: (J,) float64, ascending.
    gpus: (J,) int64.
    duration_s: (J,) float64.
    share: GPUs, above 0; a fraction is allowed.
    Source: slurmsched; the isolated share of Mahajan et al. (Themis), NSDI '20, without loss by rounding.
    """
    jobs = submit_s.size
    remaining_gpu_s, ends = gpus * duration_s, np.full(jobs, -1.0)  # GPU s; an end below 0: not there yet
    now_s, head, came = 0.0, 0, 0
    while head < jobs:
        if head == came:
            now_s = max(now_s, submit_s[came])
        while came < jobs and submit_s[came] <= now_s:
            came += 1
        step_s, ending, stop, rest = np.inf if came == jobs else submit_s[came] - now_s, -1, head, share
        while stop < came and rest > LEAST:
            if ends[stop] < 0:
                held = min(float(gpus[stop]), rest)
                rest -= held
                if remaining_gpu_s[stop] / held <= step_s:
                    step_s, ending = remaining_gpu_s[stop] / held, stop
            stop += 1
        now_s = now_s + step_s if ending >= 0 else submit_s[came]
        rest = share
        for j in range(head, stop):
            if ends[j] < 0:
                held = min(float(gpus[j]), rest)
                rest -= held
                remaining_gpu_s[j] = 0.0 if j == ending else max(remaining_gpu_s[j] - held * step_s, 0.0)
                if remaining_gpu_s[j] == 0:
                    ends[j] = now_s
        while head < came and ends[head] >= 0:
            head += 1
    return ends
