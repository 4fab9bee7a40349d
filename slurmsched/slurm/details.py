"""Which GPUs running jobs hold, and which jobs are of scrontab: only `scontrol -d show job` tells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from slurmsched.errors import SlurmUnreachableError
from slurmsched.model.columns import Bools, Labels
from slurmsched.model.snapshot import Site
from slurmsched.model.states import JobState
from slurmsched.slurm.commands import Commands, failure
from slurmsched.slurm.node_text import Parts, Spread, job_records, parse_details, spread_of

# Asking for one job costs about as much as printing this many of all jobs (measured: 0.3 ms against 0.08 ms).
ONE_AS_MANY = 4
# Each is two requests to slurmctld (the job, and whether there is a federation), which the rate limiter counts.
MOST_SINGLY = 20


class Held:
    """Remembers what each run holds, so that a cycle asks only for runs that are new or were resized.

    most_singly: jobs asked for by id in one go; for more, all jobs are printed at once.
    """

    def __init__(self, commands: Commands, most_singly: int = MOST_SINGLY) -> None:
        self._commands = commands
        self._most_singly = most_singly
        self._known: dict[int, tuple[tuple[Any, ...], Parts, Spread]] = {}
        self._cron: dict[tuple[int, float], bool] = {}

    def read(self, columns: Mapping[str, Any], holds: Bools) -> dict[int, Parts]:
        """By job the hostlists it holds and the gres text of each of these nodes, for the rows of `holds`.

        Raises SlurmError.
        """
        rows = np.flatnonzero(holds).tolist()
        marks = {int(columns["job_id"][row]): _mark(columns, row) for row in rows}
        missing = [job for job, mark in marks.items() if self._known.get(job, (None,))[0] != mark]
        fresh = self._details(missing, columns, rows) if missing else {}
        known = {job: self._known[job] for job in marks if job not in fresh and job in self._known}
        self._known = known | {job: (marks[job], *fresh[job]) for job in missing if job in fresh}
        return {job: parts for job, (_, parts, _) in self._known.items()}

    def put_spread(self, columns: dict[str, Any]) -> None:
        """The columns of what the jobs read last ask for by --switches and --segment."""
        ids = np.asarray(columns["job_id"], np.int64)
        wishes = {job: spread for job, (_, _, spread) in self._known.items() if any(spread)}
        for place, name in enumerate(("switches", "segment_nodes")):
            columns[name] = np.zeros(len(ids), np.int32)
            for job, spread in wishes.items():
                columns[name][ids == job] = spread[place]

    def _details(self, jobs: list[int], columns: Mapping[str, Any], rows: list[int]) -> dict[int, tuple[Parts, Spread]]:
        text = ask_jobs(self._commands, jobs, len(columns["job_id"]), self._most_singly)
        text = cleaned(text, columns["name"], columns["comment"])
        names = {int(columns["job_id"][row]): columns["name"][row].replace("\n", "\t") for row in rows}
        records = first_records(text)
        return {job: (parts, spread_of(records[job])) for job, parts in parse_details(text, names).items()}

    def cron_jobs(self, columns: Mapping[str, Any], site: Site) -> Bools:
        """Which rows are scrontab's. Only where the site offers scrontab is anything asked. (N,) bool."""
        cron = np.zeros(len(columns["job_id"]), np.bool_)
        if "enable" not in site.settings.get("ScronParameters", ""):
            return cron
        waits = (columns["state"] & int(JobState.PENDING)) != 0
        late = np.flatnonzero(waits & columns["batch"] & (columns["eligible_s"] > columns["submit_s"])).tolist()
        keys = {row: (int(columns["job_id"][row]), float(columns["submit_s"][row])) for row in late}
        missing = [key for key in keys.values() if key not in self._cron]
        if missing:
            text = ask_jobs(self._commands, [job for job, _ in missing], len(cron), self._most_singly)
            scron = {job for job, record in job_records(text) if "CronJob=Yes" in record}
            self._cron |= {key: key[0] in scron for key in missing}
        self._cron = {key: self._cron[key] for key in keys.values()}
        for row, key in keys.items():
            cron[row] = self._cron[key]
        return cron


def cleaned(text: str, names: Labels, comments: Labels) -> str:
    """Records without the line breaks of these names, and without these comments where they have any: a line in a
    user's text must not begin a record."""
    for name in _broken(names):
        text = text.replace(name, name.replace("\n", "\t"))
    for comment in _broken(comments):
        text = text.replace(comment, "\t")
    return text


def _broken(texts: Labels) -> Iterator[str]:
    return (words for words in texts.names if "\n" in words)


def first_records(text: str) -> dict[int, str]:
    """By job its record, of two of one job the first."""
    return dict(reversed(list(job_records(text))))


def ask_jobs(commands: Commands, jobs: Iterable[int], rows: int, most_singly: int) -> str:
    """The records of these jobs at least, one process whatever their number. rows: of the queue. Raises SlurmError."""
    wanted = list(jobs)
    if len(wanted) > most_singly or len(wanted) * ONE_AS_MANY > rows:
        return commands.run("scontrol", "-o", "-d", "show", "job")
    script = "".join(f"show job {job}\n" for job in wanted)
    status, out, err = commands.start("scontrol", "-o", "-d", stdin=script).finish()
    error = failure("scontrol", status, err)
    if status and isinstance(error, SlurmUnreachableError):
        raise error
    return out  # a job that ended meanwhile makes the status 1


def _mark(columns: Mapping[str, Any], row: int) -> tuple[Any, ...]:
    """What changes when a job runs anew or is resized."""
    return (float(columns["start_s"][row]), columns["node_list"][row], int(columns["cpus"][row]))
