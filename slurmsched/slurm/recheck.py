"""A last look at the jobs that are about to be written, for the gate's rules (planning/gate.py)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TypeVar

import numpy as np

from slurmsched.errors import SlurmError, SlurmUnreachableError, UnreadableError
from slurmsched.logs import get_logger
from slurmsched.model.columns import Table
from slurmsched.model.gpu_selection import JobGpuRequest
from slurmsched.model.gres import KINDS, normal_form, parse_gres
from slurmsched.model.hostlists import expand_hostlist
from slurmsched.model.nodes import Nodes
from slurmsched.model.operations import Operation
from slurmsched.model.plan import (
    Action,
    SetAdminComment,
    SetCpus,
    SetField,
    SetGpuRequest,
    SetMemory,
    SetNodeList,
    SetShards,
    SetSiteFactor,
    SetSize,
    ShrinkJob,
)
from slurmsched.model.slurm_text import (
    is_signed_number,
    record_fields,
    signed_number,
    text_or_empty,
    time_s,
    whole_number,
)
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import NodeState, job_state
from slurmsched.planning.gate import DOUBTFUL, CurrentJob
from slurmsched.slurm.commands import Commands, argument_batches, node_batches
from slurmsched.slurm.job_records import MOST_SINGLY, ONE_AS_MANY, JobRecord, ask_jobs
from slurmsched.slurm.reader import read_few
from slurmsched.slurm.scontrol_tables import parse_nodes
from slurmsched.slurm.squeue import fresh_mark

log = get_logger()

UNREAD = ("what could not be read",)
# Of squeue -O: its short form (-o) has no letter for EligibleTime.
FIELDS = ("JobID", "SubmitTime", "Nice", "State", "Reservation", "ReqNodes", "tres-per-node", "EligibleTime")
# What of a job and of a node says whether the job could start there.
OF_JOB = (
    "submit_s", "eligible_s", "priority", "state", "reason", "dependency", "reservation", "partition", "account", "qos",
    "time_limit_s", "nodes", "cpus", "memory_mib", "gpus", "gpu_request", "restarts", "features_asked", "nodes_asked",
    "nodes_excluded",
)  # fmt: skip
_OF_NODE = tuple(spec.name for spec in fields(Nodes) if spec.name != "name")
T = TypeVar("T", bound=Table)
Request = SetNodeList | SetGpuRequest | SetCpus | SetMemory  # actions that what a job asks for besides may forbid


class Recheck:
    """Reads the few jobs of some actions again.

    - One squeue.
    - One sprio, if a site factor is among the actions.
    - The requests of jobs that are to get a node list, a request or a number of CPUs.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def __call__(self, actions: Sequence[Action]) -> dict[int, CurrentJob]:
        """Jobs by id; those that left the queue, and those whose row cannot be read, are absent. Raises SlurmError."""
        wanted = {action.job_id for action in actions}
        sites = self._site_factors() if any(isinstance(action, SetSiteFactor) for action in actions) else {}
        found: dict[int, CurrentJob] = {}
        more = sorted(
            {name for action in actions if isinstance(action, SetField | ShrinkJob) for name in action.columns}
        )
        columns = ",".join(f"{name}:0|" for name in (*FIELDS, *more))
        for line in self._squeue(wanted, columns).split("\n"):
            row = _row(line, sites, more)
            if row is not None and row[0] in wanted and sites.get(row[0], 0) is not None:
                found[row[0]] = row[1]
        given = [action for action in actions if isinstance(action, Request) and not action.restores]
        found = self._with_bars(found, [action for action in given if action.job_id in found])
        for job, text in self._admin_comments(actions).items():
            found |= {job: replace(found[job], admin_comment=text)} if job in found else {}
        by_hint = sorted({action.job_id for action in actions if isinstance(action, ShrinkJob | SetShards)})
        for job, text in self._comments(by_hint).items():
            found |= {job: replace(found[job], comment=text)} if job in found else {}
        return found

    def again(self, snapshot: Snapshot, operation: Operation, operations: Sequence[Operation]) -> Snapshot:
        """The snapshot with the operation's job, its victims and its nodes as Slurm shows them now.

        operations: those of the plan. Only jobs that matter to one operation or to its nodes are in it. Raises
        SlurmError."""
        jobs, nodes = snapshot.jobs, snapshot.nodes
        asked = sorted({operation.job_id, *(victim.job_id for victim in operation.victims)})
        listed = read_few(self._commands, asked, snapshot.now_s, [])
        show = ("scontrol", "-o", "-d", "show", "node")
        shown = parse_nodes(
            "\n".join(self._commands.run(*show, listed) for listed in node_batches(operation.nodes)), []
        )
        here = snapshot.allocations.take(snapshot.allocations.node.isin(expand_hostlist(operation.nodes)))
        others = [each.job_id for each in operations] + [
            victim.job_id for each in operations for victim in each.victims
        ]
        gone = [job for job in asked if listed.row_of(job) < 0]
        rows = np.isin(jobs.job_id, [*asked, *others, *here.job_id.tolist()]) & ~np.isin(jobs.job_id, gone)
        missing = [name for name in expand_hostlist(operation.nodes) if name not in set(shown.name)]
        unseen = np.where(nodes.name.isin(missing), int(NodeState.UNKNOWN), nodes.state)
        return replace(
            snapshot,
            jobs=_put(jobs.take(rows), "job_id", listed, OF_JOB),
            nodes=_put(nodes.with_columns(state=unseen), "name", shown, _OF_NODE),
            operations=tuple(operations),
        )

    def _with_bars(self, found: dict[int, CurrentJob], actions: Sequence[Request]) -> dict[int, CurrentJob]:
        """The jobs of these with what they ask for now that a value of ours could break."""
        if not actions:
            return found
        from slurmsched.slurm.cons_tres import OWN_NODE, read_gpu_request

        few = sorted({action.job_id for action in actions})
        answer = ask_jobs(self._commands, self._names(few), ONE_AS_MANY * len(few), MOST_SINGLY)
        gpu_requests = {job: read_gpu_request(job, record) for job, record in answer.records.items()}
        rewritten = {action.job_id for action in actions if isinstance(action, SetGpuRequest)}
        lists = {action.job_id: action for action in actions if isinstance(action, SetNodeList)}
        resized = {action.job_id: action for action in actions if isinstance(action, SetSize)}
        bars = {job: UNREAD if request is None else _bars(request, rewritten, lists.get(job), resized.get(job))
                for job in few for request in (gpu_requests.get(job),)}  # fmt: skip
        bars |= {job: (*bars[job], *_node_bars(answer.records[job], action)) for job, action in resized.items()
                 if job in answer.records and bars[job] != UNREAD}  # fmt: skip
        whole = {job: (OWN_NODE,) for job, request in gpu_requests.items() if request is not None and request.whole}
        numbers = {action.job_id for action in actions if isinstance(action, SetCpus)}
        bars |= {job: (*_cpu_bars(record), *whole.get(job, ())) for job, record in answer.records.items()
                 if job in numbers}  # fmt: skip
        amounts = {action.job_id for action in actions if isinstance(action, SetMemory)}
        bars |= {job: (*_memory_bars(record), *whole.get(job, ())) for job, record in answer.records.items()
                 if job in amounts}  # fmt: skip
        bars |= dict.fromkeys(answer.doubtful, (DOUBTFUL,))
        return found | {job: replace(found[job], bars=bars[job]) for job in few}

    def _admin_comments(self, actions: Sequence[Action]) -> dict[int, str]:
        """The text that each job has where it is to get another one; without those that cannot be read."""
        given = [action for action in actions if isinstance(action, SetAdminComment)]
        mark, texts = fresh_mark(), dict[int, str]()
        for accounting in {action.accounting for action in given}:
            for ids in argument_batches(sorted(action.job_id for action in given if action.accounting == accounting)):
                try:
                    shown = self._accounted(ids, mark) if accounting else self._in_queue(ids, mark, "admin_comment")
                except SlurmError as error:  # not a warning: cron would mail it in every minute that slurmdbd is down
                    log.info("recheck.admin_comments_unread", error=str(error))
                    continue
                texts |= _marked(shown, mark)
        return texts

    def _comments(self, jobs: Sequence[int]) -> dict[int, str]:
        """The comment of each of these jobs."""
        mark, texts = fresh_mark(), dict[int, str]()
        for ids in argument_batches(jobs):
            texts |= _marked(self._in_queue(ids, mark, "Comment"), mark)
        return texts

    def _in_queue(self, ids: str, mark: str, column: str) -> str:
        return self._squeue_of(ids, f"JobID:0|,{column}:0{mark}")

    def _accounted(self, ids: str, mark: str) -> str:
        """In the form of _in_queue. The text is the last field, so that a "|" in it does no harm."""
        asked = ("-X", "-n", "-p", f"--delimiter={mark}", "-j", ids, "-o", "JobIDRaw,AdminComment")
        fields = self._commands.run("sacct", *asked).split(mark)
        return mark.join(f"{job.strip()}|{text}" for job, text in zip(fields[::2], fields[1::2], strict=False)) + mark

    def _names(self, jobs: Sequence[int]) -> dict[int, str]:
        """What their users call them, by which their records are read."""
        mark = fresh_mark()
        rows = (row.lstrip("\n").partition("|") for row in self._squeue(jobs, f"JobID:0|,Name:0{mark}").split(mark))
        name_of = {whole_number(job, -1): name for job, _, name in rows}
        return {job: name_of[job] for job in jobs if job in name_of}

    def _squeue(self, job_ids: Iterable[int], columns: str) -> str:
        # -r: without it split tasks of an array hide behind its record.
        return "".join(self._squeue_of(ids, columns) for ids in argument_batches(sorted(job_ids)))

    def _squeue_of(self, ids: str, columns: str) -> str:
        try:
            return self._commands.run("squeue", "-h", "-a", "-r", "-t", "all", "-j", ids, "-O", columns)
        except SlurmUnreachableError:
            raise
        except SlurmError as error:
            if "invalid job id" in str(error).lower():  # the only job asked for is gone
                return ""
            raise

    def _site_factors(self) -> dict[int, int | None]:
        """By job; None for one that cannot be read."""
        rows = (line.partition("|") for line in self._commands.run("sprio", "-h", "-o", "%i|%S").splitlines())
        factor_of = {whole_number(job, -1): site.strip() for job, _, site in rows}
        return {job: int(site) if is_signed_number(site) else None for job, site in factor_of.items()}


