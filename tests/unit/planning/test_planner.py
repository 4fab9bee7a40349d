"""The planner on small hand-made queues."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from slurmsched.config import LeverConfig, PaceConfig, PreemptionConfig, ScopeConfig
from slurmsched.cycle import run_cycle
from slurmsched.errors import ConfigError
from slurmsched.model import (
    Allocations,
    Jobs,
    JobState,
    Nodes,
    Partitions,
    Plan,
    Ranking,
    Receipt,
    Rights,
    Site,
    Snapshot,
)
from slurmsched.planning.planner import Planner
from slurmsched.testing import snapshot

EVERYTHING = ScopeConfig(partitions=("*",))


@dataclass(frozen=True)
class ByName:
    """Jobs in the order of their names: tests say the wanted order by naming the jobs."""

    def rank(self, snapshot: Snapshot) -> Ranking:
        letters = np.array(list(snapshot.jobs.name))
        return Ranking(np.lexsort((snapshot.jobs.job_id, letters)), why={"letter": letters})


def queue(names: str, **columns: Any) -> Snapshot:
    """Pending 1-GPU jobs 1, 2, ... with these one-letter names, submitted in this order."""
    n = len(names)
    given = {
        "job_id": np.arange(1, n + 1),
        "name": list(names),
        "submit_s": np.arange(n, dtype=float),
        "gpus": np.ones(n, int),
        "partition": ["gpu"] * n,
        "priority": np.ones(n, int),
        "base_priority": np.zeros(n),
    }
    jobs = Jobs.build(n, given | columns)
    nothing = (Nodes.build(0, {}), Partitions.build(0, {}), Allocations.build(0, {}))
    return Snapshot(100.0, jobs, *nothing, site=Site(rights=Rights.OPERATOR))


def planned(snapshot: Snapshot, **parts: Any) -> Plan:
    return Planner(ByName(), **{"scope": EVERYTHING, **parts}).plan(snapshot)


def after(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The queue once Slurm has taken the plan's actions."""
    nice, site = snapshot.jobs.nice.copy(), snapshot.jobs.site_factor.copy()
    for action in plan.actions:
        row = int(np.searchsorted(snapshot.jobs.job_id, action.job_id))
        (nice if action.kind == "nice" else site)[row] = action.new
    priority = np.maximum(snapshot.jobs.base_priority + site - nice, 1).astype(int)
    jobs = snapshot.jobs.with_columns(nice=nice, site_factor=site, priority=priority)
    return Snapshot(160.0, jobs, snapshot.nodes, snapshot.partitions, snapshot.allocations, site=snapshot.site)


def slurm_order(snapshot: Snapshot) -> str:
    """Names in the order Slurm would start the jobs."""
    jobs = snapshot.jobs
    return "".join(jobs.name[row] for row in np.lexsort((jobs.job_id, jobs.submit_s, -jobs.priority)))


@pytest.mark.parametrize("kind", ["nice", "site_factor"])
def test_planner__slurm_gets_the_order_of_the_policy(kind):
    """After the writes Slurm's order is the ranking, by either lever, and a second cycle writes nothing."""
    before = queue("DBCA", base_priority=[5.0, 900.0, 12.0, 0.0])
    plan = planned(before, lever=LeverConfig(kind=kind))
    then = after(before, plan)
    assert slurm_order(then) == "ABCD"
    assert planned(then, lever=LeverConfig(kind=kind)).actions == ()
    assert {action.kind for action in plan.actions} == {kind}


def test_planner__an_order_slurm_has_already_costs_no_write():
    """First come, first served on a site without weights is what Slurm does by itself."""
    assert planned(queue("ABCD")).actions == ()


def test_planner__one_job_out_of_place_is_one_write():
    """Only the job that moved is written."""
    before = after(queue("EDCBA"), planned(queue("EDCBA")))
    names = ["E", "D", "C", "DZ", "A"]  # B falls behind D
    moved = Snapshot(200.0, before.jobs.with_columns(name=names), *_tables(before), site=before.site)
    plan = planned(moved)
    assert [action.job_id for action in plan.actions] == [4]
    assert slurm_order(after(moved, plan)) == "ACDDZE"


