"""Options of jobs that the readers do not ask for: --exclusive, --switches, --segment, and how GPUs were requested.

For --exclusive squeue has the field Exclusive from 26.05 on. Before, OverSubscribe is NO for such a job and OK for
others. From 26.05 on OverSubscribe is NO for both (seen on 24.11.5 and 26.05.5).
"""

from __future__ import annotations

import re

import numpy as np

from slurmsched.errors import UnreadableError
from slurmsched.model.columns import Labels
from slurmsched.model.jobs import GpuOptions, Jobs
from slurmsched.model.slurm_text import text_or_empty, whole_number
from slurmsched.model.snapshot import Site
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.job_records import SPREAD_NOT_KNOWN, DoubtfulJobs, SpreadLimits, ask_jobs
from slurmsched.slurm.squeue import fresh_mark, unit_of

EXCLUSIVE_FIELD_SINCE = (26, 5)  # the first release whose squeue knows Exclusive


class ExclusiveJobs:
    """Asks squeue. The release of squeue itself decides which field exists; it is read once."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._field: tuple[str, str] | None = None

    def __call__(self) -> frozenset[int]:
        """Ids of pending job records that ask for whole nodes. Raises SlurmError."""
        field, means = self._field = self._field or exclusive_field(self._commands.run("squeue", "--version"))
        wanted = f"--Format=JobID:0|,{field}:0"
        return parse_exclusive(self._commands.run("squeue", "-h", "-a", "--local", "-t", "PENDING", wanted), means)


def exclusive_field(version: str) -> tuple[str, str]:
    """The field of squeue and its value for --exclusive. version: output of `squeue --version`.

    Raises UnreadableError.
    """
    found = re.search(r"(\d+)\.(\d+)", version)
    if found is None:
        raise UnreadableError("squeue --version prints no version", text=version)
    return ("Exclusive", "NODE") if (int(found[1]), int(found[2])) >= EXCLUSIVE_FIELD_SINCE else ("OverSubscribe", "NO")


def parse_exclusive(text: str, means: str) -> frozenset[int]:
    """Ids of rows such as "7|NODE" with this value or of another form. Raises UnreadableError for a row without id."""
    rows = [(whole_number(job), said) for job, *said in (line.strip().split("|") for line in text.splitlines())]
    if not all(job for job, _ in rows):
        raise UnreadableError("squeue printed something other than what was asked for", text=text[:200])
    return frozenset(job for job, said in rows if said == [means] or len(said) != 1 or not said[0])


# --switches and --segment of pending gangs. Only `scontrol show job` shows these in every version.


class SpreadRequests:
    """Reads each gang once, and again if its record is in doubt; its options are unknown until then.

    A later change of Switches is not seen. Slurm itself respects it.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._known: dict[tuple[int, float], SpreadLimits] = {}
        self._retries = DoubtfulJobs()

    def __call__(self, jobs: Jobs) -> Jobs:
        """The jobs, with both columns filled for pending jobs of several nodes. Raises SlurmError."""
        rows = np.flatnonzero(jobs.pending & (jobs.nodes > 1) & (jobs.gpus > 0)).tolist()
        key = {row: (int(jobs.job_id[row]), float(jobs.submit_s[row])) for row in rows}
        name = {key[row]: jobs.name[row] for row in rows}
        self._known = {each: self._known[each] for each in name if each in self._known}
        if missing := self._retries.due(each for each in name if each not in self._known):
            records = ask_jobs(self._commands, {each[0]: name[each] for each in missing}, len(jobs)).records
            found = {each: records[each[0]].spread for each in missing if each[0] in records}
            self._known |= {each: spread for each, spread in found.items() if min(spread) >= 0}
            self._retries.failed(each for each in missing if each not in self._known)
        made = {"switches": jobs.switches.copy(), "segment_nodes": jobs.segment_nodes.copy()}
        for row in rows:
            made["switches"][row], made["segment_nodes"][row] = self._known.get(key[row], SPREAD_NOT_KNOWN)
        return jobs.with_columns(**made)


# Options of GPU requests.

_TEXTS = {"per_job": "tres-per-job", "per_node": "tres-per-node", "per_task": "tres-per-task",
          "per_socket": "tres-per-socket"}  # fmt: skip
_FIELDS = ("JobID", *_TEXTS.values(), "NumTasks", "MinMemory")
EXCLUSIVE_SINCE = (26, 5)  # squeue has the field Exclusive; up to 25.05 OverSubscribe=NO means it
OVERSUBSCRIBE_UNTIL = (25, 5)
NOT_SET = 0xFFFF_FFFE  # slurm.h NO_VAL, which squeue prints as a number where -n was not given


def read_gpu_options(commands: Commands, site: Site) -> GpuOptions:
    """Every record of the queue. Raises SlurmError."""
    mark, extra = fresh_mark(), _exclusive_field(site)
    names = (*_FIELDS, *((extra,) if extra else ()))
    wanted = [f"{name}:0{unit_of(mark)}" for name in names[:-1]] + [f"{names[-1]}:0{mark}"]
    answer = commands.run(
        "squeue", "-h", "--all", "--local", "--sort=i", "--states=all", f"--Format={','.join(wanted)}"
    )
    return parse_gpu_options(answer, mark, extra)


def _exclusive_field(site: Site) -> str:
    """The field of squeue that shows --exclusive; "" for releases where no field is reliable."""
    found = re.match(r"(\d+)\.(\d+)", site.version)
    release = (int(found[1]), int(found[2])) if found else (0, 0)
    if release >= EXCLUSIVE_SINCE:
        return "Exclusive"
    return "OverSubscribe" if (0, 0) < release <= OVERSUBSCRIBE_UNTIL else ""


def parse_gpu_options(text: str, mark: str, extra: str) -> GpuOptions:
    """The table. extra: name of one more field at the end of each row, "" = none. Raises UnreadableError."""
    flat = text.split(mark)
    if flat.pop().strip():
        raise UnreadableError("squeue printed broken rows", text=text[-200:])
    width = len(_FIELDS) + bool(extra)
    split = (line.lstrip("\n").split(unit_of(mark)) for line in flat)
    rows = {whole_number(row[0]): row for row in split if len(row) == width and whole_number(row[0])}
    order = sorted(rows)
    at = {name: place for place, name in enumerate(_FIELDS)}
    columns = {
        name: Labels.of([text_or_empty(rows[job][at[field]]) for job in order]) for name, field in _TEXTS.items()
    }
    tasks = [_tasks(rows[job][at["NumTasks"]]) for job in order]
    alone = {"Exclusive": "NODE", "OverSubscribe": "NO"}.get(extra)
    return GpuOptions.build(len(order), {
        **columns, "job_id": order, "tasks": tasks,
        "whole_memory": np.array([rows[job][at["MinMemory"]] == "0" for job in order], np.bool_),
        "exclusive": np.array([bool(extra) and rows[job][-1] == alone for job in order], np.bool_),
    })  # fmt: skip


def _tasks(text: str) -> int:
    """-n; 1 where it was not given."""
    return whole_number(text, 1, NOT_SET - 1)
