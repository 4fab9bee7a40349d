"""The options of commands that read traces and replay them, and tables that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from slurmsched.cli import completers
from slurmsched.cli.framework import FILE, JobId, Output, complain, refuse_folder
from slurmsched.errors import InputError
from slurmsched.plain_text import pluralize

if TYPE_CHECKING:
    from slurmsched.model.trace import RecordedTrace
    from slurmsched.sim.experiments.replay_request import ReplayRequest
    from slurmsched.sim.traces.trace_statistics import TraceSection


def trace_options(function: Any) -> Any:
    """The options of commands that read a trace."""
    function = click.option("--strict", is_flag=True, help="Stop at the first row that cannot be read.")(function)
    function = click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE",
                            help="A parameter of the trace kind, such as throughputs=FILE.")(function)  # fmt: skip
    return click.option("--kind", default="", metavar="KIND", help="Kind of the trace. Default: detected.")(function)


def read_trace(source: Path, kind: str, pairs: tuple[str, ...], strict: bool) -> RecordedTrace:
    """The trace of a file, with what was left out as warnings on stderr."""
    from slurmsched.sim.traces.trace_io import load_trace

    recorded = load_trace(source, kind, dict(parameter(pair) for pair in pairs), strict=strict)
    warn_of_trace(recorded)
    return recorded


def warn_of_parts(source: Path, recorded: RecordedTrace, request: ReplayRequest) -> None:
    """A line on stderr where jobs that asked for parts of GPUs get whole ones."""
    from slurmsched.sim.experiments.replay_request import rounded_up

    if parts := rounded_up(recorded.trace, request):
        complain(f"{source}: jobs that requested part of a GPU get a whole GPU: {parts:,}")


def parameter(pair: str) -> tuple[str, Any]:
    """Name and value of NAME=VALUE; a whole number becomes one. Raises InputError."""
    from slurmsched.errors import InputError

    name, equals, value = pair.partition("=")
    if not equals:
        raise InputError(f"--set {pair!r} is not NAME=VALUE")
    return name.replace("-", "_"), int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else value


def warn_of_trace(recorded: RecordedTrace) -> None:
    """Each warning as a line on stderr."""
    for warning in recorded.warnings:
        complain(warning)


def refuse_same_file(source: Path, target: Path) -> None:
    """Raises InputError where the trace would be written over itself, or in a folder in which nothing can be."""
    refuse_folder(target)
    if target.exists() and source.exists() and target.samefile(source):
        raise InputError("is the same file as SOURCE; name another TARGET", source=str(target))


def print_written_trace(out: Output, target: Path, recorded: RecordedTrace) -> None:
    """Say what was written."""
    from slurmsched.model.trace import trace_digest

    trace = recorded.trace
    record = {"file": str(target.resolve()), "kind": recorded.kind, "jobs": len(trace),
            "trace_digest": trace_digest(trace), "gpu_hours": float(trace.gpu_s.sum()) / 3600,
            "warnings": recorded.warnings}  # fmt: skip
    if out.as_json:
        out.json(record)
    else:
        out.line(f"{record['file']}: {pluralize(len(trace), 'job')}, {record['gpu_hours']:,.0f} GPU hours", "ok")


def print_section(out: Output, section: TraceSection) -> None:
    """One table, numbers to the right."""
    from slurmsched.sim.traces.trace_page import section_rows

    names = [section.columns[0], *(f"{name}>" for name in section.columns[1:])]
    out.line(f"{section.title}. {section.note}" if section.note else section.title)
    out.table(names, [[section_rows(cell) for cell in row] for row in section.rows])
    out.line()


# Options of commands that replay.

_OPTIONS = (
    click.option("--cluster", default="auto", show_default=True, metavar="NxG|FILE|auto",
                 help="20x8: 20 nodes of 8 GPUs. 2x4:v100+4x4:p100: nodes of two types. FILE: TOML with [[nodes]] "
"tables, a slurm.conf, a folder with one, or a saved snapshot. auto: nodes of 8 GPUs, 80 % of "
"them busy while jobs arrive."),
    click.option("--model", type=click.Choice(["ideal", "slurm"]), default=None,
                 help="ideal: the plan takes effect at once and costs nothing. slurm: a model of slurmctld. Default: "
                      "slurm for a history with recorded starts and partitions, else ideal."),
    click.option("--placement", default="count", show_default=True, metavar="NAME[:PARAMETER=VALUE,...]",
                 shell_complete=completers.plugins("placements"),
                 help="count: nodes do not matter. consolidated: a gang on the fewest nodes. Others: docs/placements."),
    click.option("--topology", default="", metavar="MACHINE|FILE",
                 help="ideal: links of the GPUs of a node: a known machine such as dgx-1v, or a TOML file with "
"[topology] as in the configuration."),
    click.option("--physics", default="recorded", show_default=True, metavar="NAME[:PARAMETER=VALUE,...]",
                 help="ideal: how fast a job runs on its GPUs (docs/physics.md): recorded, spread, topology-aware, "
"mapa, gpu-types, colocated, tiers, grouped, amdahl, goodput, cpu-memory."),
    click.option("--backfill", type=click.Choice(["none", "easy", "conservative", "skip"]), default=None,
                 help="Which jobs may use GPUs that the first waiting job cannot use. none: none. easy: jobs that do "
"not delay the first. conservative: jobs that delay no job before them. skip: all that fit. "
"Default: given by the policy."),
    click.option("--round", "round_s", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS",
                 help="ideal: time between decisions; 0: decide at every event."),
    click.option("--restart-cost", "restart_cost_s", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS",
                 help="ideal: run time without progress after a preemption."),
    click.option("--requeue/--no-requeue", default=True, show_default=True,
                 help="slurm: whether a preemptive policy may requeue running jobs."),
    click.option("--moldable", is_flag=True,
                 help="Let jobs with the hint moldable=yes start with fewer GPUs, as lever.moldable does "
"(docs/replay.md)."),
    click.option("--setting", "settings", multiple=True, metavar="NAME=VALUE",
                 callback=lambda _context, _option, pairs: _settings(pairs),
                 help="Any other setting of the cluster (docs/replay.md), such as node_gpus=8 or rpc_latency_s=0.02."),
    click.option("--tiers", default="", metavar="LIST", callback=lambda _context, _option, text: _listed(text),
                 help="slurm: keys that go before the policy, as policy.tiers: partition,qos,fair_share:4."),
    click.option("--age-cap", "age_cap_s", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS",
                 help="slurm: as starvation.age_cap_s; a job that waited longer goes first; 0: never."),
    click.option("--history", default="", metavar="FILE",
                 help="For gittins: GPU seconds of completed jobs, a CSV column; or Tiresias's file."),
    click.option("--past", default="", metavar="FILE",
                 help="For estimators that learn: a trace of earlier jobs."),
    click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True,
                 help="Seed of all random numbers."),
)  # fmt: skip


_SELECTION = (
    click.option("--partition", "partitions", multiple=True, metavar="NAME", help="Only jobs of this partition."),
    click.option("--user", "users", multiple=True, metavar="NAME", help="Only jobs of this user."),
    click.option("--since", default="", metavar="TIME",
                 help="Only jobs submitted from then on: a date, or a time after the first submission (7d)."),
    click.option("--until", default="", metavar="TIME", help="Only jobs submitted before then."),
    click.option("--map", "renames", multiple=True, metavar="OLD=NEW",
                 help="Rename a partition, QOS or account of the trace to one of the cluster."),
    click.option("--warm-start/--cold-start", default=None,
                 help="Whether jobs that ran or waited when the window begins are there. Default: warm for a trace "
                      "with recorded starts and --model slurm."),
    click.option("--count-from", default="", metavar="TIME",
                 help="Only jobs submitted from then on count; 10% is a tenth of the window. Default: 10% for a trace "
                      "with recorded starts, else 0%."),
    click.option("--count-until", default="", metavar="TIME",
                 help="Only jobs submitted until then count; 10% is a tenth before the end. Default: as --count-from."),
    click.option("--limits", default="recorded", show_default=True, metavar="recorded|factor:X|users",
                 help="Time limits of jobs without one: their exact run times, X times these, or made up as "
                      "users set them."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobSelection:
    """What the options of `selecting` and --model say."""

    partitions: tuple[str, ...]
    users: tuple[str, ...]
    since: str
    until: str
    renames: tuple[str, ...]
    warm_start: bool | None
    count_from: str
    count_until: str
    limits: str

    @classmethod
    def taken(cls, words: dict[str, Any]) -> JobSelection:
        """Of the options of a command, from which they are taken out."""
        return cls(**{spec.name: words.pop(spec.name) for spec in fields(cls)})

    def model_for(self, traces: Sequence[RecordedTrace]) -> Literal["ideal", "slurm"]:
        """The model that suits these traces, where none is asked for."""
        return "slurm" if all(each.is_slurm_history for each in traces) else "ideal"

    def jobs_of(self, recorded: RecordedTrace, model: str, seed: int) -> RecordedTrace:
        """The jobs to replay; what is assumed of them is in its `assumed`. Raises InputError."""
        from slurmsched.sim.traces.trace_selection import Selection, selected, with_limits, with_those_beside

        warm = recorded.has_starts and model == "slurm" if self.warm_start is None else self.warm_start
        wanted = Selection(self.partitions, self.users, self.since, self.until, self._renames, warm, self.count_from,
                           self.count_until)  # fmt: skip
        recorded = with_those_beside(recorded) if model == "slurm" else recorded
        found = selected(recorded, wanted)
        trace, limits = with_limits(found.recorded.trace, self.limits, seed)
        return replace(found.recorded, trace=trace, assumed=(limits, *recorded.assumed, *found.notes))

    def warn_of_limits(self, recorded: RecordedTrace) -> None:
        """A line on stderr where exact run times stand for time limits."""
        from slurmsched.sim.traces.trace_selection import unknown_limits

        if self.limits == "recorded" and (said := unknown_limits(recorded.trace)):
            complain(f"{said}, taken as the exact run times: backfill and policies that go by the limit look into the "
                     "future; --limits users does not")  # fmt: skip

    @property
    def _renames(self) -> dict[str, str]:
        pairs = [pair.partition("=") for pair in self.renames]
        for (old, equals, new), pair in zip(pairs, self.renames, strict=True):
            if not (old and equals and new):
                raise InputError(f"--map {pair!r} is not OLD=NEW")
        return {old: new for old, _, new in pairs}


def replay_options(function: Any) -> Any:
    """The fields of replay_request.ReplayRequest but the policy, as options; `backfill` may be None."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def selection_options(function: Any) -> Any:
    """The options that choose jobs of a trace, what they count for, and their time limits."""
    for option in reversed(_SELECTION):
        function = option(function)
    return function


