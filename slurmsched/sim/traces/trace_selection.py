"""Selects the jobs of a trace that are replayed, and those that count in the figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Bools, Int64s, Labels
from slurmsched.model.durations import duration_s
from slurmsched.model.trace import RecordedTrace, Trace
from slurmsched.plain_text import pluralize

WARM_STEP_S = 4.0  # between two of the jobs that ran: slurmctld looks at the queue every 3 s at most
AS_RECORDED = "time limits as recorded"
EDGE_PCT = 10.0  # of the span of submissions: the part at each end that does not count by default
RENAMED = ("partition", "qos", "account")
MOMENT = "write 2026-10-05, 2026-10-05T12:00, 12d after the first submission, or 10%"


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a trace is wanted, as the command line says it.

    partitions, users: of jobs to keep; all if empty.
    since, until: submissions to keep, as `moment_s` reads them; "" = no bound.
    renames: old name -> new name of partitions, QOS and accounts.
    warm_start: jobs that ran or waited when the window begins are replayed too, but do not count.
    count_from, count_until: submissions that count, as `moment_s` reads them; "" = the default of `selected`.
    """

    partitions: Sequence[str] = ()
    users: Sequence[str] = ()
    since: str = ""
    until: str = ""
    renames: Mapping[str, str] = field(default_factory=dict)
    warm_start: bool = False
    count_from: str = ""
    count_until: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Selected:
    """The jobs to replay. `recorded.trace.counted` says which of them count.

    notes: what was done, as text.
    begin_s: when the window begins, on the clock of the trace.
    """

    recorded: RecordedTrace
    begin_s: float
    notes: tuple[str, ...]


def selected(recorded: RecordedTrace, wanted: Selection) -> Selected:
    """The jobs that are wanted, and which of them count.

    By default all jobs of a trace without recorded starts count: such lists begin with an empty cluster. Of a trace
    with recorded starts, the first and the last tenth of the window do not count.
    Raises InputError for a name or a time that is none, and where no job remains or counts.
    """
    named = _renamed(recorded, wanted.renames)
    kept, notes = _filtered(named, wanted)
    begin_s, end_s = _window(kept, wanted)
    warm, start_note = _begun(kept, begin_s, warm=wanted.warm_start)
    inside = warm.trace.take(warm.trace.submit_s < end_s) if wanted.until else warm.trace
    if not len(inside):
        span = f"{clock_text(kept.trace.submit_s.min(), kept)} to {clock_text(kept.trace.submit_s.max(), kept)}"
        raise InputError(f"no job remains: these were submitted {span}; a wider --since or --until is needed")
    counted, count_note = _counted_jobs(replace(warm, trace=inside), wanted, begin_s)
    return Selected(
        replace(warm, trace=inside.with_columns(counted=counted)), begin_s, (*notes, *start_note, count_note)
    )


def with_those_beside(recorded: RecordedTrace) -> RecordedTrace:
    """The trace and the jobs beside it in one table, for the slurmctld model. Those do not count."""
    if recorded.beside is None:
        return recorded
    beside = recorded.beside.with_columns(counted=np.zeros(len(recorded.beside), np.bool_))
    whole = recorded.trace.followed_by(beside)
    whole = whole.take(np.lexsort((whole.job_id, whole.submit_s)))
    without = int((beside.gpus == 0).sum())
    kinds = ((f"{without:,} without GPUs", without), (f"{len(beside) - without:,} cancelled while they waited",
                                                    len(beside) - without))  # fmt: skip
    note = f"beside them, in no figure: {' and '.join(text for text, jobs in kinds if jobs)}"
    return replace(recorded, trace=whole, beside=None, assumed=(*recorded.assumed, note))


def chosen_by_default(recorded: RecordedTrace, *, slurm: bool) -> RecordedTrace:
    """All jobs of a trace, with the defaults of `selected`; what is assumed of them is in its `assumed`.

    slurm: for the slurmctld model, which starts warm where starts were recorded.
    """
    recorded = with_those_beside(recorded) if slurm else recorded
    found = selected(recorded, Selection(warm_start=slurm and recorded.has_starts))
    trace, limits = with_limits(found.recorded.trace, "recorded")
    return replace(found.recorded, trace=trace, assumed=(limits, *recorded.assumed, *found.notes))


def _renamed(recorded: RecordedTrace, renames: Mapping[str, str]) -> RecordedTrace:
    columns: dict[str, Labels] = {}
    for name in RENAMED:
        labels: Labels = getattr(recorded.trace, name)
        if set(labels.names) & set(renames):
            columns[name] = Labels.of([renames.get(text, text) for text in labels])
    if {part for text in recorded.trace.partitions.names for part in text.split(",")} & set(renames):
        several = [[renames.get(part, part) for part in text.split(",")] for text in recorded.trace.partitions]
        columns["partitions"] = Labels.of([",".join(parts) for parts in several])
    unused = sorted(set(renames) - {text for name in RENAMED for text in getattr(recorded.trace, name).names})
    if unused:
        raise InputError(f"--map {unused[0]}: no partition, QOS or account of the trace is called so")
    return replace(recorded, trace=recorded.trace.with_columns(**columns)) if columns else recorded