def _tables(snapshot: Snapshot) -> tuple[Nodes, Partitions, Allocations]:
    return snapshot.nodes, snapshot.partitions, snapshot.allocations


def test_planner__users_nice_is_added_never_lost():
    """nice = what the user chose - our boost; the user's wish lowers the job below its place."""
    before = queue("BA", nice=[0, 300], base_nice=[0, 300])
    plan = planned(before)
    action = next(one for one in plan.actions if one.job_id == 2)
    priority = after(before, plan).jobs.priority
    assert (action.old, action.base, priority[1] - priority[0]) == (300, 300, 1_000 - 300)


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        ({"fixed_priority": [True, False]}, "fixed-priority"),
        ({"backoff": [True, False]}, "backoff"),
        ({"cron": [True, False]}, "cron"),
        ({"priority": [0, 1]}, "held"),
        ({"state": [int(JobState.PENDING | JobState.REVOKED), 1]}, "revoked"),
    ],
)
def test_planner__jobs_to_leave_alone_are_refused_with_their_rule(columns, rule):
    """The job is not written, and one reason says why."""
    plan = planned(queue("BA", **columns))
    assert [(refusal.job_id, refusal.rule) for refusal in plan.refused] == [(1, rule)]
    assert 1 not in [action.job_id for action in plan.actions]


@pytest.mark.parametrize(
    "scope",
    [
        ScopeConfig(partitions=()),
        ScopeConfig(partitions=("cpu",)),
        ScopeConfig(partitions=("*",), accounts=("physics",)),
        ScopeConfig(partitions=("*",), qos=("high",)),
    ],
)
def test_planner__outside_the_scope_nothing_is_written(scope):
    """Only named partitions, accounts and QOS are managed; an empty list of partitions manages nothing."""
    assert planned(queue("CBA"), scope=scope).actions == ()


def test_planner__a_job_in_two_partitions_needs_both_in_scope():
    """The lever acts in every partition of the job."""
    both = queue("BA", partition=["gpu,cpu", "gpu,cpu"])
    assert planned(both, scope=ScopeConfig(partitions=("gpu",))).actions == ()
    assert planned(both, scope=ScopeConfig(partitions=("gpu", "cpu"))).actions != ()


def test_planner__running_and_completing_jobs_are_not_written():
    """Only a job that waits has a place to change."""
    states = [int(JobState.RUNNING), int(JobState.PENDING | JobState.COMPLETING), 1]
    assert planned(queue("CBA", state=states)).actions == ()


def test_planner__partitions_without_common_nodes_are_ordered_apart():
    """Jobs that never compete cost no write for their mutual order."""
    apart = queue("BA", partition=["left", "right"])
    assert planned(apart).actions == ()
    nodes = Nodes.build(1, {"name": ["n1"], "partitions": ["left,right"]})
    shared = Snapshot(0.0, apart.jobs, nodes, apart.partitions, apart.allocations, site=apart.site)
    assert len(planned(shared).actions) == 1


def test_planner__cap_defers_the_least_urgent():
    """pace.writes_per_cycle bounds the actions, most urgent first."""
    plan = planned(queue("EDCBA"), pace=PaceConfig(writes_per_cycle=2))
    assert [action.job_id for action in plan.actions] == [5, 4]
    assert plan.deferred == 2


def test_planner__array_tasks_follow_their_array():
    """Slurm writes an array's record and its split tasks together: one action, one value for all."""
    before = queue("CAB", job_id=[5, 10, 11], array_job_id=[0, 10, 10], array_tasks=[1, 4, 1])
    plan = planned(before)
    assert [action.job_id for action in plan.actions] == [10]
    assert plan.wanted_values[1] == plan.wanted_values[2]


def test_planner__a_task_that_left_its_array_is_brought_back():
    """The array stands where it should: only the task is written."""
    before = queue("AB", job_id=[10, 11], array_job_id=[10, 10], nice=[-5000, -70], base_priority=np.zeros(2))
    assert [(a.job_id, a.new) for a in planned(before).actions] == [(11, -5000)]