def _marked(shown: str, mark: str) -> dict[int, str]:
    """The text of each job, from rows that end with the mark: whatever is in a text is no row."""
    rows = (row.lstrip("\n").partition("|") for row in shown.split(mark))
    return {whole_number(job, -1): text_or_empty(text.removesuffix("|")) for job, _, text in rows}


def _put(table: T, key: str, fresh: T, names: Sequence[str]) -> T:
    """The table with these columns of the rows of `fresh` in place of its own."""
    row_of = {each: row for row, each in enumerate(getattr(table, key))}
    pairs = [(row_of[each], row) for row, each in enumerate(getattr(fresh, key)) if each in row_of]
    columns = {name: list(getattr(table, name)) for name in names}
    for name, values in columns.items():
        fresh_values = getattr(fresh, name)
        for old, new in pairs:
            values[old] = fresh_values[new]
    return table.with_columns(**columns)


def _bars(
    gpu_request: JobGpuRequest, rewritten: Container[int], given: SetNodeList | None, size: SetSize | None = None
) -> tuple[str, ...]:
    """What keeps its job from a list or a request. A list of fewer nodes than it gets would shrink it if it starts
    right then. A request of ours takes the place of all that it asks by node."""
    from slurmsched.slurm.cons_tres import UNFIXED

    if given is not None and len(expand_hostlist(given.new)) != gpu_request.nodes:
        return (f"{gpu_request.nodes} nodes" if gpu_request.nodes else UNFIXED,)
    bars = tuple(bar for bar in gpu_request.bars if bar != UNFIXED)  # of a list alone, which is that of `given`
    if gpu_request.job_id not in rewritten:
        return bars if given is None or given.picked else ()
    said = {
        f"GPUs in another way than by {size.by if size else 'node'}": gpu_request.form
        != _FORMS[size.by if size else "node"],
        "other GRES beside GPUs": not gpu_request.alone,
        "GPUs near its cores": gpu_request.bound,
    }
    return (*bars, *(words for words, bars in said.items() if bars))