def job_row_options(function: Any) -> Any:
    """The options `--jobs-out` and `--job`: what became of each job."""
    options = (
        click.option("--jobs-out", type=FILE,
                     help="Write a row for each job and schedule to this file: .csv or .parquet."),
        click.option("--job", "job_id", type=JobId(), default=None, help="Show this job in each schedule."),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def check_jobs_out(file: Path | None) -> None:
    """Better now than after the work. Raises InputError for a name or folder that the rows cannot be written to."""
    from slurmsched.sim.experiments.replay_result import check_schedule_name

    refuse_folder(file)
    if file is not None:
        check_schedule_name(file)


def preemption_options(function: Any) -> Any:
    """The options `preempt` and `hints`."""
    preempt = click.option(
        "--preempt",
        is_flag=True,
        help="slurm: preempt as the daemon does, by [preemption], [operations] and [gangs] of the configuration. "
        "Otherwise a preemptive policy may requeue any job.",
    )
    hints = click.option(
        "--hints",
        default="",
        metavar="COMMENT",
        help="With --preempt, --moldable or --setting resizes=true: the comment of all jobs, such as "
        "'slurmsched: preempt=yes ckpt=USR2@120'.",
    )
    return preempt(hints(function))


def preemption_sections(preempt: bool, hints: str, words: Mapping[str, Any]) -> dict[str, Any] | None:
    """What of the configuration rules preemption; None without --preempt. --hints needs it, or jobs that change size.
    words: the other options."""
    if not preempt:
        if hints and not (words["moldable"] or words["settings"].get("resizes")):
            raise click.UsageError("--hints needs --preempt, --moldable or --setting resizes=true")
        return None
    from slurmsched.cli.framework import read_config
    from slurmsched.sim.experiments.slurmctld_setup import SECTIONS

    tree = read_config(plugins=False)
    return {section: getattr(tree, section).model_dump() for section in SECTIONS}


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Settings by name. Raises UsageError for a text that is not NAME=VALUE."""
    from slurmsched.sim.experiments.replay_request import toml_value

    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"--setting {pair!r} is not NAME=VALUE")
        found[name.replace("-", "_")] = toml_value(value)
    return found


# Tables of `replay`, `compare` and `sweep`: the back-test, and one job under each schedule.


def print_back_test(out: Output, figures: Mapping[str, Any]) -> None:
    """The recorded schedule beside the model's, and how far to trust the rest."""
    from slurmsched.sim.experiments.back_test import BACK_TEST_COLUMNS, back_test_lead, back_test_table

    unit, rows = back_test_table(figures)
    out.line(back_test_lead(figures))
    out.table(("", *(f"{name.format(unit=unit.name)}>" for name in BACK_TEST_COLUMNS)), rows)
    out.line(f"Trust: {figures['verdict']}")
    out.line()


def print_job(out: Output, rows: Sequence[Mapping[str, Any]], recorded: RecordedTrace) -> None:
    """One job, a row a schedule."""
    from slurmsched.observe.html_page import SECONDS
    from slurmsched.sim.traces.trace_selection import clock_text

    job, origin_s = rows[0], recorded.origin_s if recorded.origin_s == recorded.origin_s else 0.0
    who = ", ".join(f"{name} {job[name]}" for name in ("user", "account", "partition", "qos") if job[name])
    out.line(f"Job {job['job_id']}: {pluralize(job['gpus'], 'GPU')}{', ' if who else ''}{who}")

    def clock(at_s: float | None) -> str:
        return "-" if at_s is None else clock_text(at_s - origin_s, recorded, seconds=True)

    names = ("submit_s", "eligible_s", "start_s", "end_s")
    out.table(
        ("schedule", "submit", "eligible", "start", "end", "wait [s]>", "nodes>", "node list"),
        [(row["schedule"], *(clock(row[name]) for name in names), SECONDS.text(row["wait_s"]), row["nodes"] or "-",
          row["node_list"]) for row in rows],
    )  # fmt: skip
    out.line()
