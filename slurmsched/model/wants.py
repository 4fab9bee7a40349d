"""What a policy wants of jobs besides their order."""

from __future__ import annotations

from dataclasses import dataclass

from slurmsched.model.columns import Floats, Int32s, Int64s, Labels


@dataclass(frozen=True, slots=True, eq=False)
class Wants:
    """Columns (N,) by row of snapshot.jobs; None, or the value named, leaves a job as it is.

    gpus: int32, GPUs that the job is to hold; 0 = as many as it asks for.
    gpu_type: the type it is to run on for now; "" = any that it may.
    gpus_by_type: what it is to hold of several types at once, as a request in normal form ("gpu:k80:2,gpu:v100:4"),
    in sum as many as it is to hold; "" = one type at most. gpu_type is then for clusters that give it one type only.
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
    gpus_by_type: Labels | None = None

    @property
    def columns(self) -> dict[str, Int32s | Int64s | Labels | Floats]:
        """The columns that are given, by name."""
        given = {"gpus": self.gpus, "gpu_type": self.gpu_type, "gpus_by_type": self.gpus_by_type,
                 "start_s": self.start_s, "share": self.share, "beside": self.beside}  # fmt: skip
        return {name: column for name, column in given.items() if column is not None}


def types_of(request: str) -> dict[str, int]:
    """GPUs of each type that a request in normal form names: "gpu:k80:2,gpu:v100:4" -> {"k80": 2, "v100": 4}."""
    parts = (part.split(":") for part in request.split(",") if part.count(":") == 2)
    return {name: int(gpus) for _, name, gpus in parts}


def request_of(gpus: dict[str, int]) -> str:
    """The reverse of types_of, in ascending order of types."""
    return ",".join(f"gpu:{name}:{gpus[name]}" for name in sorted(gpus))