_FORMS = {"node": "gpus-per-node", "job": "gpus", "task": "gpus-per-task"}  # values of slurm_selection.GpuOption


def _node_bars(record: JobRecord, action: SetSize) -> tuple[str, ...]:
    """What keeps its job from another size: a number of nodes that Slurm may choose. The first write fixes it for good,
    and the job's own would not come back."""
    from slurmsched.slurm.cons_tres import UNFIXED

    if action.by == "node" and not action.scales:
        return ()
    fixed = record_fields(record.record_text).get("NumNodes", "") == f"{action.nodes}-{action.nodes}"
    return () if fixed else (f"{UNFIXED} (--nodes={action.nodes} fixes it)",)


def _cpu_bars(record: JobRecord) -> tuple[str, ...]:
    """What keeps its job from another number of CPUs: memory that would change with them, and whatever makes the three
    numbers differ, as a write makes them equal for good."""
    if record.options is None:
        return UNREAD
    found = record_fields(record.record_text) | record_fields(record.texts.partition(" Features=")[0])
    ways = {found.get(key, "") for key in ("NumCPUs", "CPUs/Task", "MinCPUsNode")}
    said = {
        "memory by CPU": "MinMemoryNode" not in found,
        "several tasks": found.get("NumTasks") != "1",
        "CPUs by GPU": "CpusPerTres" in record.options,
        "CPUs in another way than by --cpus-per-task alone": len(ways) > 1 or ways == {""},
    }
    return tuple(words for words, bars in said.items() if bars)


