"""What an estimate is made of, where an estimator can tell."""

from __future__ import annotations

from dataclasses import dataclass

from slurmsched.model.columns import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """Of each job: expected run time = usual_s times all its factors.

    names: (F,) what each factor stands for. value: (N, F) what the job has there, NaN = not known. factor: (N, F).
    usual_s: the run time of a job whose factors are all 1 [s].
    """

    names: tuple[str, ...]
    usual_s: float
    value: Floats
    factor: Floats
