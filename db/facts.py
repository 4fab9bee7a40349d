"""What is seen, remembered and recorded of a job's runs. Times in Unix seconds, attained service in GPU seconds."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, nan
from typing import Protocol

SOURCES = ("observed", "requeue", "record", "sacct")  # from weak to strong


class EarlierRun(Protocol):
    """One record of `sacct -D`: a run, or the part of a run between two resizes."""

    @property
    def job_id(self) -> int: ...
    @property
    def submit_s(self) -> float: ...
    @property
    def start_s(self) -> float: ...
    @property
    def end_s(self) -> float: ...
    @property
    def suspended_s(self) -> float: ...
    @property
    def gpus(self) -> int: ...
    @property
    def state(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Sight:
    """One job as one snapshot shows it."""

    job_id: int
    submit_s: float
    restarts: int
    start_s: float
    end_s: float
    run_s: float
    gpus: int
    active: bool
    paused: bool
    finished: bool
    completed: bool

    @property
    def ran(self) -> bool:
        """Finished after a run that counts (a job cancelled in the queue has none)."""
        return self.finished and isfinite(self.start_s) and (self.run_s > 0 or self.completed)


@dataclass(frozen=True, slots=True)
class Service:
    """What is known of one job's runs.

    executed_s, gpu_s: sums over the closed runs; runs: number of the next one. run: number of the open run, -1 if
    none. mark_*: what the open run had at its last resize, suspension or resume. missing: runs that nobody saw;
    asks: how often sacct was asked for them in vain. gone_s: since when the job is out of the queue.
    """

    job_id: int
    first_submit_s: float
    submit_s: float
    restarts: int
    executed_s: float = 0.0
    gpu_s: float = 0.0
    runs: int = 0
    last_end_s: float = nan
    run: int = -1
    run_start_s: float = nan
    run_gpus: int = 0
    mark_executed_s: float = 0.0
    mark_gpu_s: float = 0.0
    suspended_s: float = 0.0
    paused: bool = False
    missing: int = 0
    asks: int = 0
    gone_s: float = nan


@dataclass(frozen=True, slots=True)
class RunStart:
    job_id: int
    first_submit_s: float
    run: int
    start_s: float
    gpus: int


@dataclass(frozen=True, slots=True)
class RunMark:
    job_id: int
    first_submit_s: float
    run: int
    seen_s: float
    executed_s: float
    gpu_s: float
    gpus: int
    suspended_s: float
    paused: bool


@dataclass(frozen=True, slots=True)
class RunEnd:
    job_id: int
    first_submit_s: float
    run: int
    start_s: float
    end_s: float
    executed_s: float
    gpu_s: float
    source: str


@dataclass(frozen=True, slots=True)
class Completion:
    job_id: int
    first_submit_s: float
    end_s: float
    executed_s: float
    gpu_s: float


Fact = RunStart | RunMark | RunEnd | Completion
