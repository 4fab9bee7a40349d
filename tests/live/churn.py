"""Random churn on a lab of 16 nodes, and what must hold all the while. One seed gives one order of events."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import ClassVar

import orjson
from ClusterShell.NodeSet import NodeSet

from slurmsched.model.gpu_selection import counted
from slurmsched.model.slurm_text import record_fields, split_records
from slurmsched.slurm.scontrol_tables import parse_reservations
from tests.live.lab import USERS, Installed, column, run, sacct

NODES = [f"n{number}" for number in range(1, 17)]
# A reservation may be there that no open operation has, so long after its operation or after the daemon came back.
LATE_S = 25.0
# Notes nothing, saves nothing: goes on at the signal and ends well when Slurm asks it to.
SCRIPT = "trap '' USR2; trap 'exit 0' TERM; n=0; until [ $n -ge {s} ]; do sleep 1; n=$((n + 1)); done"
WILLING = ("slurmsched: preempt=yes ckpt=USR2@1", "slurmsched: preempt=yes ckpt=USR2@3", "slurmsched: preempt=no", "")
LATER = ("starttime=now+1hour", "numnodes=3", "priority=0", "partition=phantom")


@dataclass
class Churn:
    """What happens, and what is known of it. chosen: nice of each job as its user gave it."""

    site: Installed
    seed: int
    chosen: dict[int, int] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)
    failed: Counter[int] = field(default_factory=Counter)  # runs that a node's end took, by job
    named: Counter[int] = field(default_factory=Counter)  # operations that name a job as a victim
    operations: dict[str, dict] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    down: set[str] = field(default_factory=set)
    alone_s: dict[str, float] = field(default_factory=dict)  # reservation -> since when no open operation has it
    # job -> its reservation when it was kept from its start, the cycles done then, and when that was
    changed: dict[int, tuple[str, int, float]] = field(default_factory=dict)
    applied: set[tuple[int, str]] = field(default_factory=set)  # jobs and changes that were tried before
    daemon: subprocess.Popen[bytes] | None = None
    shards: ClassVar[int] = 0  # of each node
    later: tuple[str, ...] = LATER
    begun_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.log = (self.site.folder / "churn.jsonl").open("ab")

    def note(self, event: str, **values: object) -> None:
        self.counts[event] += 1
        line = {"s": round(time.monotonic() - self.begun_s, 1), "event": event, **values}
        self.log.write(orjson.dumps(line) + b"\n")
        self.log.flush()

    # What happens

    def event(self) -> None:
        """One event, by chance."""
        choices: dict[Callable[[], None], int] = {
            self.submit: 60, self.cancel: 8, self.node_down: 5, self.node_up: 8, self.drain: 3, self.reconfigure: 2,
            self.kill_daemon: 5, self.restart_slurmctld: 1, self.change: 6,
        }  # fmt: skip
        self.chance.choices(list(choices), list(choices.values()))[0]()

    def submit(self) -> None:
        chance = self.chance
        if len(column("%A", "PENDING")) > 60:
            return self.cancel()
        user, nodes = chance.choice(USERS), chance.choice((1, 1, 1, 1, 2))
        gpus = 8 if nodes > 1 else chance.choice((1, 2, 4, 8, 8))
        script, nice = SCRIPT.format(s=chance.choice((5, 20, 60, 120))), chance.choice((0, 0, 5, 70))
        options = [f"--nodes={nodes}", f"--gpus-per-node={gpus}", "--mem=1G", f"--nice={nice}", "--time=10",
                   f"--comment={chance.choice(WILLING)}", chance.choice(("--requeue", "--requeue", "--no-requeue")),
                   f"--partition={chance.choice(('soak',) * 9 + ('phantom',))}"]  # fmt: skip
        answer = run("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}", user=user, check=False)
        if not answer.rc:  # slurmctld may be away
            self.chosen[int(answer.out)] = nice
            self.note("submit", job=int(answer.out), user=user, gpus=gpus * nodes)
        return None

    def cancel(self) -> None:
        waiting = sorted(column("%A", "PENDING", "RUNNING"))
        if waiting:
            job = self.chance.choice(waiting)
            self.cancelled.add(job)
            self.note("cancel", job=job)
            run("scancel", str(job), check=False)

    def change(self) -> None:
        """What keeps a waiting job from its start, one for which nodes are kept where there is one."""
        waiting = column("%v", "PENDING")
        named = {job: name for job, name in waiting.items() if name.startswith("slurmsched-")}
        if waiting:
            job = self.chance.choice(sorted(named or waiting))
            change = self.chance.choice([*self.later, f"excnodelist={','.join(NODES)}"])
            done = not run("scontrol", "update", f"jobid={job}", change, check=False).rc
            if done and job in named and (job, change) not in self.applied:  # what it has already keeps it from nothing
                self.changed[job] = (named[job], self.cycles(), time.monotonic())
            self.applied.add((job, change))
            self.note("change", job=job, change=change)

    def cycles(self) -> int:
        """How many cycles of the daemon have ended well."""
        return (self.site.folder / "daemon.log").read_bytes().count(b'"cycle.done"')

    def node_down(self) -> None:
        up = [node for node in NODES if node not in self.down]
        if len(self.down) < 4:
            node = self.chance.choice(up)
            run("scontrol", "update", f"nodename={node}", "state=drain", "reason=soak", check=False)
            before = self._on(node)  # nobody starts there any more
            run("scontrol", "update", f"nodename={node}", "state=down", "reason=soak", check=False)
            self.down.add(node)
            hit = sorted({*before, *self._on(node)})
            self.failed.update(hit)
            self.note("node_down", node=node, jobs=hit)

    def drain(self) -> None:
        up = [node for node in NODES if node not in self.down]
        if len(self.down) < 4:
            node = self.chance.choice(up)
            self.down.add(node)
            self.note("drain", node=node)
            run("scontrol", "update", f"nodename={node}", "state=drain", "reason=soak", check=False)

    def node_up(self) -> None:
        if self.down:
            node = self.chance.choice(sorted(self.down))
            self.down.discard(node)
            self.note("node_up", node=node)
            run("scontrol", "update", f"nodename={node}", "state=resume", check=False)

    def reconfigure(self) -> None:
        self.note("reconfigure")
        run("scontrol", "reconfigure", check=False)

    def restart_slurmctld(self) -> None:
        self.note("restart_slurmctld")
        run("labctl", "restart", "slurmctld")
        self.alone_s.clear()

    def kill_daemon(self) -> None:
        assert self.daemon is not None
        self.note("kill_daemon")
        os.killpg(self.daemon.pid, signal.SIGKILL)
        self.daemon.wait()
        self.start_daemon()

    def start_daemon(self) -> None:
        self.daemon = self.site.begin("daemon", "--apply", log="daemon.log")
        self.alone_s.clear()

    def _on(self, node: str) -> list[int]:
        return [int(job) for job in run("squeue", "-h", "-w", node, "-o", "%A", check=False).out.split()]

    def left(self, job: int) -> int:
        """How often a job went back to the queue by itself."""
        return 0

    # What must hold. Slurm is read first: whatever is seen there must be on record already.

    def broken(self) -> list[str]:
        """What does not hold now, in words."""
        cycles = self.cycles()
        shown = run("scontrol", "-o", "show", "reservation", check=False)
        jobs = run("scontrol", "-o", "show", "job", check=False)
        if shown.rc or jobs.rc:
            return []  # slurmctld is being restarted
        table = parse_reservations(shown.out)
        ours = {name: (nodes, start_s, end_s) for name, nodes, start_s, end_s
                in zip(table.name, table.node_list, table.start_s, table.end_s, strict=True)
                if name.startswith("slurmsched-")}  # fmt: skip
        everyone = (record_fields(record) for record in split_records(jobs.out, "JobId"))
        seen = [job for job in everyone if int(job["JobId"]) in self.chosen]
        self._read_operations()
        found = [*self._twice_promised(ours), *self._alone(ours), *self._moved_too_often(seen), *self._unknown(seen)]
        return [*found, *self._kept_in_vain(ours, seen, cycles), *self._unasked(seen)]

    def _read_operations(self) -> None:
        path = self.site.journal.with_name("journal.operations.jsonl")
        for line in path.read_bytes().splitlines() if path.exists() else ():
            operation = orjson.loads(line)["operation"]
            if operation["id"] not in self.operations:
                self.named.update(victim["job_id"] for victim in operation["victims"])
            self.operations[operation["id"]] = operation
            (self.closed.add if operation["stage"] == "closed" else self.closed.discard)(operation["id"])

    def _twice_promised(self, ours: dict[str, tuple[str, float, float]]) -> Iterator[str]:
        for (one, a), (other, b) in combinations(sorted(ours.items()), 2):
            if a[1] < b[2] and b[1] < a[2] and (both := NodeSet(a[0]) & NodeSet(b[0])):
                yield f"{both} is promised to {one} and to {other}"

    def _alone(self, ours: dict[str, tuple[str, float, float]]) -> Iterator[str]:
        now_s = time.monotonic()
        alone = {f"slurmsched-{operation}" for operation in self.closed} | {
            name for name in ours if name[11:] not in self.operations
        }
        self.alone_s = {name: self.alone_s.get(name, now_s) for name in alone & ours.keys()}
        for name, since_s in self.alone_s.items():
            if now_s - since_s > LATE_S:
                yield f"{name} is there {now_s - since_s:.0f} s after its operation"

    def _kept_in_vain(self, ours: Container[str], seen: list[dict[str, str]], cycles: int) -> Iterator[str]:
        """Two whole cycles after its job was kept from its start a reservation is gone: none but the one under way
        then, which may have looked before, comes on top. While Slurm refuses a write, cycles follow each other in a
        second: LATE_S must be over too. cycles: done before Slurm was read."""
        waits = {int(job["JobId"]): job for job in seen if "PENDING" in job["JobState"]}
        self.changed = {job: at for job, at in self.changed.items() if job in waits and at[0] in ours}
        for job, (name, before, since_s) in self.changed.items():
            if cycles - before > 3 and time.monotonic() - since_s > LATE_S:
                shown = {key: waits[job].get(key) for key in ("NumNodes", "JobState", "Reason", "StartTime")}
                yield (f"{name} is there {cycles - before} cycles after job {job} was kept from its start: {shown}, "
                       f"{self.operations.get(name.removeprefix('slurmsched-'))}")  # fmt: skip

    def _moved_too_often(self, seen: list[dict[str, str]]) -> Iterator[str]:
        for job in seen:
            job_id, restarts = int(job["JobId"]), int(job.get("Restarts", 0))
            operations, nodes = self.named[job_id], self.failed[job_id]
            if restarts > operations + nodes + self.left(job_id):
                causes = f"{operations} operations named it, {nodes} nodes failed"
                yield f"job {job_id} was requeued {restarts} times: {causes}"

    def _unknown(self, seen: list[dict[str, str]]) -> Iterator[str]:
        """Of jobs in the queue: the journal forgets the others when it is cut."""
        known = self.site.journalled()
        for job in seen:
            job_id, nice = int(job["JobId"]), int(job.get("Nice", 0))
            here = job["JobState"] in ("PENDING", "RUNNING")
            if here and nice != self.chosen[job_id] and nice not in known.get(job_id, ()):
                yield f"job {job_id} has nice {nice}, which nobody has on record"

    def _unasked(self, seen: list[dict[str, str]]) -> Iterator[str]:
        """Waiting jobs that ask for what neither their users nor slurmsched gave them."""
        yield from ()

    def states(self) -> dict[int, str]:
        """What sacct knows of each job."""
        return {int(job): state.split()[0] for job, state in sacct("JobIDRaw,State", sorted(self.chosen))}

    def lost(self) -> list[str]:
        """Jobs that ended otherwise than well, by their user, or with their node; sacct knows them all."""
        state_of = self.states()
        missing = [f"job {job} is unknown to sacct" for job in self.chosen if job not in state_of]
        well = {"COMPLETED", "PENDING", "RUNNING", "REQUEUED", "COMPLETING"}
        return missing + [
            f"job {job} is {state}"
            for job, state in state_of.items()
            if state not in well and job not in self.cancelled and not self.failed[job]
        ]


JOBS, LEFT = Path("/tmp/soak-jobs"), Path("/tmp/soak-left")
LEAST, MOST = 1, 12
_HELD = re.compile(r" Nodes=(\S+) CPU_IDs=\S* Mem=\d+ GRES=(\S+)")
_USED = re.compile(r"NodeName=(\S+) .*? GresUsed=(\S+)")
_INDEX = re.compile(r"gpu[^(]*\(IDX:([0-9,-]+)\)")  # of whole GPUs
_PARTS = re.compile(r"shard[^(]*\(([-0-9/,]+)\)")  # in use and in all, of each GPU
# Goes back to the queue when it is asked for another size, after it has said so.
ELASTIC = (
    "trap '' USR2; trap 'exit 0' TERM; export SLURMSCHED_JOBS={jobs}; n=0; "
    "until [ $n -ge {s} ]; do sleep 1; n=$((n + 1)); "
    '[ -z "$(/src/plugin/job/slurmsched-job wants gpus)" ] || {{ echo $SLURM_JOB_ID >>{left}; '
    "scontrol requeue $SLURM_JOB_ID; exec sleep 60; }}; done"
)


@dataclass
class ElasticChurn(Churn):
    """Jobs that slurmsched resizes while they wait, and asks for another size while they run.

    Some may share their one GPU, and slurmsched lets them ask for shards while they wait.

    own: what each job asked for, as _request gives it. touched: jobs whose request a user changed.
    """

    shards: ClassVar[int] = 4 * 8  # of each node
    own: dict[int, str] = field(default_factory=dict)
    later: tuple[str, ...] = (*(each for each in LATER if "numnodes" not in each), f"numnodes={MOST + 1}")
    touched: set[int] = field(default_factory=set)

    def event(self) -> None:
        if self.chance.random() < 0.1:
            return self.restart()
        return super().event()

    def submit(self) -> None:
        chance = self.chance
        if len(column("%A", "PENDING")) > 40:
            return self.cancel()
        user, gpus = chance.choice(USERS), chance.choice((1, 2, 4))
        form = chance.choice(("node", "job", "task", "gang", "share", "share"))
        gpus = 1 if form == "share" else gpus
        nodes, tasks = (2, 2) if form == "gang" else (1, gpus if form == "task" else 1)
        of_form = {"node": [f"--gres=gpu:{gpus}"], "share": ["--gres=gpu:1"],
                   "job": [f"--gpus={gpus}"], "gang": [f"--gpus-per-node={gpus}"],
                   "task": ["--gpus-per-task=1", f"--ntasks={gpus}"]}  # fmt: skip
        script = ELASTIC.format(s=chance.choice((5, 20, 60, 120)), jobs=JOBS, left=LEFT)
        others = chance.choice(WILLING).removeprefix("slurmsched: ")
        hints = f"min_gpus={LEAST} max_gpus={MOST}"
        if form == "share":
            hints = f"share=yes gpu_part={chance.choice((0.25, 0.5))}"
        hints = f"slurmsched: {hints} {others}"
        options = [f"--nodes={nodes}", *of_form[form], "--mem=1G", "--time=10", f"--comment={hints}", "--requeue"]
        answer = run("sbatch", "--parsable", "--output=/dev/null", "--partition=soak", *options, f"--wrap={script}",
                     user=user, check=False)  # fmt: skip
        if not answer.rc:
            job, by = int(answer.out), form if form in ("job", "task") else "node"
            self.chosen[job], self.own[job] = 0, f"{nodes}|{tasks}|{tasks}|{by}:{1 if form == 'task' else gpus}|"
            self.note("submit", job=job, user=user, form=form, gpus=gpus * nodes)
        return None

    def change(self) -> None:
        """As of any job, but sizes are changed more often."""
        jobs = sorted(column("%A", "PENDING"))
        if jobs and self.chance.random() < 0.5:
            job = self.chance.choice(jobs)
            self.touched.add(job)
            self.note("resize", job=job)
            by = self.own.get(job, "|||").split("|")[3].partition(":")[0]
            word = {"node": "Gres=gpu:3", "job": "TresPerJob=gres/gpu:3"}.get(by, "NumTasks=3")
            run("scontrol", "update", f"jobid={job}", word, check=False)
        else:
            super().change()

    def note(self, event: str, **values: object) -> None:
        if event == "change":
            self.touched.add(int(str(values["job"])))  # it may have other nodes now
        super().note(event, **values)

    def restart(self) -> None:
        """Jobs that went back to the queue wait for their begin time; some are let go."""
        for job, reason in column("%r", "PENDING").items():
            if reason == "BeginTime" and self.left(job):
                self.note("restart", job=job)
                self.changed.pop(job, None)  # a later start is no more
                run("scontrol", "update", f"jobid={job}", "starttime=now", check=False)

    def left(self, job: int) -> int:
        return LEFT.read_text().split().count(str(job)) if LEFT.exists() else 0

    def _unasked(self, seen: list[dict[str, str]]) -> Iterator[str]:
        yield from self._held_twice()
        sizes, parts = self.sizes(), self.values("shards", "shard_node")
        for job in seen:
            job_id, asked = int(job["JobId"]), _request(job)
            if "PENDING" not in job["JobState"] or job_id in self.touched or asked == self.own[job_id]:
                continue
            form, node = asked.split("|")[3:]
            if form.startswith("shard") or node:
                ours = parts.get(job_id, set())
                if not {form.replace("node:", "gpu:"), node} <= {"gpu:1", "", *ours}:
                    yield f"job {job_id} asks for {asked}, its user for {self.own[job_id]}, on record {ours}"
                continue
            gpus = _gpus(asked)
            if gpus not in sizes.get(job_id, ()) or not LEAST <= gpus <= MOST:
                yield f"job {job_id} asks for {asked}, its user for {self.own[job_id]}, on record {sizes.get(job_id)}"

    def _held_twice(self) -> Iterator[str]:
        """GPUs that two jobs have whole, or one has whole while it is shared; nothing while jobs come and go."""
        shown = [run("scontrol", "-o", "-d", "show", what).out for what in ("node", "job", "node")]
        used = [dict(_USED.findall(text)) for text in shown[::2]]
        if used[0] != used[1]:
            return
        held = Counter[tuple[str, int]]()
        for line in shown[1].splitlines():
            for nodes, gres in _HELD.findall(line) if "JobState=RUNNING" in line else ():
                indices = [index for text in _INDEX.findall(gres) for index in NodeSet(f"[{text}]")]
                held.update((node, int(index)) for node in NodeSet(nodes) for index in indices)
        for node, gres in used[0].items():
            parts = [text.split(",") for text in _PARTS.findall(gres)]
            held.update((node, index) for each in parts for index, part in enumerate(each) if part[0] not in "-0")
        yield from (f"GPU {index} of {node} is held twice" for (node, index), jobs in held.items() if jobs > 1)

    def sizes(self) -> dict[int, set[int]]:
        """GPUs of every size on record, by job."""
        return {job: set(map(counted, texts)) for job, texts in self.values("size").items()}

    def values(self, *fields: str) -> dict[int, set[str]]:
        """Every value of these fields on record, by job."""
        known: dict[int, set[str]] = {}
        for line in self.site.journal.read_bytes().splitlines() if self.site.journal.exists() else ():
            entry = orjson.loads(line)
            if entry.get("field") in fields and "sent" in entry:
                known.setdefault(entry["job_id"], set()).update((entry["sent"], *entry.get("values", ())))
        return known

    def others(self) -> list[str]:
        """Waiting jobs that ask for something else than their users did."""
        shown = run("scontrol", "-o", "show", "job").out
        jobs = [record_fields(record) for record in split_records(shown, "JobId")]
        return [f"{job['JobId']} {_request(job)}, not {own}" for job in jobs
                if job["JobState"] == "PENDING" and int(job["JobId"]) not in self.touched
                and (own := self.own.get(int(job["JobId"]))) not in (None, _request(job))]  # fmt: skip


def _request(job: dict[str, str]) -> str:
    """Nodes, tasks, CPUs, the way in which a job asks for GPUs or shards with their number, and its node list:
    "2|2|2|node:4|"."""
    forms = {"node": "TresPerNode", "job": "TresPerJob", "task": "TresPerTask"}
    asked = {by: job[key] for by, key in forms.items() if re.search("gpu|shard", job.get(key, ""))}
    by, text = next(iter(asked.items()), ("", ""))
    by = "shard" if "shard" in text else by
    nodes = job.get("ReqNodeList", "(null)").replace("(null)", "")
    return f"{job['NumNodes'].partition('-')[0]}|{job['NumTasks']}|{job['NumCPUs']}|{by}:{text[-1:]}|{nodes}"


def _gpus(request: str) -> int:
    nodes, tasks, _, form, _ = request.split("|")
    by, _, count = form.partition(":")
    return int(count or 0) * {"node": int(nodes), "task": int(tasks)}.get(by, 1)
