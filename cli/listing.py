"""Lists and tables: those with columns, order and filters as Slurm's commands, and those of operations."""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from slurmsched.cli import completers
from slurmsched.cli.framework import Output, clock, duration, time_limit
from slurmsched.plain_text import escape_terminal, pluralize

if TYPE_CHECKING:
    from slurmsched.cli.framework import Output
    from slurmsched.model import NodeWait, Operation
    from slurmsched.model.plan import Step

Row = Any  # a dataclass: each column shows one of its attributes
_LETTER = re.compile(r"%(\.?)([0-9]{0,4})([A-Za-z])")
_NAME = re.compile(r"([A-Za-z_]+)(?::(\.?)([0-9]{1,4}))?")
STATES = {"PD": "PENDING", "R": "RUNNING", "S": "SUSPENDED", "CG": "COMPLETING", "CD": "COMPLETED"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list.

    name: for --format and --sort, squeue's where it has one; more names may follow after a space.
    key: attribute of the row, for --csv and the order.
    title: heading of the table; a number stands to the right.
    letter: squeue's, such as "u" for %u; "" where it has none.
    text: the value for people.
    """

    name: str
    key: str
    title: str
    letter: str = ""
    number: bool = False
    text: Callable[[Any], str] = lambda value: "-" if value is None else str(value)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that --format and --sort accept, the shown one first."""
        return tuple(self.name.split())

    def value(self, row: Row) -> Any:
        """What the row has in this column."""
        return getattr(row, self.key)

    @property
    def heading(self) -> str:
        """The title; ">" at its end aligns the column right."""
        return f"{self.title}>" if self.number else self.title


def as_hours(gpu_s: float) -> str:
    """GPU hours under a heading that names the unit: "1.5"."""
    return f"{gpu_s / 3600:.1f}"


# Columns that lists of jobs share.
JOB_COLUMNS = (
    Column("jobid", "job_id", "job", "i", number=True),
    Column("user username", "user", "user", "u"),
    Column("account", "account", "account", "a"),
    Column("partition", "partition", "partition", "P"),
    Column("qos", "qos", "qos", "q"),
    Column("name", "name", "name", "j"),
)
SIZE_COLUMNS = (
    Column("gpus", "gpus", "gpus", "b", number=True),
    Column("nodes numnodes", "nodes", "nodes", "D", number=True),
    Column("timelimit", "time_limit_s", "limit", "l", number=True, text=time_limit),
)
RANK_COLUMNS = (
    Column("service", "attained_gpu_s", "GPU h", number=True, text=as_hours),
    Column("queue", "queue", "queue", number=True),
    Column("now", "lever_now", "now", number=True),
    Column("wanted", "lever_wanted", "wanted", number=True),
)


@dataclass(frozen=True, slots=True)
class Field:
    """A column as --format asks for it. before: the text between it and the one before."""

    column: Column
    width: int = 0
    right: bool = False
    before: str = ""

    def padded(self, text: str) -> str:
        """The text in the field's width, as squeue prints it: cut where it is longer."""
        if not self.width:
            return text
        return text[: self.width].rjust(self.width) if self.right else text[: self.width].ljust(self.width)


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user asked of a list: --format, --sort, --noheader, --csv."""

    format: str = ""
    sort: str = ""
    noheader: bool = False
    csv: bool = False

    @property
    def plain(self) -> bool:
        """Whether rows alone are wanted, for another program to read."""
        return bool(self.format or self.noheader or self.csv)


@dataclass(frozen=True, slots=True)
class Listing:
    """The columns of a list. default: names of those that are shown when --format does not choose."""

    columns: tuple[Column, ...]
    default: tuple[str, ...] = field(default=())

    def ordered(self, rows: Iterable[Row], sort: str) -> list[Row]:
        """The rows by --sort: names or letters, the first counts most, "-" before one: largest first."""
        found = list(rows)
        for key in reversed([key for key in sort.replace(" ", "").split(",") if key]):
            column = self._find(key.lstrip("+-%"), "--sort")
            known = [row for row in found if _is_known(column.value(row))]
            known.sort(key=lambda row: _sortable(column.value(row)), reverse=key.startswith("-"))
            found = known + [row for row in found if not _is_known(column.value(row))]
        return found

    def fields(self, text: str) -> tuple[Field, ...]:
        """The fields of --format: "%.10i %u", or names such as "jobid,user:12"."""
        if not text:
            return tuple(Field(self._find(name, "--format")) for name in self._default())
        return self._by_letter(text) if "%" in text else self._by_name(text)

    def show(self, out: Output, rows: Iterable[Row], choice: Choice) -> None:
        """Print the rows as the choice says."""
        fields, found = self.fields(choice.format), self.ordered(rows, choice.sort)
        if choice.csv:
            click.echo(_as_csv(fields, found, noheader=choice.noheader), nl=False)
        elif "%" in choice.format:
            for line in _by_format(fields, found, choice.format, noheader=choice.noheader):
                out.line(line)
        else:
            cells = [[one.padded(one.column.text(one.column.value(row))) for one in fields] for row in found]
            out.table([one.column.heading for one in fields], cells, noheader=choice.noheader)

    def help(self) -> str:
        """Every column: its names and its letter."""
        return ", ".join(f"{one.names[0]}{f' (%{one.letter})' if one.letter else ''}" for one in self.columns)

    def _default(self) -> tuple[str, ...]:
        return self.default or tuple(one.names[0] for one in self.columns)

    def _by_letter(self, text: str) -> tuple[Field, ...]:
        found, at = [], 0
        for match in _LETTER.finditer(text):
            right, width, letter = match.groups()
            column = self._find(letter, "--format")
            found.append(Field(column, int(width or 0), bool(right), text[at : match.start()]))
            at = match.end()
        if not found:
            raise click.BadParameter(f"{text!r} has no %letter; {self._known()}", param_hint="--format")
        return tuple(found)

    def _by_name(self, text: str) -> tuple[Field, ...]:
        found = []
        for part in text.split(","):
            match = _NAME.fullmatch(part.strip())
            if match is None:
                raise click.BadParameter(f"{part!r} is not NAME or NAME:WIDTH; {self._known()}", param_hint="--format")
            name, right, width = match.groups()
            found.append(Field(self._find(name, "--format"), int(width or 0), bool(right)))
        return tuple(found)

    def _find(self, word: str, option: str) -> Column:
        """The column of a letter or a name. Raises BadParameter naming all of them."""
        for one in self.columns:
            if word == one.letter or word.lower() in one.names:
                return one
        raise click.BadParameter(f"there is no column {word!r}; {self._known()}", param_hint=option)

    def _known(self) -> str:
        return f"columns: {self.help()}"


def listed(listing: Listing) -> Callable[[Any], Any]:
    """The options --format, --sort, --noheader and --csv; the function gets them as `choice`."""

    def add(function: Any) -> Any:
        @functools.wraps(function)
        def wrapped(*, format_: str, sort: str, noheader: bool, as_csv: bool, **values: Any) -> Any:
            listing.fields(format_), listing.ordered((), sort)  # a wrong name is told before Slurm is asked
            return function(choice=Choice(format_, sort, noheader, as_csv), **values)

        for option in reversed(_LIST_OPTIONS):
            wrapped = option(wrapped)
        made: Any = wrapped
        made.listing = listing
        return made

    return add


_LIST_OPTIONS = (
    click.option("-o", "--format", "format_", default="", metavar="FORMAT",
                 help="Columns to show: squeue's letters such as '%.10i %u', or names such as jobid,user:12."),
    click.option("-S", "--sort", default="", metavar="COLUMNS",
                 help="Sort by these columns, such as user,-gpus; a minus sorts the largest first."),
    click.option("--noheader", is_flag=True, help="Print no heading and no notes."),
    click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which rows of jobs are shown: those that match every set that is not empty."""

    user: frozenset[str] = frozenset()
    account: frozenset[str] = frozenset()
    partition: frozenset[str] = frozenset()
    qos: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    state: frozenset[str] = frozenset()
    every: bool = False  # --states=all

    def __call__(self, row: Row) -> bool:
        chosen = ((getattr(self, name), name) for name in ("user", "account", "qos", "state"))
        named = all(not wanted or getattr(row, name) in wanted for wanted, name in chosen)
        return named and self._in_partition(row) and self._on(row)

    def asks_for(self, *states: str) -> bool:
        """Whether --states names one of these, or all."""
        return self.every or not self.state.isdisjoint(states)

    def _in_partition(self, row: Row) -> bool:
        return not self.partition or bool(self.partition & set(row.partition.split(",")))

    def _on(self, row: Row) -> bool:
        from slurmsched.model.hostlists import expand_hostlist

        if not self.nodes:
            return True
        return bool(row.nodes) and not self.nodes.isdisjoint(expand_hostlist(row.nodes))


ALL_JOBS, PLAIN_TABLE = JobFilter(), Choice()  # where nothing was asked for
_FILTERS = {
    name: click.option(*options, default="", metavar=metavar, shell_complete=complete, help=text)
    for name, options, metavar, complete, text in (
        ("user", ("-u", "--user"), "NAMES", completers.squeue("u"), "Only jobs of these users."),
        ("account", ("-A", "--account"), "NAMES", completers.squeue("a"), "Only jobs of these accounts."),
        ("partition", ("-p", "--partition"), "NAMES", completers.partitions, "Only jobs of these partitions."),
        ("qos", ("-q", "--qos"), "NAMES", completers.squeue("q"), "Only jobs of these QOS."),
        ("nodelist", ("-w", "--nodelist"), "HOSTLIST", completers.nodes, "Only jobs on these nodes."),
        ("states", ("-t", "--states"), "STATES", None, "Only jobs in these states, such as PD,R or all."),
    )
} | {"me": click.option("--me", is_flag=True, help="Only your own jobs.")}


def filtered(*names: str) -> Callable[[Any], Any]:
    """The filters of jobs with these names; the function gets a JobFilter as `keeps`. `me` comes with `user`."""
    chosen = [*names, *(["me"] if "user" in names else [])]

    def add(function: Any) -> Any:
        @functools.wraps(function)
        def wrapped(**values: Any) -> Any:
            given = {name: values.pop(name) for name in chosen}
            return function(keeps=_job_filter(given), **values)

        for name in reversed(chosen):
            wrapped = _FILTERS[name](wrapped)
        return wrapped

    return add


def _job_filter(given: Mapping[str, Any]) -> JobFilter:
    users = _names(given.get("user", "")) | (frozenset([_own_name()]) if given.get("me") else frozenset())
    hosts: frozenset[str] = frozenset()
    if given.get("nodelist"):
        from slurmsched.observe.survey.sbatch_request import named_hosts as expanded

        hosts = frozenset(expanded("--nodelist", given["nodelist"]))
    states = frozenset(STATES.get(name, name) for name in _names(given.get("states", "").upper()))
    if unknown := sorted(states - {*STATES.values(), "ALL"}):
        there = ", ".join(f"{short} ({name})" for short, name in STATES.items())
        raise click.BadParameter(f"there is no state {unknown[0]!r}; states are {there} and all", param_hint="--states")
    known = frozenset() if "ALL" in states else states
    account, partition, qos = (_names(given.get(name, "")) for name in ("account", "partition", "qos"))
    return JobFilter(users, account, partition, qos, hosts, known, "ALL" in states)


def _own_name() -> str:
    import os
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _is_known(value: Any) -> bool:
    return value is not None and value == value


def _sortable(value: Any) -> tuple[int, Any]:
    """Numbers before texts; digits in names count as numbers: n2 before n10."""
    if isinstance(value, int | float):
        return 0, value
    from slurmsched.model.hostlists import counting_key

    return 1, counting_key(str(value))


def _by_format(fields: Sequence[Field], rows: Iterable[Row], text: str, *, noheader: bool) -> Iterator[str]:
    """Lines as squeue prints them for this format."""
    end = text[list(_LETTER.finditer(text))[-1].end() :]
    lines = [] if noheader else [[one.column.title.upper() for one in fields]]
    lines += [[escape_terminal(one.column.text(one.column.value(row))) for one in fields] for row in rows]
    for line in lines:
        padded = (f"{one.before}{one.padded(cell)}" for one, cell in zip(fields, line, strict=True))
        yield ("".join(padded) + end).rstrip()


def _as_csv(fields: Sequence[Field], rows: Iterable[Row], *, noheader: bool) -> str:
    made = io.StringIO()
    writer = csv.writer(made, lineterminator="\n")
    if not noheader:
        writer.writerow([one.column.names[0] for one in fields])
    for row in rows:
        values = (one.column.value(row) for one in fields)
        writer.writerow(["" if value is None else escape_terminal(str(value)) for value in values])
    return made.getvalue()


# Tables of operations (preemptions, gang reservations) and their steps: `plan`, `status`, `operations`, `undo`.


def operation_word(operation: Operation) -> str:
    """What it is: a preemption, a gang reservation, or a reservation of ours that nobody has on record."""
    if not operation.begun_s:
        return "left-over reservation"
    return {"preempt": "preemption", "reserve": "gang reservation"}[operation.purpose]


def print_operations(out: Output, operations: Sequence[Operation], now_s: float) -> None:
    """A line for each, and one for each job that kept nodes wait for; none where there are none."""
    for operation in operations:
        takes = f", {pluralize(len(operation.victims), 'victim')}" if operation.victims else ""
        when = (
            f", by {clock(operation.promised_s)} (in {duration(operation.promised_s - now_s)})"
            if operation.promised_s > now_s
            else ""
        )
        note = f": {operation.note}" if operation.note else ""
        what = f"{operation.purpose} {operation.id}: job {operation.job_id} of {operation.user} on {operation.nodes}"
        out.line(f"{what}, {operation.stage}{takes}{when}{note}")
        for job_id, waits in groupby(
            sorted(operation.waits, key=lambda wait: wait.job_id), key=lambda wait: wait.job_id
        ):
            out.line(f"  {_wait_line(job_id, list(waits))}")
        for victim in operation.victims:
            out.line(f"  victim {victim.job_id} {victim.loses}")


def _wait_line(job_id: int, waits: Sequence[NodeWait]) -> str:
    from slurmsched.model.hostlists import fold_hostlist

    nodes = fold_hostlist(wait.node for wait in waits)
    return f"{nodes} until job {job_id} has left, {clock(waits[0].until_s)}" if job_id else f"{nodes} ready"


def print_steps(out: Output, steps: Sequence[Step]) -> None:
    """A table of them, none where there are none."""
    if steps:
        rows = [(step.operation, _step_words(step), step.job_id, step.reason) for step in steps]
        out.table(("operation", "step", "job>", "reason"), rows)


def _step_words(step: Step) -> str:
    """What is done, in a word or two."""
    from slurmsched.model.plan import AskSize, SetField, ShrinkJob

    if isinstance(step, AskSize):
        return f"want {pluralize(step.gpus, 'GPU')}" if step.gpus else "want no other size"
    if isinstance(step, ShrinkJob):
        return f"shrink to {pluralize(step.nodes, 'node')}"
    if not isinstance(step, SetField):
        return step.kind
    if step.kind == "defer":
        return "start back" if step.restores else f"start at {clock(step.new)}"
    if step.kind == "retype":  # of another size, or of other Types
        return f"ask {step.new}"
    if step.kind == "pin":
        return f"pin {step.new}" if step.new else "unpin"
    if step.kind == "comment":
        return f"set AdminComment {step.new}" if step.new else "clear AdminComment"
    return f"{step.kind} {step.new}"
