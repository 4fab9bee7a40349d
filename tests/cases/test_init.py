"""`init` counts GPUs by the grammar that everything else uses."""

from __future__ import annotations

import re

from tests.cases.conftest import Run
from tests.cases.fake_slurm import FakeSlurm

SINFO = """batch|92|(null)
gpu|4|gpu:8(S:0-1),shard:32(S:0-1)
gpu|2|gpu:a100_3g.20gb:14(S:0-7),gpu:a100:1(S:0)
vis|1|gpu:gtx970:1,gpu:gtx1060:1
cloud|16|gpu:v100:8
mig|2|gpu:1g.5gb:7
odd|3|gpu:a100:?
"""


def test_init__counts_mig_devices_apart(on: Run):
    """A slice of a GPU is none; what cannot be read is said; a partition without GPUs is not named."""
    told = on(FakeSlurm(sinfo=SINFO), "init", "--stdout").out
    scope = [line for line in told.splitlines() if re.match(r"# \w+: \d", line)]
    assert scope == [
        "# cloud: 128 GPUs (v100) on 16 nodes",
        "# gpu: 34 GPUs and 28 MIG devices (a100, a100_3g.20gb) on 6 nodes",
        "# vis: 2 GPUs (gtx1060, gtx970) on 1 node",
        "# mig: 0 GPUs and 14 MIG devices (1g.5gb) on 2 nodes",
        "# odd: 0 GPUs on 0 nodes; the GPUs of 3 more nodes cannot be read",
    ]
