"""A Slurm that only answers: squeue, scontrol, sprio, sinfo, sdiag and the accounting commands, from a few texts.

A time is written @NOW@, @NOW-600@ or @NOW+600@.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.recorded.playback import Answer

_JOB = {
    "Nice": "0", "PriorityLong": "1000", "SubmitTime": "@NOW-600@", "EligibleTime": "@NOW-600@", "UserName": "alice",
    "Account": "phys", "Partition": "gpu", "QOS": "normal", "State": "PENDING", "Reason": "Priority",
    "Reservation": "(null)", "TimeLimit": "1:00:00", "NumNodes": "1", "NumCPUs": "1", "NumTasks": "1", "Sockets": "*",
    "tres-alloc": "cpu=1,mem=1G,node=1,billing=1", "RestartCnt": "0", "Requeue": "1", "BatchFlag": "1",
    "Feature": "(null)", "ReqNodes": "", "ExcNodes": "", "StartTime": "N/A", "EndTime": "N/A", "TimeUsed": "0:00",
    "NodeList": "", "Dependency": "(null)", "Name": "train", "Comment": "(null)", "OverSubscribe": "OK",
    "Exclusive": "OK", "MinMemory": "1G",
}  # fmt: skip
_STARTED = {"State": "RUNNING", "Reason": "None", "StartTime": "@NOW-7200@", "EndTime": "@NOW+79200@",
            "TimeUsed": "2:00:00", "TimeLimit": "1-00:00:00"}  # fmt: skip
_NODE = {
    "CPUAlloc": "0", "CPUEfctv": "64", "CPUTot": "64", "ActiveFeatures": "(null)", "Gres": "gpu:a100:8",
    "GresUsed": "gpu:a100:0(IDX:N/A)", "RealMemory": "512000", "AllocMem": "0", "Sockets": "2", "CoresPerSocket": "32",
    "State": "IDLE", "ThreadsPerCore": "1", "Partitions": "gpu", "CfgTRES": "cpu=64,mem=512000M,billing=64,gres/gpu=8",
    "AllocTRES": "",
}  # fmt: skip
_PARTITION = {
    "AllowGroups": "ALL", "AllowAccounts": "ALL", "AllowQos": "ALL", "Default": "YES", "QoS": "N/A",
    "DefaultTime": "01:00:00", "ExclusiveUser": "NO", "MaxNodes": "UNLIMITED", "MaxTime": "7-00:00:00", "MinNodes": "0",
    "MaxCPUsPerNode": "UNLIMITED", "MaxCPUsPerSocket": "UNLIMITED", "Nodes": "ALL", "PriorityTier": "1",
    "OverSubscribe": "NO", "State": "UP", "TotalNodes": "1", "JobDefaults": "(null)", "DefMemPerCPU": "1000",
    "MaxMemPerNode": "UNLIMITED",
}  # fmt: skip
_CONFIG = {
    "ClusterName": "fake", "SLURM_VERSION": "24.11.5", "PriorityType": "priority/multifactor",
    "SlurmUser": "slurm(64030)", "AccountingStorageType": "accounting_storage/slurmdbd", "SelectType":
    "select/cons_tres", "AccountingStorageTRES": "cpu,mem,energy,node,billing,fs/disk,vmem,pages,gres/gpu",
    "SelectTypeParameters": "CR_CORE_MEMORY", "GresTypes": "gpu",
}  # fmt: skip
_USERS = "UserName=root(0) DefAccount=root DefWckey=(null) AdminLevel=Administrator\n"
_FIELD = re.compile(r"([^:,]+):0(.*?)(?=,[A-Za-z-]+:0|$)", re.DOTALL)


def node(name: str, **fields: str) -> str:
    """A line of `scontrol -o -d show node`: eight free a100 unless the fields say otherwise."""
    return _line({"NodeName": name} | _NODE | fields)


def partition(name: str = "gpu", **fields: str) -> str:
    """A line of `scontrol -o show partition`."""
    return _line({"PartitionName": name} | _PARTITION | fields)


def job(number: int, gpus: int = 1, **fields: str) -> dict[str, str]:
    """A pending job of squeue that asks for so many GPUs. Fields with a "-" come as fields["tres-per-node"]."""
    plain = {"JobID": str(number), "tres-per-node": f"gres/gpu:{gpus}" if gpus else "N/A"}
    return {"ArrayJobID": str(number), "JobArrayID": str(number)} | _JOB | plain | fields


def running(number: int, hosts: str, gpus: int = 1, **fields: str) -> dict[str, str]:
    """A job that has run for two hours on these hosts."""
    tres = {"tres-alloc": f"cpu=1,mem=1G,node=1,billing=1,gres/gpu={gpus}"}
    return job(number, gpus, **({"NodeList": hosts} | _STARTED | tres | fields))


def record(number: int, **fields: str) -> str:
    """A line of `scontrol -o -d show job`."""
    plain = {"JobId": str(number), "JobName": "train", "UserId": "alice(1000)", "JobState": "RUNNING", "NumNodes": "1"}
    return _line(plain | fields)


def _line(fields: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in fields.items()) + "\n"


@dataclass
class FakeSlurm:
    """What it answers. nodes, partitions, records: lines of scontrol. config: keys of slurm.conf that differ."""

    nodes: str = ""
    jobs: Sequence[Mapping[str, str]] = ()
    partitions: str = field(default_factory=partition)
    records: str = ""
    config: Mapping[str, str] = field(default_factory=dict)
    reservations: str = "No reservations in the system\n"
    topology: str = ""
    sinfo: str = ""
    sacct: str = ""
    now_s: float = field(default_factory=time.time)

    def start(self, program: str, *arguments: str, stdin: str = "") -> Answer:
        """As Commands.start."""
        text = getattr(self, f"_{program}", lambda *_: "")(arguments)
        return Answer(self._filled(text), program=program)

    def _filled(self, text: str) -> str:
        return re.sub(r"@NOW([+-]\d+)?@", lambda found: str(int(self.now_s) + int(found[1] or 0)), text)

    def _squeue(self, arguments: Sequence[str]) -> str:
        if "--version" in arguments:
            return f"slurm {(_CONFIG | dict(self.config))['SLURM_VERSION']}\n"
        told = dict(part.removeprefix("--").partition("=")[::2] for part in arguments)
        chosen = told["jobs"].split(",") if "jobs" in told else None
        states = told.get("states", "all").split(",")
        rows = [
            one
            for one in sorted(self.jobs, key=lambda one: int(one["JobID"]))
            if (chosen is None or one["JobID"] in chosen) and {"all", one["State"]}.intersection(states)
        ]
        if "Format" not in told:
            return "".join(f"{one['JobID']}\n" for one in rows)
        columns = _FIELD.findall(told["Format"])
        return "".join("".join(one.get(name, "N/A") + end for name, end in columns) + "\n" for one in rows)

    def _scontrol(self, arguments: Sequence[str]) -> str:
        what = next((word for word in reversed(arguments) if not word.startswith("-") and not word.isdigit()), "job")
        config = "".join(f"{key:23} = {text}\n" for key, text in (_CONFIG | dict(self.config)).items())
        return {
            "node": self.nodes, "nodes": self.nodes, "partition": self.partitions, "config": config,
            "reservation": self.reservations, "topology": self.topology, "assoc_mgr": _USERS, "job": self.records,
        }.get(what.partition(" ")[0], _USERS if "assoc_mgr" in " ".join(arguments) else "")  # fmt: skip

    def _sprio(self, arguments: Sequence[str]) -> str:
        waiting = [one for one in self.jobs if one["State"] == "PENDING" and one["PriorityLong"] != "0"]
        return "".join(
            "\x1f".join((one["JobID"], one["PriorityLong"], "0", one["Nice"], f"0 0 {one['PriorityLong']} 0 0 0 0 "))
            + "\n" for one in sorted(waiting, key=lambda one: int(one["JobID"]))
        )  # fmt: skip

    def _sinfo(self, arguments: Sequence[str]) -> str:
        return self.sinfo

    def _sacct(self, arguments: Sequence[str]) -> str:
        return self.sacct

    def _sdiag(self, arguments: Sequence[str]) -> str:
        return "Server thread count:  3\nAgent queue size:     0\nDBD Agent queue size: 0\n"
