"""Kinds of nodes that the lab does not have of its own, for one file of live tests: GPUs without a type, shards, MPS,
specialised cores and memory, power saving, a partition with limits, weights of fair share and QOS."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live.lab import run, until

PLAIN, SHARDS, MPS, SPECIALISED, SAVING = "n5", "n6", "n7", "n8", "n9"
PARTITION, LIMITED = "kinds", "limited"
BOOTED = Path("/var/spool/slurmd/booted")  # ResumeProgram, which runs as SlurmUser, writes the nodes down here
SUSPEND_S = 4  # from the order to power a node down until it counts as off

_HOST = "NodeHostname=localhost NodeAddr=127.0.0.1 State=UNKNOWN"
_CONF = f"""
GresTypes=gpu,shard,mps
PriorityWeightFairshare=2000
PriorityWeightQOS=3000
SuspendProgram=/usr/local/bin/lab-suspend
ResumeProgram=/usr/local/bin/lab-resume
SuspendTime=86400
SuspendTimeout={SUSPEND_S}
ResumeTimeout=120
NodeName={PLAIN} {_HOST} Port=17005 Gres=gpu:8
NodeName={SHARDS} {_HOST} Port=17006 Gres=gpu:a100:4,shard:16
NodeName={MPS} {_HOST} Port=17007 Gres=gpu:4,mps:400
NodeName={SPECIALISED} {_HOST} Port=17008 CoreSpecCount=2 MemSpecLimit=16000
NodeName={SAVING} {_HOST} Port=17009
PartitionName={PARTITION} Nodes=n[5-9] MaxTime=1:00:00
PartitionName={LIMITED} Nodes={PLAIN},{SPECIALISED} MaxTime=1:00:00 MaxNodes=1 MaxCPUsPerNode=8
"""
_GRES = f"""NodeName={PLAIN} Name=gpu File=/dev/fakegpu[0-7]
NodeName={SHARDS} Name=gpu Type=a100 File=/dev/fakegpu[0-3]
NodeName={SHARDS} Name=shard Count=16
NodeName={MPS} Name=gpu File=/dev/fakegpu[0-3]
NodeName={MPS} Name=mps Count=400
NodeName={SPECIALISED},{SAVING} Name=gpu Type=a100 File=/dev/fakegpu[0-7]
"""
NODES = (PLAIN, SHARDS, MPS, SPECIALISED, SAVING)


@contextmanager
def node_kinds() -> Iterator[None]:
    """These nodes beside the lab's own, in partitions of their own; `labctl reset` takes them out again."""
    conf, gres = Path("/etc/slurm/slurm.conf"), Path("/etc/slurm/gres.conf")
    lines = [line for line in conf.read_text().splitlines(keepends=True) if not line.startswith("GresTypes=")]
    tracked = "AccountingStorageTRES="
    kept = (line.replace(tracked, f"{tracked}gres/shard,gres/mps,") for line in lines)
    conf.write_text("".join(kept) + _CONF)
    gres.write_text(gres.read_text() + _GRES)
    BOOTED.write_text("")
    BOOTED.chmod(0o666)
    for name, does in (("suspend", "exit 0"), ("resume", f'echo "$1" >>{BOOTED}')):
        program = Path(f"/usr/local/bin/lab-{name}")
        program.write_text(f"#!/bin/sh\n{does}\n")
        program.chmod(0o755)
    for name in NODES:
        Path(f"/var/spool/slurmd/{name}").mkdir(exist_ok=True)
    run("labctl", "restart", "slurmctld", "slurmd")
    for name in NODES:
        start(name)
    until(lambda: states() == {"idle"}, "its nodes are idle")
    try:
        yield
    finally:
        run("scancel", f"--partition={PARTITION}", check=False)
        until(lambda: not run("squeue", "-h", "-p", PARTITION, check=False).out, "its nodes are empty")
        for name in NODES:
            stop(name)


def states() -> set[str]:
    return set(run("sinfo", "-h", "-N", "-p", PARTITION, "-o", "%t").out.split())


def start(name: str) -> None:
    """As if the node booted: slurmctld, which waits for a boot, is told of one."""
    run("slurmd", "-b", "-N", name)


def stop(name: str) -> None:
    """As if the node were off."""
    path = Path(f"/run/slurm/slurmd-{name}.pid")
    try:
        pid = int(path.read_text())
        os.kill(pid, signal.SIGTERM)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return
    until(lambda: not Path(f"/proc/{pid}").exists(), f"{name} is off")
    path.unlink(missing_ok=True)
