"""A last look at the jobs that are about to be written, for the gate's rules (planning/send_rules.py)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TypeVar

import numpy as np

from slurmsched.errors import SlurmError, SlurmUnreachableError, UnreadableError
from slurmsched.model.acts import Act
from slurmsched.model.gres import normal_form, parse_gres
from slurmsched.model.hostlist import expand
from slurmsched.model.nodes import Nodes
from slurmsched.model.pins import Wish
from slurmsched.model.plan import Action, PinNodes, Retype, SetSiteFactor
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.states import NodeState, job_state
from slurmsched.model.table import Table
from slurmsched.planning.view import Seen
from slurmsched.slurm.cli_reader import read_few
from slurmsched.slurm.commands import Commands, batches, node_batches
from slurmsched.slurm.job_records import MOST_SINGLY, ONE_AS_MANY, ask_jobs
from slurmsched.slurm.node_text import parse_nodes
from slurmsched.slurm.queue_text import fresh_mark
from slurmsched.slurm.text import is_signed, plain, signed, time_s, whole

UNREAD = ("what could not be read",)
DOUBTFUL = ("what a doubled or forged record tells",)  # one may be what a user wrote into a comment
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
_FORMAT = ",".join(f"{name}:0|" for name in FIELDS)


class Recheck:
    """Reads the few jobs of some actions again: one squeue, one sprio if a site factor is among them, and what those
    ask for that are to get a node list or a request."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def __call__(self, actions: Sequence[Action]) -> dict[int, Seen]:
        """Jobs by id; those that left the queue, and those whose row cannot be read, are absent. Raises SlurmError."""
        wanted = {action.job_id for action in actions}
        sites = self._site_factors() if any(isinstance(action, SetSiteFactor) for action in actions) else {}
        found: dict[int, Seen] = {}
        for line in self._squeue(wanted, _FORMAT).split("\n"):
            row = _row(line, sites)
            if row is not None and row[0] in wanted and sites.get(row[0], 0) is not None:
                found[row[0]] = row[1]
        given = [action for action in actions if isinstance(action, PinNodes | Retype) and _gives(action)]
        return self._with_bars(found, [action for action in given if action.job_id in found])

    def again(self, snapshot: Snapshot, act: Act, acts: Sequence[Act]) -> Snapshot:
        """The snapshot with the act's job, its victims and its nodes as Slurm shows them now.

        acts: those of the plan. Only jobs that matter to one act or to its nodes are in it. Raises SlurmError.
        """
        jobs, nodes = snapshot.jobs, snapshot.nodes
        asked = sorted({act.job_id, *(victim.job_id for victim in act.victims)})
        listed = read_few(self._commands, asked, snapshot.now_s, [])
        show = ("scontrol", "-o", "-d", "show", "node")
        shown = parse_nodes("\n".join(self._commands.run(*show, listed) for listed in node_batches(act.nodes)), [])
        here = snapshot.allocations.take(snapshot.allocations.node.isin(expand(act.nodes)))
        others = [each.job_id for each in acts] + [victim.job_id for each in acts for victim in each.victims]
        gone = [job for job in asked if listed.row_of(job) < 0]
        kept = jobs.take(np.isin(jobs.job_id, [*asked, *others, *here.job_id.tolist()]) & ~np.isin(jobs.job_id, gone))
        missing = [name for name in expand(act.nodes) if name not in set(shown.name)]
        unseen = np.where(nodes.name.isin(missing), int(NodeState.UNKNOWN), nodes.state)
        return replace(
            snapshot,
            jobs=_put(kept, "job_id", listed, OF_JOB),
            nodes=_put(nodes.with_columns(state=unseen), "name", shown, _OF_NODE),
            acts=tuple(acts),
        )

    def _with_bars(self, found: dict[int, Seen], actions: Sequence[PinNodes | Retype]) -> dict[int, Seen]:
        """The jobs of these with what they ask for now that a list or a request of ours could break."""
        if not actions:
            return found
        from slurmsched.slurm.picking import read_wish

        few = sorted({action.job_id for action in actions})
        answer = ask_jobs(self._commands, self._names(few), ONE_AS_MANY * len(few), MOST_SINGLY)
        wishes = {job: read_wish(job, record) for job, record in answer.records.items()}
        rewritten = {action.job_id for action in actions if isinstance(action, Retype)}
        lists = {action.job_id: action for action in actions if isinstance(action, PinNodes)}
        bars = {job: _bars(wish, rewritten, lists.get(job)) if (wish := wishes.get(job)) else UNREAD for job in few}
        bars |= dict.fromkeys(answer.doubtful, DOUBTFUL)
        return found | {job: replace(found[job], bars=bars[job]) for job in few}

    def _names(self, jobs: Sequence[int]) -> dict[int, str]:
        """What their users call them, by which their records are read."""
        mark = fresh_mark()
        rows = (row.lstrip("\n").partition("|") for row in self._squeue(jobs, f"JobID:0|,Name:0{mark}").split(mark))
        told = {whole(job, -1): name for job, _, name in rows}
        return {job: told[job] for job in jobs if job in told}

    def _squeue(self, job_ids: Iterable[int], columns: str) -> str:
        # -r: without it split tasks of an array hide behind its record.
        return "".join(self._squeue_of(ids, columns) for ids in batches(sorted(job_ids)))

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
        told = {whole(job, -1): site.strip() for job, _, site in rows}
        return {job: int(site) if is_signed(site) else None for job, site in told.items()}