@pytest.mark.parametrize("names", ["CAB", "CBA"])
@pytest.mark.parametrize(("own", "backoff"), [(50, False), (0, True), (50, True)])
def test_planner__a_nice_of_a_tasks_own_is_respected(names, own, backoff):
    """Its array is written first, wherever the policy puts the two, and Slurm takes the task's own away with that: the
    task gets it again right behind, on top of what the others get, or as it is where it was changed lately. Once all is
    as wanted nothing is written any more."""
    before = queue(names, job_id=[5, 10, 11], array_job_id=[0, 10, 10], array_tasks=[1, 4, 1], nice=[0, 0, own],
                   base_nice=[0, 0, own], backoff=[False, False, backoff])  # fmt: skip
    plan = planned(before)
    array, task = plan.actions
    assert ((array.job_id, array.base), (task.job_id, task.old, task.base)) == ((10, 0), (11, own, own))
    assert task.new == (own if backoff else array.new + own) != array.new
    assert not [refusal for refusal in plan.refused if refusal.rule != "backoff"]
    after = before.jobs.with_columns(nice=[0, array.new, task.new])
    assert planned(replace(before, jobs=after)).actions == ()


def test_planner__leaves_jobs_alone_whose_site_factor_slurm_hides():
    """What sprio does not list cannot be told from 0: every cycle would write another value."""
    hidden = queue("BA", priority=[2_000_000, 1_000_100], base_priority=[100.0, np.nan], site_factor=[1_999_900, 0])
    plan = planned(hidden, lever=LeverConfig(kind="site_factor"))
    assert plan.actions == ()
    assert [refusal.rule for refusal in plan.refused] == ["hidden"]
    assert planned(hidden).refused == ()  # every nice is shown


def test_planner__a_band_too_narrow_names_the_setting():
    """An error that says what to change, not one of arithmetic."""
    with pytest.raises(ConfigError, match=r"lever.ceiling: 1002 leaves no room for 3 jobs"):
        planned(queue("CBA"), lever=LeverConfig(floor=1000, ceiling=1002))


def test_planner__het_components_follow_their_leader():
    """Only the leader of a het job is written."""
    before = queue("CAB", job_id=[5, 10, 11], het_job_id=[0, 10, 10], het_offset=[0, 0, 1])
    assert [action.job_id for action in planned(before).actions] == [10]


def test_planner__says_when_it_can_do_nothing():
    """Without Operator rights the plan is shown, with a note that nothing can be written."""
    weak = queue("BA")
    weak = Snapshot(0.0, weak.jobs, *_tables(weak), site=Site(rights=Rights.USER, user="sam"))
    assert any("sam has no Operator right" in note for note in planned(weak).notes)


def test_planner__reason_names_policy_rank_and_criteria():
    """Each action says why."""
    (action,) = planned(queue("BA")).actions
    assert action.reason == "policy: rank 1 of 2, letter A"


def test_planner__clamped_priority_without_factors_converges():
    """At priority 1 the factors can only be guessed; two cycles give the order all the same."""
    unknown = {"base_priority": np.full(3, np.nan), "nice": [0, 200, 0], "base_nice": [0, 200, 0]}
    now = queue("CBA", **unknown)
    for _ in range(2):
        nice = now.jobs.nice.copy()
        for action in planned(now).actions:
            nice[action.job_id - 1] = action.new
        jobs = now.jobs.with_columns(nice=nice, priority=np.maximum(-nice, 1))
        now = Snapshot(0.0, jobs, *_tables(now), site=now.site)
    heights = now.jobs.priority + np.array([0, 200, 0])
    assert heights[2] > heights[1] > heights[0]


def test_planner__an_operators_site_factor_counts_on_top():
    """It is neither cancelled by our nice nor does it lift the others."""
    (without,) = planned(queue("BA")).actions
    (with_it,) = planned(queue("BA", site_factor=[0, 1_000_000])).actions
    assert with_it.new == without.new
    assert planned(queue("AB", site_factor=[0, 1_000_000])).actions == ()


