"""Slurm's own history as `sacct --json` and slurmrestd print it, 21.08 to 26.05."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurmsched.errors import UnreadableError
from slurmsched.replay.loaders.json_array import json_members
from slurmsched.replay.loaders.sacct import SacctRows, Seen
from slurmsched.replay.loaders.sacct_rows import SAYS, SHOWN
from slurmsched.replay.loaders.source import Head, Source
from slurmsched.slurm.jsonform import number, words

LARGEST_COUNT = 1 << 62


@dataclass(frozen=True, slots=True)
class SacctJson(SacctRows):
    """The list "jobs" of the answer, one job after the other; steps are passed over.

    Fields are those of the kind `sacct`. Times are Unix seconds, and users cannot write a job of their own into it, as
    they can with a line break in a text of `sacct -P`.

    cluster: of a file with several, the one to take; "" for all.
    """

    cluster: str = ""

    def sniff(self, head: Head) -> bool:
        text = next(("\n".join(head.lines[at:]) for at, line in enumerate(head.lines) if not SAYS.fullmatch(line)), "")
        if text.lstrip().startswith("["):
            return '"submission"' in text and '"allocation_nodes"' in text
        return text.lstrip().startswith("{") and re.search(r'"jobs"\s*:\s*\[', text) is not None

    def records(self, source: Source) -> Iterator[tuple[int, Any]]:
        seen, found, others = Seen(), False, list[str]()
        for line, name, value in json_members(source, "jobs", SAYS):
            if name != "jobs":
                others += [name] * bool(name)
                _tell(name, value, source)
                continue
            found = True
            try:
                fields = fields_of(value)
            except (UnreadableError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                if isinstance(value, Mapping) and "job_state" in value:
                    raise source.fail("is the answer of squeue, which tells nothing of jobs that ended before; take "
                                      "sacct -aXD --json -S now-30days", line=line) from None  # fmt: skip
                source.reject(line, f"not a job of sacct --json ({type(error).__name__}: {str(error)[:SHOWN]})")
                continue
            if not self.cluster or fields["Cluster"] == self.cluster:
                yield line, (seen, source, fields)
        if not found and others:
            source.said.append("its list of jobs is empty")


def fields_of(job: Mapping[str, Any]) -> dict[str, str]:
    """sacct's fields of one job. Raises one of Python's errors of types and keys, or UnreadableError."""
    at, tres, het = job["time"], job.get("tres") or {}, job.get("het") or {}
    raw = _whole(job["job_id"])
    leader, state = int(number(het.get("job_id"), 0)), job["state"]
    offset = number(het.get("job_offset"), 0)
    array, task = job.get("array") or {}, (job.get("array") or {}).get("task_id")
    of_array = int(number(array.get("job_id"), 0))
    job_id = f"{leader}+{offset:.0f}" if leader else str(raw)
    if of_array and not leader and not math.isnan(number(task)):
        job_id = f"{of_array}_{number(task):.0f}"
    limit_min = number(at.get("limit"))
    limit = f"{limit_min:.0f}" if 0 < limit_min < math.inf else ""
    return {
        "Cluster": _text(job.get("cluster")),
        "JobID": job_id,
        "JobIDRaw": str(raw),
        "User": _text(job.get("user")) or _text((job.get("association") or {}).get("user")),
        "Account": _text(job.get("account")),
        "Partition": _text(job.get("partition")),
        "QOS": _text(job.get("qos")),
        "JobName": _text(job.get("name")),
        "State": words(state["current"]) if isinstance(state, Mapping) else words(state),
        "Submit": _time(at["submission"]),
        "Start": _time(at["start"]),
        "End": _time(at["end"]),
        "ElapsedRaw": "" if at.get("elapsed") is None else _time(at["elapsed"]) or "0",
        "Suspended": f"00:00:{number(at.get('suspended'), 0):.0f}",
        "TimelimitRaw": limit,
        "NNodes": f"{max(number(job.get('allocation_nodes'), 0), 0):.0f}",
        "AllocTRES": _tres(tres.get("allocated") or ()),
        "ReqTRES": _tres(tres.get("requested") or ()),
        "SubmitLine": _text(job.get("submit_line")),
        "NodeList": _text(job.get("nodes")),
    }


def _whole(value: Any) -> int:
    found = number(value)
    if not found.is_integer() or not 0 < found < LARGEST_COUNT:
        raise ValueError(f"{value!r} is no job id")
    return int(found)


def _time(value: Any) -> str:
    """Unix seconds as text, "" where not set."""
    found = number(value)
    if not (found.is_integer() and found >= 0) and not math.isnan(found):
        raise ValueError(f"{value!r} is no time")
    return "" if math.isnan(found) or not found else str(int(found))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _tres(rows: Sequence[Mapping[str, Any]]) -> str:
    """A TRES list as sacct prints it; memory is in MiB. What is not counted (energy -2) is left out."""
    parts = list[str]()
    for row in rows:
        count, kind, name = number(row.get("count"), -1), _text(row["type"]), _text(row.get("name"))
        if 0 <= count < LARGEST_COUNT:
            parts.append(f"{kind}{f'/{name}' if name else ''}={count:.0f}")
    return ",".join(parts)


def _tell(name: str, value: Any, source: Source) -> None:
    """Errors and warnings that Slurm put into its answer."""
    if not name:
        source.said.append(f"sacct says so itself, and its answer may be cut: {str(value)[:SHOWN]!r}")
    if name not in ("errors", "warnings") or not isinstance(value, Sequence) or not value:
        return
    first = value[0]
    text = first.get("description") or first.get("error") if isinstance(first, Mapping) else first
    source.said.append(f"sacct told {name} with its answer, which may be cut: {str(text)[:SHOWN]!r}")
