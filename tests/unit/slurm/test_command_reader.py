"""The command reader on what two Slurm versions really answered (tests/recorded)."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import dataclass, replace

import numpy as np
import orjson
import pytest

from slurmsched.config import Config
from slurmsched.errors import SlurmError, UnreadableError
from slurmsched.model import JobState, Rights, Snapshot
from slurmsched.planning.priorities.priority_weights import slurm_weights
from slurmsched.slurm import reader, recheck
from slurmsched.slurm.cluster_state import KnownPriorities, PriorityMarks, priority_marks
from slurmsched.slurm.reader import STALE_S, CommandReader
from slurmsched.slurm.site import make_site
from slurmsched.slurm.slurm_json import read_jobs, read_nodes
from slurmsched.slurm.squeue import Priorities, queue_arguments
from tests.recorded.playback import HERE, MARK, Playback, recorded_versions
from tests.recorded.scenario import (
    CASES,
    NICE_OF_TASK,
    PRIORITY,
    SITE_FACTOR,
    STRANGE_COMMENT,
    STRANGE_NAME,
)


@dataclass(frozen=True)
class Recording:
    """One version's answers, the snapshot read from them, and the job ids by name."""

    commands: Playback
    snapshot: Snapshot
    ids: dict[str, int]

    def row(self, name: str) -> int:
        return int(np.flatnonzero(self.snapshot.jobs.job_id == self.ids[name])[0])


@pytest.fixture(autouse=True)
def recorded_mark(monkeypatch):
    monkeypatch.setattr(reader, "fresh_mark", lambda: MARK)


@pytest.fixture(params=recorded_versions())
def recording(request, monkeypatch):
    folder = HERE / request.param
    facts = json.loads((folder / "facts.json").read_text())
    commands = Playback(folder)
    return Recording(commands, _read(commands, facts["now_s"]), facts["ids"])


def _read(commands: Playback, now_s: float = 1_800_000_000.0) -> Snapshot:
    return CommandReader(commands, clock=lambda: now_s).read()


def test_recorded_versions__are_both_labs():
    """There are answers of a Slurm of 24.11 and of one of 26.05."""
    assert [version[:5] for version in recorded_versions()] == ["24.11", "26.05"]


def test_read__understands_everything(recording):
    """A healthy cluster gives no warning."""
    assert recording.snapshot.warnings == ()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_read__counts_gpus_of_every_request_form(recording, case):
    """Whatever option asked for them, the GPUs of all nodes and the normal form are right."""
    jobs, row = recording.snapshot.jobs, recording.row(case.name)
    assert (jobs.gpus[row], jobs.gpu_request[row], jobs.user[row]) == (case.gpus, case.request, case.user)


def test_read__tells_states(recording):
    """Running, suspended, waiting, held and requeued jobs."""
    jobs = recording.snapshot.jobs
    named = {name: JobState(int(jobs.state[recording.row(name)])) for name in recording.ids}
    assert (named["gres"], named["suspended"], named["requeued"], named["p-gres"]) == (
        JobState.RUNNING, JobState.SUSPENDED, JobState.PENDING, JobState.PENDING,
    )  # fmt: skip
    assert [bool(jobs.held[recording.row(name)]) for name in ("p-held", "p-gres", "gres")] == [True, False, False]


def test_read__keeps_free_text_whole(recording):
    """Names and comments with separators, newlines and UTF-8 come through, and bend no other column."""
    jobs, row = recording.snapshot.jobs, recording.row(STRANGE_NAME)
    assert jobs.comment[row] == STRANGE_COMMENT
    assert jobs.name[row] in (STRANGE_NAME, STRANGE_NAME.replace('"', "`"))
    assert (
        int(recording.snapshot.allocations.gpus[recording.snapshot.allocations.job_id == jobs.job_id[row]].sum()) == 1
    )


def test_read__unfolds_arrays(recording):
    """The array is one row of its waiting tasks; the task split off by its own nice has a row and that nice."""
    jobs = recording.snapshot.jobs
    array = recording.ids["p-array"]
    rows = np.flatnonzero(jobs.array_job_id == array)
    seen = {(int(jobs.job_id[row]) == array, int(jobs.array_tasks[row]), int(jobs.nice[row])) for row in rows}
    assert seen == {(True, 4, 0), (False, 1, NICE_OF_TASK)}