def _filtered(recorded: RecordedTrace, wanted: Selection) -> tuple[RecordedTrace, list[str]]:
    """The jobs of these partitions and users."""
    trace, notes = recorded.trace, list[str]()
    for name, names in (("partition", wanted.partitions), ("user", wanted.users)):
        if not names:
            continue
        labels: Labels = getattr(trace, name)
        missing = [text for text in names if text not in labels.names]
        if missing:
            known = ", ".join(filter(None, labels.names[:20])) or "none"
            raise InputError(f"no job of {name} {missing[0]!r}; the trace has {known}")
        trace = trace.take(labels.isin(names))
        notes.append(f"only {name} {', '.join(names)}; jobs of others take no GPUs: waits may be too short")
    return replace(recorded, trace=trace), notes


def _window(recorded: RecordedTrace, wanted: Selection) -> tuple[float, float]:
    """Begin and end of the window."""
    trace = recorded.trace
    first_s, last_s = float(trace.submit_s.min(initial=math.inf)), float(trace.submit_s.max(initial=0.0))
    if wanted.since:
        begin_s = moment_s(wanted.since, recorded, "--since", first_s, last_s)
    else:
        begin_s = max(first_s, _first_end_s(trace, last_s)) if wanted.warm_start else first_s
    end_s = moment_s(wanted.until, recorded, "--until", first_s, last_s) if wanted.until else math.inf
    if end_s <= begin_s:
        raise InputError(f"--until {wanted.until} is not after the begin of the window")
    return begin_s, end_s


def _first_end_s(trace: Trace, last_s: float) -> float:
    """When the first job of a history ended: a history holds none of the jobs that ended before.

    0 where no job comes later: then there is no window to start.
    """
    ends_s = (trace.start_s + trace.duration_s)[~np.isnan(trace.start_s)]
    first_s = float(ends_s.min(initial=math.inf))
    return first_s if first_s < last_s else 0.0


def _begun(recorded: RecordedTrace, begin_s: float, *, warm: bool) -> tuple[RecordedTrace, list[str]]:
    """The jobs of a window. warm: those that ran or waited at its begin are there when it begins.

    Without recorded starts nobody knows who ran.
    """
    trace = recorded.trace
    before = trace.submit_s < begin_s
    if not before.any():
        return recorded, []
    ends_s = trace.start_s + trace.duration_s
    runs = np.flatnonzero(before & (trace.start_s < begin_s) & (ends_s > begin_s))
    waits = np.flatnonzero(before & ((trace.start_s >= begin_s) | (trace.cancel_s > begin_s)))
    if not warm:
        return replace(recorded, trace=trace.take(~before)), ["cold start: no job is there when the window begins"]
    moved = _warmed(trace, runs, waits, begin_s)
    chosen = np.sort(np.concatenate([np.flatnonzero(~before), runs, waits]))
    there = moved.take(chosen)
    running = pluralize(len(runs), "job")
    start_note = f"warm start: {running} running and {len(waits):,} waiting when the window begins"
    return replace(recorded, trace=there.take(np.lexsort((there.job_id, there.submit_s)))), [start_note]


def _warmed(trace: Trace, runs: Int64s, waits: Int64s, begin_s: float) -> Trace:
    """Running jobs come one by one shortly before the begin, those of the most GPUs first, so that each finds room and
    starts; they end when they were recorded to end. Jobs that waited come with the begin. The slurmctld model starts a
    running job on the nodes on which it ran, where these are known."""
    order = runs[np.lexsort((trace.job_id[runs], -trace.gpus[runs]))]
    submit_s, start_s = trace.submit_s.copy(), trace.start_s.copy()
    run_s, limit_s, eligible_s = trace.duration_s.copy(), trace.time_limit_s.copy(), trace.eligible_s.copy()
    eligible_s[order] = np.nan
    came_s = np.maximum(begin_s - WARM_STEP_S * np.arange(len(order), 0, -1), 0.0)
    ran_s = came_s - trace.start_s[order]
    submit_s[order], start_s[order], submit_s[waits] = came_s, came_s, begin_s
    run_s[order] = trace.start_s[order] + trace.duration_s[order] - came_s
    limit_s[order] = np.maximum(trace.time_limit_s[order] - ran_s, 1.0)
    columns = {"submit_s": submit_s, "start_s": start_s, "duration_s": run_s, "time_limit_s": limit_s}
    running = np.zeros(len(trace), np.bool_)
    running[order] = True
    return trace.with_columns(**columns, eligible_s=eligible_s, running=running)


