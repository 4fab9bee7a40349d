"""`status`: one screen on how things are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from slurmsched.cli import framework
from slurmsched.cli.framework import Output, duration, read_config
from slurmsched.cli.listing import print_operations
from slurmsched.plain_text import pluralize

SELDOM = {"boot": "free after a boot", "unknown": "cannot be read"}  # told only where there are some


@framework.examples(
    ("slurmsched status", "Mode, daemon, last cycles, GPUs and jobs."),
    ("slurmsched status --json | jq .gpus", "The number of GPUs by state."),
)
@framework.command("status")
def command(out: Output) -> None:
    """Show mode, daemon, last cycles, GPUs and jobs.

    Reads only.
    """
    from slurmsched.daemon.cycle_parts import open_cycle_parts
    from slurmsched.daemon.status_facts import status_facts

    tree = read_config()
    with open_cycle_parts(tree, apply=False, read_only=True) as parts:
        snapshot, facts = status_facts(tree, parts)
    if out.as_json:
        out.json(facts, schema="status")
    else:
        _print(out, facts)
        print_operations(out, snapshot.operations, snapshot.now_s)
        _print_orphans(out, facts["orphans"])


def _print(out: Output, facts: dict[str, Any]) -> None:
    mode = _mode(facts) + (", paused by the stop file" if facts["paused"] else "")
    gpus = ", ".join(f"{count} {SELDOM.get(name, name)}" for name, count in facts["gpus"].items()
                     if name != "all" and (count or name not in SELDOM))  # fmt: skip
    jobs = ", ".join(f"{count} {name}" for name, count in facts["jobs"].items() if count or name != "other")
    lines = {
        "mode": f"{mode}; policy {facts['policy']}, lever {facts['lever']}",
        "at work": _at_work(facts),
        "slurm": f"{facts['cluster']}, {facts['slurm']}; {facts['user']} is {facts['rights']}",
        "GPUs": f"{facts['gpus']['all']}: {gpus}",
        "jobs": f"{jobs}; {facts['managed']} managed, {facts['planned']} would change",
    }
    if leader := facts["leader"]:
        lines["leader"] = leader["text"] + _standby_words(leader)
    for name, text in lines.items():
        out.line(f"{name:8} {text}")
    if placed := facts["placements"]:
        text = f"{pluralize(placed['jobs'], 'job')} of several GPUs in a day, {placed['missed']} missed better ones"
        out.line(f"{'links':8} {text} (`slurmsched topology quality`)", "warning" if placed["missed"] else "")
    _print_cycles(out, facts)
    for failure in facts["failures"]:
        ago = duration(facts["now_s"] - failure.recorded_s)
        out.line(f"{ago} ago job {failure.job_id}: {failure.outcome}: {failure.message}", "warning")
    for text in (*_differences(facts["work"]), *facts["notes"], *facts["warnings"]):
        out.line(f"note: {text}", "warning")


def _print_orphans(out: Output, names: Sequence[str]) -> None:
    from slurmsched.slurm.scontrol_tables import end_by_hand

    for name in names:
        out.line(f"reservation {name} belongs to no operation on record; to end it: {end_by_hand(name)}", "warning")


def _mode(facts: dict[str, Any]) -> str:
    at_work = "apply" if facts["writing"] else "dry-run"
    if not facts["working"] or at_work == facts["mode"]:
        return str(facts["mode"])
    return f"{facts['mode']} in the configuration, {at_work} at work"


def _at_work(facts: dict[str, Any]) -> str:
    if not facts["working"]:
        return "no daemon or tick runs now"
    does, work = "writes" if facts["writing"] else "writes nothing", facts["work"]
    since = f", since {duration(facts['now_s'] - work['since_s'])}; slurmsched {work['version']}" if work else ""
    return f"{facts['working']} ({does}{since})"


def _differences(work: dict[str, Any] | None) -> Iterator[str]:
    """What the one at work does otherwise than the configuration read here says."""
    if work and not work["same_config"]:
        yield "who is at work has another configuration than the one read here: reload it, or see its environment"
    if work and work["refused"]:
        yield f"its last reload was refused, so that it goes on by the configuration before: {work['refused']}"


def _standby_words(leader: dict[str, Any]) -> str:
    if leader["remaining_s"] <= 0:
        return ""
    return " (this host)" if leader["name"] == leader["us"] else f"; this host, {leader['us']}, stands by"


def _took(duration_s: float) -> str:
    return f"{duration_s:.1f}s" if 0 <= duration_s < 10 else duration(duration_s)


def _print_cycles(out: Output, facts: dict[str, Any]) -> None:
    if not facts["cycles"]:
        out.line("cycles   none on record")
        return
    columns = ("cycle", "took", "jobs>", "planned>", "written>", "refused>", "ended early")
    rows = [
        (f"{duration(facts['now_s'] - c.recorded_s)} ago", _took(c.duration_s), c.jobs, c.planned,
         "dry-run" if c.dry_run else c.written, c.refused, c.stopped.partition(":")[0])
        for c in facts["cycles"]
    ]  # fmt: skip
    out.table(columns, rows)