@pytest.mark.parametrize("drift", [5, 60])
def test_planner__drifting_factors_do_not_cause_endless_writes(drift):
    """Four users whose fair share drifts: after the first cycles nothing is written while nothing else changes."""
    draw = np.random.default_rng(7)
    names = draw.permutation([f"{i:03d}" for i in range(104)]).tolist()
    user, share = np.arange(104) % 4, np.array([50_000.0, 20_000.0, 70_000.0, 51_000.0])
    now = queue(names, base_priority=share[user])
    weights = {"PriorityWeightAge": "100000", "PriorityWeightFairShare": "100000"}
    site = Site(rights=Rights.OPERATOR, settings=weights)
    written = []
    for _ in range(12):
        share += draw.integers(-drift, drift + 1, 4)
        jobs = now.jobs.with_columns(base_priority=share[user])
        now = Snapshot(now.now_s, jobs, *_tables(now), site=site)
        plan = planned(now)
        written.append(len(plan.actions))
        now = after(now, plan)
    assert written[0] > 0
    assert sum(written[2:]) == 0


@pytest.mark.parametrize(("kind", "now", "own"), [("nice", {"nice": [-900, -800, -700]}, 5),
                                                  ("site_factor", {"site_factor": [900, 800, 700]}, 0)])  # fmt: skip
def test_plan__a_job_that_left_the_scope_gets_its_own_value_back(kind, now, own):
    """Its user moved it, or an admin shortened a list: lifted as it is it would pass all jobs there."""
    columns = {**now, "partition": ["gpu", "cpu", "cpu"], "written": [True, True, False], "base_nice": [5, 5, 5]}
    seen = queue("abc", **columns)
    plan = planned(seen, scope=ScopeConfig(partitions=("gpu",)), lever=LeverConfig(kind=kind))
    back = [action for action in plan.actions if action.job_id != 1]
    assert [(each.job_id, each.kind, each.new, each.base) for each in back] == [(2, kind, own, own)]
    assert (plan.wanted_values.tolist()[1], plan.managed.tolist()) == (own, [True, False, False])
    assert (
        planned(after(seen, plan), scope=ScopeConfig(partitions=("gpu",)), lever=LeverConfig(kind=kind)).actions == ()
    )


@pytest.mark.parametrize(
    "columns",
    [
        {"state": int(JobState.RUNNING)},
        {"backoff": True},
        {"fixed_priority": True},
        {"cron": True},
        {"priority": 0},
        {"nice": -900, "written": False},
    ],
)
def test_plan__leaves_other_jobs_out_of_scope_alone(columns):
    """Values that somebody else set, jobs that run, and those that take no value of ours."""
    of = {"nice": -900, "written": True, "base_nice": 5, "partition": "cpu"} | columns
    seen = queue("a", **{name: [value] for name, value in of.items()})
    assert planned(seen, scope=ScopeConfig(partitions=("gpu",))).actions == ()


def test_plan__nothing_goes_back_while_the_scope_names_a_partition_that_slurm_does_not_know():
    """A slip of the pen would take the whole order away."""
    seen = queue("ab", nice=[-9, -8], written=[True] * 2, partition=["gpu", "cpu"])
    seen = replace(seen, partitions=Partitions.build(2, {"name": ["cpu", "gpu"]}))
    assert planned(seen, scope=ScopeConfig(partitions=("gpuu",))).actions == ()
    assert [
        action.job_id for action in planned(seen, scope=ScopeConfig(partitions=("gpu",))).actions if action.job_id == 2
    ]


def test_plan__values_that_go_back_count_against_the_pace():
    """A hundred jobs that leave the scope are not written at once."""
    seen = queue("abc", nice=[-9, -8, -7], written=[True] * 3, partition=["gpu", "cpu", "cpu"])
    plan = planned(seen, scope=ScopeConfig(partitions=("gpu",)), pace=PaceConfig(writes_per_cycle=1))
    assert [action.job_id for action in plan.actions] == [2]
    unbound = planned(seen, scope=ScopeConfig(partitions=("gpu",)))
    assert plan.deferred == len(unbound.actions) - 1  # what waits for the next cycle is counted, of every lever


