"""How far the model's start times are from Slurm's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model import JobState
from slurmsched.model.hostlists import expand_hostlist
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld
from tests.twin.recording import Recording


@dataclass(frozen=True)
class Fidelity:
    """Of the jobs that started in both. docs/fidelity.md defines each figure."""

    jobs: int
    pairs: int
    same_order: float
    in_order: float
    error_s: tuple[float, float, float]  # median, 95th percentile, largest
    same_second: float
    mean_wait_s: tuple[float, float]  # Slurm, model

    @property
    def wait_error(self) -> float:
        """Model's mean wait over Slurm's, less one."""
        return self.mean_wait_s[1] / self.mean_wait_s[0] - 1

    @property
    def row(self) -> str:
        """Columns of docs/fidelity.md."""
        mid, high, most = self.error_s
        real, made = self.mean_wait_s
        return (
            f"{self.jobs} | {self.in_order:.1%} | {self.same_order:.2%} of {self.pairs} | "
            f"{mid:.2f} / {high:.2f} / {most:.1f} | {self.same_second:.1%} | "
            f"{real:.2f} / {made:.2f} | {self.wait_error:+.2%} |"
        )


def compare(recording: Recording, cluster: SimulatedSlurmctld) -> Fidelity:
    """Slurm's starts beside the model's."""
    model = dict(zip(cluster.trace.job_id.tolist(), cluster.job.first_start_s.tolist(), strict=True))
    rows = [(e.start_s, model[e.job_id] + recording.origin_s, e.submit_s) for e in recording.ran if e.start_s]
    return judged(*np.array([row for row in rows if np.isfinite(row[1])]).T)


def judged(real: np.ndarray, made: np.ndarray, submit: np.ndarray) -> Fidelity:
    """Starts in Slurm and in the model, and submissions of the same jobs [s]. (J,), (J,), (J,)."""
    first, second = np.triu_indices(len(real), 1)
    apart = np.abs(real[first] - real[second]) >= 1.0
    agree = (real[first] - real[second]) * (made[first] - made[second]) > 0
    error = np.abs(made - real)
    return Fidelity(
        len(real), int(apart.sum()), float(agree[apart].mean()), longest_common(real, made) / len(real),
        (float(np.median(error)), float(np.percentile(error, 95)), float(error.max())),
        float((error < 1.0).mean()), (float((real - submit).mean()), float((made - submit).mean())),
    )  # fmt: skip


def longest_common(real: np.ndarray, made: np.ndarray) -> int:
    """Jobs in the longest subsequence that both orders have; jobs that Slurm started in one second may stand in any
    order."""
    order = np.lexsort((made, np.floor(real)))
    lengths = np.ones(len(order), np.int64)
    for j in range(len(order)):
        fits = made[order[:j]] <= made[order[j]]
        lengths[j] += lengths[:j][fits].max(initial=0)
    return int(lengths.max(initial=0))


def same_end(recording: Recording, cluster: SimulatedSlurmctld) -> bool:
    """Whether the model starts the same jobs as Slurm, and ends the same ones for a limit."""
    started = {job for job, at in zip(cluster.trace.job_id, cluster.job.first_start_s, strict=True) if np.isfinite(at)}
    over = {job for job, state in zip(cluster.trace.job_id, cluster.job.ended_as, strict=True)
            if state == int(JobState.TIMEOUT)}  # fmt: skip
    return started == {e.job_id for e in recording.ran if e.start_s} and over == {
        e.job_id for e in recording.ran if e.ended
    }


def other_nodes(recording: Recording, cluster: SimulatedSlurmctld) -> dict[int, tuple[str, str]]:
    """Jobs that the model gives other nodes than Slurm: both, as comma lists by name."""
    row = {job: row for row, job in enumerate(cluster.trace.job_id.tolist())}
    found = dict[int, tuple[str, str]]()
    for each in recording.ran:
        nodes = cluster.job.nodes.get(row[each.job_id], ())
        made = ",".join(sorted(cluster.layout.nodes[node].name for node in nodes))
        real = ",".join(sorted(expand_hostlist(each.node_list))) if each.node_list else ""
        if real and real != made:
            found[each.job_id] = real, made
    return found
