"""Shortest expected service first, each estimate explained, and jobs in pairs on the same GPUs: Lucid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from numpy.typing import NDArray

from slurmsched.allocation.job_packing import choose_hosts, sharing_scores
from slurmsched.allocation.job_times import known_or_last, service
from slurmsched.errors import ConfigError
from slurmsched.estimators.boosted_trees import Additive, scikit_learn_installed
from slurmsched.model import JobChanges, PolicyFamily, PolicyInfo, PolicyInput, Ranking, Snapshot
from slurmsched.model.ordering import ordered
from slurmsched.model.parameters import Count, check_ranges, check_words
from slurmsched.model.policy_info import ANY_PARTITION
from slurmsched.policies.qssf import learn_notes
from slurmsched.protocols import Estimator

_NO_MODEL = (
    "scikit-learn is not installed: lucid goes by history in the place of its additive model (pip install "
    "'slurmsched[trees]')",
)


@dataclass(frozen=True, slots=True)
class Lucid:
    """Least expected service first, GPUs times expected run time, and an explanation of each estimate.

    `why` has the number of the estimate's source (0 = the additive model) and the sharing score. With `pack` it also
    has the job on whose GPUs a job should run (-1 = on its own). Jobs without an estimate come last, in FIFO order.
    estimator: source of expected run times.
    tiny: words in names of models (hint `model=`) that use a GPU little; see allocation.job_packing.
    medium: words in names of models that use half a GPU.
    pack: jobs that find too few free GPUs share those of a running job.
    most_gpus: only jobs of at most this many GPUs share.
    Raises ConfigError for a parameter out of range.
    Source: Hu et al. (Lucid), ASPLOS '23: order, scores and rule of pairs. Its scores come from profiled GPU use by a
    decision tree, ours from hints and names of models.
    """

    preemptive: ClassVar[bool] = False
    learns: ClassVar[bool] = True
    about: ClassVar[PolicyInfo] = PolicyInfo(
        PolicyFamily.DURATION,
        "Hu et al.: Lucid, ASPLOS 2023",
        left_out=(
            "Pairs of features in the model of run times, profiled GPU use with its decision tree, and the forecast of "
            "load that switches packing off.",
            ANY_PARTITION,
        ),
        needs=(PolicyInput.PAST, PolicyInput.DURATION),
        on_slurm=(
            "The paper first runs every job for a short capped time on few GPUs to profile it: a job of Slurm has one "
            "time limit, and one that is stopped starts over, so nothing is profiled. Replays have that stage "
            "(--setting profile_gpus). A site may offer a short partition of few GPUs for test runs, which users "
            "submit to.",
            "The paper packs pairs of jobs on the same GPUs: Slurm shares a GPU only between jobs that ask for "
            "shards or MPS, and slurmsched asks for nothing that the user did not, so pairs are shown by their scores "
            "and not made. Replays make them.",
            "How much a job uses its GPUs is not told to Slurm: scores come from the hints share= and model=.",
        ),
        criteria={"expected_gpu_s": "expected to use {}", "run_s": "runs {}", "beside": "on GPUs of job {0+}"},
    )

    estimator: Estimator = field(default_factory=Additive)
    tiny: tuple[str, ...] = ()
    medium: tuple[str, ...] = ()
    pack: bool = False
    most_gpus: Count = 8

    def __post_init__(self) -> None:
        check_ranges(self)
        if not isinstance(self.pack, bool):
            raise ConfigError(f"must be true or false, got {self.pack!r}", key="policy.pack")
        for name in ("tiny", "medium"):
            check_words(name, getattr(self, name))

    def rank(self, snapshot: Snapshot) -> Ranking:
        jobs, estimates = snapshot.jobs, self.estimator.estimate(snapshot)
        run_s = known_or_last(estimates.total_s)
        gpu_s = service(run_s, jobs)
        score, order = sharing_scores(jobs, self.tiny, self.medium), ordered(jobs, gpu_s)
        why: Mapping[str, NDArray[Any]] = {"expected_gpu_s": gpu_s, "run_s": run_s, "estimate_source": estimates.source,
               "sharing_score": score}  # fmt: skip
        missing = isinstance(self.estimator, Additive) and not scikit_learn_installed()
        notes = (*learn_notes(snapshot, "lucid"), *_NO_MODEL[:missing])
        if not self.pack:
            return Ranking(order, why=why, notes=notes)
        host = choose_hosts(snapshot, order, score, gpu_s, self.most_gpus)
        why = {**why, "beside": host}
        return Ranking(order, why=why, notes=notes, changes=JobChanges(beside=host))
