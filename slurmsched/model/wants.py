"""What a policy wants of jobs besides their order."""

from __future__ import annotations

from dataclasses import dataclass

from slurmsched.model.columns import Floats, Int32s, Int64s, Labels


@dataclass(frozen=True, slots=True, eq=False)
class Wants:
    """Columns (N,) by row of snapshot.jobs; None, or the value named, leaves a job as it is.

    gpus: int32, GPUs that the job is to hold; 0 = as many as it asks for.
    gpu_type: the type it is to run on for now; "" = any that it may.
    start_s: float64, it is not to start before this time [Unix s]; -inf = whenever, inf = not as things are now.
    share: float64 in [0, 1], part of the time for which it is to hold GPUs in the long run; shown to people, the order
    of each round already follows it.
    beside: int64, id of the job on whose GPUs it is to run for now, which asks for as many and is beside none itself;
    -1 = on its own.
    """

    gpus: Int32s | None = None
    gpu_type: Labels | None = None
    start_s: Floats | None = None
    share: Floats | None = None
    beside: Int64s | None = None

    @property
    def columns(self) -> dict[str, Int32s | Int64s | Labels | Floats]:
        """The columns that are given, by name."""
        given = {"gpus": self.gpus, "gpu_type": self.gpu_type, "start_s": self.start_s, "share": self.share,
                 "beside": self.beside}  # fmt: skip
        return {name: column for name, column in given.items() if column is not None}
