"""What `slurmsched init` reads of a site."""

from __future__ import annotations

from slurmsched.slurm.doctor.site_discovery import GpuPartition, discover_site, gpu_partitions
from tests.recorded.playback import Answer

SINFO = """cpu|100|(null)
gpu|4|gpu:a100:8(S:0-1)
gpu|2|gpu:h100:4,gpu:a100:2,nic:1
small|3|gpu:2
mig|1|gpu:1g.10gb:7(S:0),gpu:a100:1
fpga|2|fpga:gpu:1
odd|2|gpu:(nul):8
"""


def test_gpu_partitions__counts_gpus_of_every_kind_of_node() -> None:
    """Most GPUs first; types by name; MIG devices apart; without GPUs a partition is left out."""
    assert gpu_partitions(SINFO) == (
        GpuPartition("gpu", 6, 44, ("a100", "h100")),
        GpuPartition("small", 3, 6),
        GpuPartition("mig", 1, 1, ("1g.10gb", "a100"), mig=7),
        GpuPartition("odd", 0, 0, unread=2),
    )
    assert gpu_partitions("") == ()


class Answers:
    def start(self, program: str, *arguments: str) -> Answer:
        return Answer(self.run(program, *arguments))

    def run(self, program: str, *arguments: str) -> str:
        lines = {"SLURM_VERSION": "26.05.5", "ClusterName": "c", "SlurmUser": "slurm(64030)",
                 "PriorityType": "priority/basic", "AccountingStorageType": "(null)"}  # fmt: skip
        return SINFO if program == "sinfo" else "".join(f"{key} = {text}\n" for key, text in lines.items())


def test_first_look__tells_the_settings_that_matter() -> None:
    """As `scontrol show config` prints them."""
    found = discover_site(Answers())  # type: ignore[arg-type]
    assert (found.version, found.cluster, found.slurm_user) == ("26.05.5", "c", "slurm")
    assert (found.multifactor, found.slurmdbd, len(found.partitions)) == (False, False, 4)