def _put(table: T, key: str, fresh: T, names: Sequence[str]) -> T:
    """The table with these columns of the rows of `fresh` in place of its own."""
    row_of = {each: row for row, each in enumerate(getattr(table, key))}
    pairs = [(row_of[each], row) for row, each in enumerate(getattr(fresh, key)) if each in row_of]
    columns = {name: list(getattr(table, name)) for name in names}
    for name, values in columns.items():
        told = getattr(fresh, name)
        for old, new in pairs:
            values[old] = told[new]
    return table.with_columns(**columns)


def _gives(action: PinNodes | Retype) -> bool:
    """Whether it is no job's own that is given back."""
    return action.nodes != action.base if isinstance(action, PinNodes) else action.gpus != action.base


def _bars(wish: Wish, rewritten: Container[int], given: PinNodes | None) -> tuple[str, ...]:
    """What keeps its job from a list or a request. A list of fewer nodes than it gets would shrink it if it starts
    right then. A request of ours takes the place of all that it asks by node."""
    from slurmsched.slurm.picking import UNFIXED

    if given is not None and len(expand(given.nodes)) != wish.nodes:
        return (f"{wish.nodes} nodes" if wish.nodes else UNFIXED,)
    bars = tuple(bar for bar in wish.bars if bar != UNFIXED)  # of a list alone, which is that of `given`
    if wish.job_id not in rewritten:
        return bars if given is None or given.picked else ()
    said = {
        "GPUs in another way than by node": wish.form != "gpus-per-node",  # topology.slurm_node.Form.PER_NODE
        "other GRES beside GPUs": not wish.alone,
        "GPUs near its cores": wish.bound,
    }
    return (*bars, *(words for words, bars in said.items() if bars))


def _asked(text: str) -> str:
    """What a job asks for by node, in normal form; as it is where that would not tell all of it."""
    try:
        entries = parse_gres(text)
    except UnreadableError:
        return text
    told = all(entry.kind in ("gpu", "shard") for entry in entries if entry.count)
    return normal_form(entries) if told else text


def _row(line: str, sites: Mapping[int, int | None]) -> tuple[int, Seen] | None:
    """A job's id and state; None for a row that is none, whose job then counts as gone."""
    try:
        job_id, submit_s, nice, state, reservation, nodes, gpus, eligible_s, _ = line.split("|")
        number, named = whole(job_id, -1), plain(reservation)
        return number, Seen(time_s(submit_s), job_state(state), signed(nice), sites.get(number), named,
                            nodes=plain(nodes), gpus=_asked(plain(gpus)), eligible_s=time_s(eligible_s))  # fmt: skip
    except (ValueError, UnreadableError):
        return None