@pytest.mark.parametrize("kind", ["nice", "site_factor"])
@pytest.mark.parametrize(
    ("names", "own", "order"),
    [("abc", [0, 0, 0], "abc"), ("abc", [50_000, 0, 0], "bca"), ("abc", [0, 1_500, 0], "acb"),
     ("abc", [2_147_483_645, 0, 0], "bca"), ("abc", [7, 7, 7], "abc"), ("cba", [0, 0, 1], "abc"),
     ("cba", [0, 0, 1_500], "bac"), ("cba", [0, 1_500, 0], "acb"), ("cba", [0, 50_000, 40_000], "cba")],
)  # fmt: skip
def test_planner__a_nice_of_the_users_own_counts_in_the_order(kind, names, own, order):
    """The ranking is the order that Slurm has once the plan is written, and nobody's own nice is taken away."""
    before = queue(names, nice=own, base_nice=own if kind == "nice" else [0] * 3)
    plan = planned(before, lever=LeverConfig(kind=kind))
    done = after(before, plan)
    assert "".join(before.jobs.name[row] for row in plan.ranking.order) == order == slurm_order(done)
    assert planned(replace(done, now_s=before.now_s), lever=LeverConfig(kind=kind)).actions == ()


def test_planner__nobody_leaves_for_a_job_that_its_user_put_last():
    """With a nice of its own above that of a job it competes with; one that all have says nothing."""

    def operations(waiting_nice, running_nice):
        rows = [{"job_id": 1, "gpus": 8, "state": "RUNNING", "requeueable": True, "run_s": 36_000.0, "end_s": 2e5,
                 "cpus": 8, "start_s": 64_000.0, "comment": "slurmsched: preempt=yes ckpt=USR2@120",
                 "nice": running_nice, "base_nice": running_nice, "name": "b"},
                {"job_id": 2, "gpus": 8, "cpus": 8, "nice": waiting_nice, "base_nice": waiting_nice, "name": "a",
                 "time_limit_s": 3_600.0}]  # fmt: skip
        site = Site(rights=Rights.OPERATOR)
        seen = snapshot(rows, "1x8", now_s=1e5, allocations=[{"job_id": 1, "node": "n1", "gpus": 8}], site=site)
        plan = planned(seen, preemption=PreemptionConfig(enabled=True))
        return len(plan.operations), [one.job_id for one in plan.refused if one.rule == "own-nice"]

    assert [operations(*nices) for nices in ((0, 0), (100, 0), (100, 100))] == [(1, []), (0, [2]), (1, [])]


@pytest.mark.parametrize("kind", ["nice", "site_factor"])
def test_planner__writes_nothing_on_priority_basic(kind):
    """There nice shifts the last priority given, so no value puts jobs into an order."""
    site = Site(rights=Rights.OPERATOR, settings={"PriorityType": "priority/basic"})
    plan = planned(replace(queue("cab"), site=site), lever=LeverConfig(kind=kind))
    assert (plan.actions, plan.managed.tolist(), {one.rule for one in plan.refused}) == ((), [False] * 3, {"basic"})
    assert any("PriorityType=priority/multifactor" in note for note in plan.notes)
    assert planned(queue("cab"), lever=LeverConfig(kind=kind)).actions


@pytest.mark.parametrize(("basic", "code"), [(True, 2), (False, 0)])
def test_run_cycle__on_priority_basic_ends_with_a_code_and_a_word(basic, code):
    """Whatever the cluster says of an empty plan."""
    settings = {"PriorityType": f"priority/{'basic' if basic else 'multifactor'}"}
    seen = replace(queue("cab"), site=Site(rights=Rights.OPERATOR, settings=settings))

    class World:
        def read(self):
            return seen

        def recall(self, snapshot):
            return snapshot

        def apply(self, plan):
            return Receipt(planned=len(plan.actions), dry_run=True)

        def append(self, *what):
            self.kept = what

    receipt = run_cycle(World(), Planner(ByName(), scope=EVERYTHING), World())
    assert (receipt.exit_code, "priority/basic" in receipt.stopped) == (code, basic)