def test_read__gives_each_het_component_a_row(recording):
    """Components share the leader's id, count up and have their own request."""
    jobs = recording.snapshot.jobs
    rows = np.flatnonzero(jobs.het_job_id == recording.ids["p-het"])
    assert [(int(jobs.het_offset[row]), int(jobs.gpus[row])) for row in rows] == [(0, 1), (1, 2)]


def test_read__shows_levers(recording):
    """Nice, site factor and a priority set by an operator."""
    jobs = recording.snapshot.jobs
    nices = {name: int(jobs.nice[recording.row(name)]) for name in ("typed-gres", "p-gpus", "p-gres")}
    assert nices == {"typed-gres": 500, "p-gpus": 7, "p-gres": 0}
    assert int(jobs.site_factor[recording.row("p-site")]) == SITE_FACTOR
    assert (bool(jobs.fixed_priority[recording.row("p-pinned")]), int(jobs.priority[recording.row("p-pinned")])) == (
        True,
        PRIORITY,
    )
    assert int(jobs.fixed_priority.sum()) == 1
    assert not np.isnan(jobs.base_priority[recording.row("p-gres")])


def test_read__tells_what_nodes_a_job_is_bound_to(recording):
    """Constraint, asked and excluded nodes as submitted; nothing for the others, a run on a named node apart."""
    jobs, row = recording.snapshot.jobs, recording.row("p-bound")
    assert (jobs.features_asked[row], jobs.nodes_asked[row], jobs.nodes_excluded[row]) == (
        "a100&nvlink",
        "n4",
        "n[1,3]",
    )
    bound = {recording.row(name) for name in ("p-bound", "requeued")}
    assert {i for i, asked in enumerate(jobs.nodes_asked) if asked} == bound


def test_read__says_nothing_of_factors_it_cannot_see(recording):
    """sprio leaves out held and not yet eligible jobs: their base priority is NaN."""
    jobs = recording.snapshot.jobs
    assert [math.isnan(jobs.base_priority[recording.row(name)]) for name in ("p-held", "p-later")] == [True, True]


def test_read__gives_times_of_runs_only(recording):
    """Start and end of a waiting job are Slurm's guesses and left out; a run has both and its time."""
    jobs = recording.snapshot.jobs
    run, waits, later = (recording.row(name) for name in ("gres", "requeued", "p-later"))
    assert jobs.start_s[run] > jobs.submit_s[run] - 1 and jobs.end_s[run] == jobs.start_s[run] + 3600
    assert math.isnan(jobs.start_s[waits]) and jobs.run_s[waits] == 0
    assert jobs.eligible_s[later] == jobs.submit_s[later] + 3600
    assert 0 < jobs.run_s[run] <= recording.snapshot.now_s - jobs.start_s[run] + 5


def test_read__tells_limits_and_requeue(recording):
    """Time limits, endless ones too, restarts and whether a job may be requeued."""
    jobs = recording.snapshot.jobs
    limits = [float(jobs.time_limit_s[recording.row(name)]) for name in ("gres", "p-site")]
    requeues = [bool(jobs.requeueable[recording.row(name)]) for name in ("gres", "no-requeue")]
    assert limits[0] == 3600.0 and limits[1] >= 604_800.0
    assert (requeues, int(jobs.restarts[recording.row("requeued")])) == ([True, False], 1)


def test_read__finds_held_gpus_by_index(recording):
    """Each running job's GPUs on each node; no GPU belongs to two jobs, and nodes agree with jobs."""
    held, nodes = recording.snapshot.allocations, recording.snapshot.nodes
    by_node: dict[str, int] = {}
    for row in range(len(held)):
        mask = int(held.gpu_mask[row])
        assert mask.bit_count() == held.gpus[row] and by_node.get(held.node[row], 0) & mask == 0
        by_node[held.node[row]] = by_node.get(held.node[row], 0) | mask
    used = {nodes.name[row]: int(nodes.gpu_mask_used[row]) for row in range(len(nodes)) if nodes.gpus_used[row]}
    assert used == by_node
    assert int(held.gpus[held.job_id == recording.ids["per-node"]].sum()) == 4