def _counted_jobs(recorded: RecordedTrace, wanted: Selection, begin_s: float) -> tuple[Bools, str]:
    """Which jobs count, and in words."""
    trace = recorded.trace
    end_s = float(trace.submit_s.max())
    by_default = f"{EDGE_PCT:g}%" if bool((~np.isnan(trace.start_s)).any()) else "0%"
    bounds = (wanted.count_from or by_default, wanted.count_until or by_default)
    from_s = moment_s(bounds[0], recorded, "--count-from", begin_s, end_s)
    until_s = moment_s(bounds[1], recorded, "--count-until", begin_s, end_s, from_end=True)
    warmed = trace.submit_s <= begin_s if begin_s > float(trace.submit_s.min()) else np.zeros(len(trace), np.bool_)
    may = trace.counted & ~warmed
    inside = (trace.submit_s >= from_s) & (trace.submit_s <= until_s) & may
    if not inside.any() and not (wanted.count_from or wanted.count_until):
        inside = may  # too few jobs to leave any out
    if not inside.any():
        window = f"{clock_text(begin_s, recorded)} to {clock_text(end_s, recorded)}"
        raise InputError(f"no job counts: these were submitted {window}; give another --count-from or --count-until")
    if inside[trace.counted].all():
        return inside, "all jobs count"
    span = f"{clock_text(from_s, recorded)} to {clock_text(until_s, recorded)}"
    edges = "" if wanted.count_from or wanted.count_until else f" (the first and last {EDGE_PCT:g} % are left out)"
    return (
        inside,
        f"{int(inside.sum()):,} of {pluralize(int(trace.counted.sum()), 'job')} count, submitted {span}{edges}",
    )


def moment_s(
    text: str, recorded: RecordedTrace, option: str, begin_s: float, end_s: float, *, from_end: bool = False
) -> float:
    """A time on the clock of the trace: a date, a duration since the first submission, or a share of a span.

    begin_s, end_s: the span of which "10%" is a tenth, after its begin or (from_end) before its end.
    Raises InputError for a text that is none of them, and for a date where the trace has no calendar.
    """
    if text.endswith("%") and text[:-1].replace(".", "", 1).isdecimal():
        part_s = (end_s - begin_s) * float(text[:-1]) / 100
        return end_s - part_s if from_end else begin_s + part_s
    try:
        return float(recorded.trace.submit_s.min(initial=0.0)) + duration_s(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"{option} {text!r} is no time: {MOMENT}") from None
    if math.isnan(recorded.origin_s):
        raise InputError(
            f"{option} {text}: the trace has no calendar; {MOMENT.replace('2026-10-05, 2026-10-05T12:00, ', '')}"
        )
    if at.tzinfo is not None:
        return at.timestamp() - recorded.origin_s
    return at.replace(tzinfo=UTC).timestamp() - recorded.utc_offset_s - recorded.origin_s


def clock_text(at_s: float, recorded: RecordedTrace, *, seconds: bool = False) -> str:
    """A time of the trace on the site's clock, or as days since its 0 where it has no calendar. seconds: with them."""
    if math.isnan(recorded.origin_s):
        return f"{at_s:,.0f} s" if seconds else f"day {at_s / 86_400:.1f}"
    at = datetime.fromtimestamp(shown_origin_s(recorded) + at_s, UTC)
    return at.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def shown_origin_s(recorded: RecordedTrace) -> float:
    """The trace's 0 on the site's clock, as Unix seconds there; NaN without a calendar."""
    return recorded.origin_s + recorded.utc_offset_s


def clock_name(recorded: RecordedTrace) -> str:
    """The site's clock beside a time: "UTC", "UTC+08:00"."""
    minutes = round(recorded.utc_offset_s / 60)
    return f"UTC{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}" if minutes else "UTC"


def with_limits(trace: Trace, choice: str, seed: int = 0) -> tuple[Trace, str]:
    """The trace with time limits for jobs of which none is known, and the choice in words.

    choice: recorded = their run times; factor:X = X times their run times; users = as users set them (see
    Trace.with_user_limits). Raises InputError for another one.
    """
    said = unknown_limits(trace)
    if choice == "users":
        return trace.with_user_limits(seed), f"{said}, made up as users set them" if said else AS_RECORDED
    if choice.startswith("factor:"):
        factor = _factor(choice)
        made_s = np.maximum(trace.duration_s * factor, 1.0)
        made = trace.with_columns(time_limit_s=np.where(trace.limit_known, trace.time_limit_s, made_s))
        return made, f"{said}, taken as {factor:g} times the run time" if said else AS_RECORDED
    if choice != "recorded":
        raise InputError(f"--limits {choice!r} is none of recorded, factor:X and users; choose one")
    return trace, f"{said}, taken as the exact run times" if said else AS_RECORDED


def unknown_limits(trace: Trace) -> str:
    """How many time limits are not known, "" if all are."""
    unknown = int((~trace.limit_known).sum())
    return f"{unknown:,} of {pluralize(len(trace), 'time limit')} unknown" if unknown else ""


def _factor(choice: str) -> float:
    try:
        factor = float(choice.removeprefix("factor:"))
    except ValueError:
        factor = 0.0
    if not 1 <= factor < math.inf:
        raise InputError(f"--limits {choice!r}: the factor must be a number of at least 1, such as factor:2")
    return factor
