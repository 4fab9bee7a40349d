"""More nodes than the lab has of its own, for tests of many."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live.lab import run, until

OWN = 4  # nodes that the lab has: n[1-4]


@contextmanager
def more_nodes(nodes: int, partition: str, shards: int = 0) -> Iterator[None]:
    """Nodes n5 and on, so many with the lab's own, and a partition of all; `labctl reset` takes them out again. shards:
    of each node."""
    conf, gres, more = Path("/etc/slurm/slurm.conf"), Path("/etc/slurm/gres.conf"), range(OWN + 1, nodes + 1)
    gres.write_text(gres.read_text().replace(f"n[1-{OWN}]", f"n[1-{nodes}]"))
    if shards:
        gres.write_text(gres.read_text() + f"NodeName=n[1-{nodes}] Name=shard Count={shards}\n")
        for old, new in (("GresTypes=gpu", "GresTypes=gpu,shard"), ("StorageTRES=", "StorageTRES=gres/shard,"),
                         ("Gres=gpu:a100:8", f"Gres=gpu:a100:8,shard:{shards}")):  # fmt: skip
            conf.write_text(conf.read_text().replace(old, new))
    ports = f"Port=[{17_001 + OWN}-{17_000 + nodes}]"
    lines = (f"NodeName=n[{more[0]}-{nodes}] NodeHostname=localhost NodeAddr=127.0.0.1 {ports} State=UNKNOWN",
             f"PartitionName={partition} Nodes=n[1-{nodes}] MaxTime=1:00:00")  # fmt: skip
    conf.write_text(conf.read_text() + "\n".join(lines) + "\n")
    for number in more:
        Path(f"/var/spool/slurmd/n{number}").mkdir(exist_ok=True)
    run("labctl", "restart", "slurmctld")
    for number in more:
        run("slurmd", "-N", f"n{number}")
    run("scontrol", "reconfigure")
    run("labctl", "wait-ready")
    try:
        yield
    finally:
        run("scancel", f"--partition={partition}", check=False)
        until(lambda: not run("squeue", "-h", "-p", partition, check=False).out, "its nodes are empty")
        for number in more:
            os.kill(int(Path(f"/run/slurm/slurmd-n{number}.pid").read_text()), signal.SIGTERM)