def test_read__totals_add_up(recording):
    """Idle, allocated, draining and down GPUs are all GPUs; none boots, and all can be read."""
    totals = recording.snapshot.nodes.gpu_totals()
    expected = sum(case.gpus for case in CASES if case.runs and case.name != "requeued")
    assert totals == {"idle": 32 - expected, "boot": 0, "allocated": expected, "draining": 0, "down": 288,
                      "unknown": 0, "all": 320}  # fmt: skip


def test_read__tells_the_site(recording):
    """Cluster, version, weights and partitions."""
    site, partitions = recording.snapshot.site, recording.snapshot.partitions
    assert (site.cluster, site.version, site.multifactor) == ("lab", recording.commands.folder.name, True)
    assert [weight.points for weight in slurm_weights(site.settings)] == [1000.0]
    assert [(partitions.name[i], bool(partitions.default[i]), int(partitions.nodes[i])) for i in range(3)] == [
        ("gpu", True, 4), ("phantom", False, 36), ("short", False, 4),
    ]  # fmt: skip


def test_read__agrees_with_json(recording):
    """The same cluster read as JSON gives the same jobs and nodes in all that does not change from read to read."""
    jobs = recording.snapshot.jobs
    body = orjson.loads((recording.commands.folder / "jobs.json").read_bytes())
    other, held, warnings = read_jobs(body, recording.snapshot.now_s)
    same = ("job_id", "array_job_id", "array_tasks", "het_job_id", "het_offset", "user", "account", "partition", "qos",
            "comment", "dependency", "node_list", "state", "submit_s", "start_s", "time_limit_s", "nodes", "cpus",
            "memory_mib", "gpus", "gpu_request", "nice", "restarts", "requeueable", "batch", "cron")  # fmt: skip
    for name in same:
        assert list(getattr(jobs, name)) == pytest.approx(list(getattr(other, name)), nan_ok=True), name
    assert list(held.gpu_mask) == list(recording.snapshot.allocations.gpu_mask)
    nodes, node_warnings = read_nodes(orjson.loads((recording.commands.folder / "nodes.json").read_bytes()))
    assert list(nodes.gpu_mask_used) == list(recording.snapshot.nodes.gpu_mask_used)
    assert list(nodes.state) == list(recording.snapshot.nodes.state)
    assert warnings == node_warnings == ()


def test_read__asks_once_for_what_a_run_holds(recording):
    """A second read asks for no run's GPUs again, and starts the array query beside the others."""
    reader = CommandReader(recording.commands, clock=lambda: recording.snapshot.now_s)
    first = reader.read()
    recording.commands.asked.clear()
    second = reader.read()
    words = [" ".join(asked) for asked in recording.commands.asked]
    assert not any("show job" in text for text in words)
    assert first.digest == second.digest


def test_read__drops_answers_that_are_stale(recording):
    """Commands begun long before the read are asked again."""
    clock = iter([0.0, STALE_S + 1, STALE_S + 2])
    reader = CommandReader(recording.commands, clock=lambda: next(clock))
    reader.begin()
    assert reader.read().now_s == STALE_S + 2


def test_read__leaves_unknown_states_alone(recording):
    """A state of a future Slurm gives a warning and a job without any state, not a crash."""
    text = (recording.commands.folder / "squeue.txt").read_bytes().decode().replace("PENDING", "PONDERING")
    snapshot = _read(Playback(recording.commands.folder, {"squeue.txt": text}))
    odd = snapshot.jobs.state == 0
    assert odd.any() and not (snapshot.jobs.pending & odd).any()
    assert any("PONDERING" in warning for warning in snapshot.warnings)


def test_read__pins_jobs_whose_request_it_cannot_read(recording):
    """Such a job stays in the table, is fixed_priority so that nothing writes to it, and is named in a warning."""
    text = (recording.commands.folder / "squeue.txt").read_bytes().decode().replace("gres/gpu:12", "gres/gpu:12::")
    snapshot = _read(Playback(recording.commands.folder, {"squeue.txt": text}))
    row = recording.row("p-gpus")
    assert bool(snapshot.jobs.fixed_priority[row]) and int(snapshot.jobs.gpus[row]) == 0
    assert any("gres/gpu:12::" in warning for warning in snapshot.warnings)