def _memory_bars(record: JobRecord) -> tuple[str, ...]:
    """What keeps its job from other memory: a request that does not go by node."""
    if record.options is None:
        return UNREAD
    found = record_fields(record.record_text) | record_fields(record.texts.partition(" Features=")[0])
    said = {"memory by CPU": "MinMemoryNode" not in found, "memory by GPU": "MemPerTres" in record.options}
    return tuple(words for words, bars in said.items() if bars)


def _asked(text: str) -> str:
    """What a job asks for by node, in normal form; as it is where that would not tell all of it."""
    try:
        entries = parse_gres(text)
    except UnreadableError:
        return text
    gpus_only = all(entry.kind in KINDS for entry in entries if entry.count)
    return normal_form(entries) if gpus_only else text


def _row(line: str, sites: Mapping[int, int | None], more: Sequence[str] = ()) -> tuple[int, CurrentJob] | None:
    """A job's id and state; None for a row that is none, whose job then counts as gone. more: further columns."""
    try:
        job_id, submit_s, nice, state, reservation, nodes, gpus, eligible_s, *others, _ = line.split("|")
        texts = dict(zip(more, map(text_or_empty, others), strict=True))
        number, named = whole_number(job_id, -1), text_or_empty(reservation)
        asked = {"nodes": text_or_empty(nodes), "gpus": _asked(text_or_empty(gpus)), "eligible_s": time_s(eligible_s)}
        return number, CurrentJob(time_s(submit_s), job_state(state), signed_number(nice), sites.get(number), named,
                            fields=texts, **asked)  # type: ignore[arg-type]  # fmt: skip
    except (ValueError, UnreadableError):
        return None