def test_read__refuses_a_torn_answer(recording):
    """squeue cut in the middle is an error, not a shorter queue."""
    text = (recording.commands.folder / "squeue.txt").read_bytes().decode()
    with pytest.raises(UnreadableError, match="broken rows"):
        _read(Playback(recording.commands.folder, {"squeue.txt": text[: len(text) // 2]}))


def test_read__needs_no_sprio_on_priority_basic(recording):
    """Where priorities have no factors, sprio's refusal is not heard and it is not asked again."""
    config = (recording.commands.folder / "config.txt").read_text().replace("priority/multifactor", "priority/basic")
    commands = Playback(recording.commands.folder, {"config.txt": config, "sprio.txt": "not a table"})
    reader = CommandReader(commands)
    assert not reader.read().site.multifactor
    commands.asked.clear()
    reader.read()
    assert not any(asked[0] == "sprio" for asked in commands.asked)


def test_read__of_an_empty_cluster(recording):
    """No jobs at all is a snapshot too."""
    empty = dict.fromkeys(("squeue.txt", "sprio.txt", "nodes.txt", "partitions.txt"), "")
    snapshot = _read(Playback(recording.commands.folder, empty))
    assert (len(snapshot.jobs), len(snapshot.allocations), len(snapshot.nodes)) == (0, 0, 0)


def test_read__sees_rights(recording, monkeypatch):
    """Root is an administrator whatever slurmdbd says."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert _read(recording.commands).site.rights == Rights.ADMINISTRATOR


def test_doubt_rights__asks_for_them_at_the_next_read_and_at_each_until_they_are_back(recording, monkeypatch):
    """Rights that are there are asked for once; lost ones at every read, so that nothing waits for a restart."""
    monkeypatch.setattr("os.geteuid", lambda: 12_345)
    level = "UserName=12345(12345) DefAccount= DefWckey= AdminLevel={}\n"
    answers = {"users.txt": level.format("Operator")}
    commands = Playback(recording.commands.folder, answers)
    reader = CommandReader(commands, clock=lambda: recording.snapshot.now_s)

    def read(given: str) -> tuple[Rights, int]:
        answers["users.txt"] = level.format(given)
        commands.asked.clear()
        return reader.read().site.rights, sum("assoc_mgr" in asked for asked in commands.asked)

    assert [read("Operator"), read("None")] == [(Rights.OPERATOR, 1), (Rights.OPERATOR, 0)]
    reader.doubt_rights()
    assert [read("None"), read("None"), read("Operator")] == [(Rights.USER, 1), (Rights.USER, 1), (Rights.OPERATOR, 1)]
    assert read("Operator") == (Rights.OPERATOR, 0)
    reader.doubt_rights()
    assert read("Operator") == (Rights.OPERATOR, 1)
    reader.doubt_rights()  # who is refused for another reason, again and again, costs no call a cycle
    assert read("Operator") == (Rights.OPERATOR, 0)


def test_doubt_rights__keeps_what_is_known_until_somebody_answers(recording, monkeypatch):
    """A slurmctld that is too busy to tell our level takes no right away."""
    reader, told = CommandReader(recording.commands, clock=lambda: recording.snapshot.now_s), [Rights.OPERATOR]
    monkeypatch.setattr("slurmsched.slurm.cluster_state.ask_rights", lambda *_: told[0])
    assert reader.read().site.rights == Rights.OPERATOR
    reader.doubt_rights()
    seen = []
    for told[0] in (None, None, Rights.USER):
        seen.append(reader.read().site.rights)
    assert seen == [Rights.OPERATOR, Rights.OPERATOR, Rights.USER]


@pytest.mark.parametrize(("uid", "warned"), [(0, False), (12_345, True)])
def test_read__warns_of_hidden_jobs(recording, monkeypatch, uid, warned):
    """With PrivateData=jobs Slurm shows a plain user a short list and no error."""
    monkeypatch.setattr("os.geteuid", lambda: uid)
    config = (recording.commands.folder / "config.txt").read_text()
    config = re.sub(r"PrivateData .*", "PrivateData = accounts,jobs", config)
    snapshot = _read(Playback(recording.commands.folder, {"config.txt": config}))
    assert any("PrivateData=jobs" in warning for warning in snapshot.warnings) == warned


def test_begin__ends_what_it_started_when_a_command_is_missing(recording, monkeypatch):
    """One program missing: none is left running."""
    ended = []

    def start(program, *arguments, stdin=""):
        if arguments[-1] == "config":
            raise SlurmError("no scontrol")
        answer = Playback(recording.commands.folder).start(program, *arguments, stdin=stdin)
        monkeypatch.setattr(type(answer), "abandon", lambda self: ended.append(1))
        return answer

    monkeypatch.setattr(recording.commands, "start", start)
    with pytest.raises(SlurmError, match="no scontrol"):
        CommandReader(recording.commands).begin()
    assert len(ended) == 3


def test_read__without_indices_asks_for_no_job_and_counts_the_same(recording):
    """A process of one cycle takes squeue's counts: no question about single jobs, the same GPUs by job and node."""
    commands = Playback(recording.commands.folder)
    found = CommandReader(commands, clock=lambda: recording.snapshot.now_s, indices=False).read()
    expected = recording.snapshot
    assert [asked for asked in commands.asked if "job" in asked or asked[-1]] == []
    for name in ("gpus", "mig_devices", "shards", "gpu_request"):
        assert list(getattr(found.jobs, name)) == list(getattr(expected.jobs, name)), name
    for name in ("job_id", "node", "gpu_type", "gpus"):
        assert list(getattr(found.allocations, name)) == list(getattr(expected.allocations, name)), name
    assert not found.allocations.gpu_mask.any()
    assert found.warnings == ()


def test_read__without_priorities_asks_no_sprio(recording):
    """For commands that show no priority: a third of the requests that slurmctld works on is left out."""
    commands = Playback(recording.commands.folder)
    reader = CommandReader(commands, clock=lambda: recording.snapshot.now_s, indices=False, sprio="never")
    found = [reader.read() for _ in range(2)][1]
    assert [asked for asked in commands.asked if asked[0] == "sprio"] == []
    assert np.isnan(found.jobs.base_priority).all() and not found.jobs.site_factor.any()
    assert list(found.jobs.job_id) == list(recording.snapshot.jobs.job_id)


def test_read_cluster_once__without_waiting_jobs_asks_for_those_on_nodes(recording, monkeypatch):
    """squeue prints fewer rows then. Waiting jobs are a large part of a queue, and `gpus` shows none."""
    commands = Playback(recording.commands.folder)
    monkeypatch.setattr(reader, "open_commands", lambda settings: commands)
    for waiting, states in ((True, "all"), (False, "RUNNING,SUSPENDED,COMPLETING")):
        reader.read_cluster_once(Config(), waiting=waiting)
        asked = next(words for words in commands.asked if words[0] == "squeue")
        assert f"--states={states}" in asked
        commands.asked.clear()


def test_read__asks_sprio_where_priorities_changed(recording):
    """Elsewhere the last table serves. After a read that needed sprio it runs beside the other commands."""
    expected, now_s = recording.snapshot.jobs, recording.snapshot.now_s
    commands = Playback(recording.commands.folder)
    reader = CommandReader(commands, clock=lambda: now_s, sprio="changed")

    def read() -> tuple[bool, int]:
        commands.asked.clear()
        jobs = reader.read().jobs
        for name in ("base_priority", "site_factor", "fixed_priority"):
            np.testing.assert_array_equal(getattr(jobs, name), getattr(expected, name))
        programs = [asked[0] for asked in commands.asked]
        return "sprio" in programs, programs.index("sprio") if "sprio" in programs else -1

    found = [read() for _ in range(4)]
    # The first runs beside the first listing: a job may be new between the two.
    assert [ran for ran, _ in found] == [True, True, True, False]
    known = reader._around._known
    ids, before, listed = known.marks
    reader._around._known = replace(known, marks=(ids[1:], before[1:], listed[1:]))  # a job is new
    assert read()[0]
    assert [read()[0] for _ in range(2)] == [True, False]


def test_known_priorities__do_not_serve_a_job_that_changed_while_sprio_ran():
    """The listing shows the change and the table may not. Nor a job that the table lacks, however it was read."""
    site = make_site({"SLURM_VERSION": "26.05.5", "PriorityCalcPeriod": "00:05:00"}, Rights.USER)

    def marks(*jobs: tuple[int, int]) -> PriorityMarks:
        ids, priority = np.array(jobs).T
        waits = {"job_id": ids, "state": np.full(len(ids), int(JobState.PENDING)), "priority": priority}
        return priority_marks({**waits, "nice": 0 * ids, "eligible_s": np.full(len(ids), 5.0)}, 10.0)

    def table(*ids: int) -> Priorities:
        return Priorities(np.array(ids), np.zeros(len(ids)), np.ones(len(ids)), np.zeros(len(ids), np.bool_))

    before, now = marks((4, 500)), marks((4, 500), (9, 500))
    for listed, earlier, holds in (
        (table(4, 9), before, False),  # 9 is new: sprio may have run before it came, or not have its last change
        (table(4, 9), marks((4, 500), (9, 400)), False),
        (table(4), now, False),  # not computed yet
        (table(4, 9), now, True),  # sprio ran after the listing, or nothing changed
    ):
        assert KnownPriorities.of(listed, now, earlier, time.monotonic()).hold(now, site) == holds
    held = marks((4, 500), (9, 0))
    assert KnownPriorities.of(table(4), held, held, time.monotonic()).hold(held, site)  # sprio lists no held job


def test_known_priorities__hold_until_one_may_differ():
    """What sprio shows of waiting jobs changes with their priority, not with nice; and each PriorityCalcPeriod."""
    settings = {"SLURM_VERSION": "26.05.5", "PriorityCalcPeriod": "00:05:00"}
    site = make_site(settings, Rights.USER)
    running = make_site({**settings, "PriorityFlags": "CALCULATE_RUNNING"}, Rights.USER)

    def marks(**changed: list[float]) -> PriorityMarks:
        jobs = {"job_id": [9, 4, 6], "state": [int(JobState.PENDING)] * 3, "priority": [500, 1, 0], "nice": [0, 700, 0],
                "eligible_s": [5.0, 5.0, np.nan]} | changed  # fmt: skip
        return priority_marks({name: np.array(values) for name, values in jobs.items()}, 10.0)

    known = KnownPriorities(marks=marks(), at_s=time.monotonic())
    assert known.hold(marks(), site)
    assert known.hold(marks(priority=[400, 1, 0], nice=[100, 900, 0]), site)  # nice alone
    assert known.hold(marks(state=[int(JobState.RUNNING), 1, 1]), site)  # one has started
    assert not known.hold(marks(priority=[501, 1, 0]), site)
    assert not known.hold(marks(priority=[500, 1, 7]), site)  # released
    assert not known.hold(marks(eligible_s=[15.0, 5.0, np.nan]), site)
    assert not known.hold(marks(job_id=[9, 4, 7]), site) and not known.hold(marks(job_id=[10, 4, 6]), site)
    assert not known.hold(marks(), running)
    assert not replace(known, at_s=known.at_s - 300).hold(marks(), site)
    assert not KnownPriorities().hold(marks(), site)


def test_read_few__tells_of_jobs_what_a_whole_read_does(recording):
    """Asked by id; jobs that are gone are absent, and no other error is taken for that."""
    jobs, columns = recording.snapshot.jobs, recheck.OF_JOB

    class Few:
        def run(self, program: str, *arguments: str) -> str:
            assert (program, "--jobs=3,7" in arguments) == ("squeue", True)
            return recording.commands.run("squeue", *queue_arguments(MARK))

    few = reader.read_few(Few(), [7, 3], recording.snapshot.now_s, [])
    row_of = {int(job): row for row, job in enumerate(jobs.job_id)}
    waits = [(row, row_of[int(job)]) for row, job in enumerate(few.job_id) if few.pending[row] and int(job) in row_of]
    assert len(waits) > 10
    for name in columns:
        one, other = (
            [str(getattr(table, name)[row]) for row in rows]
            for table, rows in zip((few, jobs), zip(*waits, strict=True), strict=True)
        )
        assert one == other, name

    class Gone:
        def __init__(self, said: str) -> None:
            self.said = said

        def run(self, *_: str) -> str:
            raise SlurmError(self.said)

    assert len(reader.read_few(Gone("squeue: error: Invalid job id specified"), [7], 0.0, [])) == 0
    with pytest.raises(SlurmError, match="denied"):
        reader.read_few(Gone("squeue: error: Access denied"), [7], 0.0, [])
