"""Laws of all policies that we ship, and of what they are made of, on clusters and traces made at random."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import entry_points

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmsched import registry
from slurmsched.allocation.elastic import least_share_in_time, sizes_of, timetable
from slurmsched.allocation.leases import LeaseDemand, pack_by_programme, pack_greedily
from slurmsched.allocation.programmes import AllocationProblem, equal_split
from slurmsched.allocation.solver import water_fill
from slurmsched.allocation.water_filling import max_min
from slurmsched.model import Labels, Ranking, Snapshot
from slurmsched.model.hints import parse_hints
from slurmsched.model.trace import Trace
from slurmsched.placements.count import Count
from slurmsched.policies.chronus import Chronus
from slurmsched.policies.discretized_las import DiscretizedLas
from slurmsched.sim.event_loop import replay_events
from slurmsched.sim.ideal.ideal_cluster import IdealCluster
from slurmsched.sim.ideal.ideal_planner import DirectPlanner
from slurmsched.sim.replay_stores import CarryStore
from slurmsched.sim.traces.trace_io import shipped_trace
from slurmsched.testing import snapshot
from slurmsched.testing.conformance import check_clock
from slurmsched.testing.placement_conformance import check_clock as check_placement_clock
from slurmsched.testing.strategies import snapshots

NAMES = tuple(
    point.name for point in entry_points(group="slurmsched.policies") if point.value.startswith("slurmsched.policies.")
)
EVERY = {name: registry.make_plugin("policies", name) for name in sorted(NAMES)}


@pytest.mark.parametrize("name", EVERY)
@settings(deadline=None, max_examples=8)
@given(cluster=snapshots(most_jobs=12), chance=st.integers(0, 2**32 - 1))
def test_every_policy__is_blind_to_the_order_of_rows(name: str, cluster: Snapshot, chance: int) -> None:
    """Every job once, and the same order of ids however the rows are shuffled, also with the policy's own carry."""
    policy = EVERY[name]
    first = policy.rank(cluster)
    later = replace(cluster, carry=json.loads(json.dumps(dict(first.carry))), now_s=cluster.now_s + 600.0)
    rows = np.random.default_rng(chance).permutation(len(later.jobs))
    shuffled = replace(later, jobs=later.jobs.take(rows))
    ids = [given.jobs.job_id[policy.rank(given).order].tolist() for given in (later, shuffled)]
    assert ids[0] == ids[1]
    assert sorted(ids[0]) == sorted(cluster.jobs.job_id.tolist())


@pytest.mark.parametrize("name", EVERY)
@settings(deadline=None, max_examples=12)
@given(cluster=snapshots(most_jobs=12), by_s=st.sampled_from([1_764_000_123.0, -123_457.0, 86_399.0]))
def test_every_policy__is_blind_to_the_zero_of_the_clock(name: str, cluster: Snapshot, by_s: float) -> None:
    """All times of a snapshot shifted by a constant change nothing, at the second look with its own carry neither."""
    check_clock(EVERY[name], cluster, (by_s,))


@pytest.mark.parametrize("name", registry.plugin_names("placements"))
@settings(deadline=None, max_examples=6)
@given(cluster=snapshots(most_jobs=12), by_s=st.sampled_from([1_764_000_123.0, -123_457.0, 86_399.0]))
def test_every_placement__is_blind_to_the_zero_of_the_clock(name: str, cluster: Snapshot, by_s: float) -> None:
    """All times of a snapshot shifted by a constant change no GPU that is given, promised or filled in behind."""
    check_placement_clock(registry.make_plugin("placements", name, key="placement"), cluster, (by_s,))


TYPED = [{"name": f"{kind}{n}", "gpus": gpus, "gpu_types": f"gpu:{kind}:{gpus}" if gpus else ""}
         for kind, gpus in (("v100", 4), ("k80", 8), ("p100", 2), ("cpu", 0)) for n in range(2)]  # fmt: skip
MODELS = ("LM batch=80", "ResNet-18 batch=256", "Transformer batch=64", "unknown", "")
ON_TYPES = {
    name: registry.make_plugin("policies", name, {"speeds": "gavel"}) for name in ("gandiva-fair", "gavel", "sia")
}


@pytest.mark.parametrize("name", ON_TYPES)
@settings(deadline=None, max_examples=12)
@given(
    cluster=snapshots(most_jobs=12), chance=st.integers(0, 2**32 - 1), models=st.permutations(MODELS * 3),
    accounts=st.lists(st.sampled_from("abc"), min_size=12, max_size=12),
)  # fmt: skip
def test_policies_of_types__are_blind_to_the_order_of_rows(
    name: str, cluster: Snapshot, chance: int, models: list[str], accounts: list[str]
) -> None:
    """The same order and the same types of nodes however the rows are shuffled, also with the policy's own carry, of
    which a part of the jobs is gone later; what is wanted on a type fits on it."""
    count, policy, nodes = len(cluster.jobs), ON_TYPES[name], snapshot([], TYPED)
    jobs = cluster.jobs.with_columns(
        comment=Labels.of([f"slurmsched: model={model} dur=1h" for model in models[:count]]),
        account=Labels.of(accounts[:count]),
    )  # fmt: skip
    first = replace(cluster, jobs=jobs, nodes=nodes.nodes, topology=nodes.topology)
    carry = json.loads(json.dumps(dict(policy.rank(first).carry)))
    later = replace(first, jobs=jobs.take(np.arange(0, count, 2)), carry=carry, now_s=first.now_s + 1_920.0)
    shuffled = replace(later, jobs=later.jobs.take(np.random.default_rng(chance).permutation(len(later.jobs))))
    found = []
    for given_ in (first, later, shuffled):
        ranked = policy.rank(given_)
        kinds = dict(zip(given_.jobs.job_id.tolist(), ranked.changes.gpu_type, strict=True))  # type: ignore[union-attr,arg-type]
        found.append((given_.jobs.job_id[ranked.order].tolist(), kinds, ranked.notes))
        gpus = dict(zip(given_.jobs.job_id.tolist(), given_.jobs.gpus.tolist(), strict=True))
        for kind, most in (("v100", 8), ("k80", 16), ("p100", 4)):
            assert sum(gpus[job] for job, on in kinds.items() if on == kind) <= most
    assert found[1] == found[2]


TIMELESS = ("fifo", "edf", "sjf", "srtf", "srsf", "smallest", "chronus", "genie")
TIMES = ("submit_s", "first_submit_s", "start_s", "executed_s", "attained_gpu_s", "waiting_s", "time_limit_s")
SCALED = {name: {} for name in TIMELESS} | {"las": {"quantum_gpu_s": 0.0}, "e-las": {"quantum_gpu_s": 0.0}}


@pytest.mark.parametrize("name", SCALED)
@settings(deadline=None, max_examples=15)
@given(cluster=snapshots(most_jobs=12), factor=st.sampled_from([0.5, 4.0]))
def test_policies_without_a_time_of_their_own__do_not_depend_on_its_unit(
    name: str, cluster: Snapshot, factor: float
) -> None:
    """All times of jobs and cluster twice as long: the same order. Policies with thresholds have those in seconds."""
    bare = cluster.jobs.with_columns(comment=Labels.constant("", len(cluster.jobs)))
    longer = bare.with_columns(**{column: getattr(bare, column) * factor for column in TIMES})
    policy = registry.make_plugin("policies", name, SCALED[name])
    orders = [
        policy.rank(replace(cluster, jobs=jobs, now_s=cluster.now_s * by)).order.tolist()
        for jobs, by in ((bare, 1.0), (longer, factor))
    ]
    assert orders[0] == orders[1]


@settings(deadline=None, max_examples=60)
@given(cluster=snapshots(), knob=st.sampled_from([0.5, 1.0, 8.0]), dimension=st.sampled_from(["1d", "2d"]))
def test_promote_knob__nobody_waits_longer_below_the_first_queue(
    cluster: Snapshot, knob: float, dimension: str
) -> None:
    """Who ran and has waited knob times as long as that is in queue 0: no job is passed for ever."""
    ranking = DiscretizedLas(promote_knob=knob, dimension=dimension).rank(cluster)
    jobs = cluster.jobs
    patient = jobs.pending & (jobs.executed_s > 0) & (jobs.waiting_s >= knob * jobs.executed_s)
    assert (ranking.why["queue"][patient] == 0).all()


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """A few jobs of one GPU, with whole times, and deadlines for some."""
    count = draw(st.integers(1, 12))
    submit_s = draw(st.lists(st.integers(0, 3_000), min_size=count, max_size=count))
    duration_s = draw(st.lists(st.integers(1, 4_000), min_size=count, max_size=count))
    factor = draw(st.lists(st.sampled_from([0.0, 1.2, 3.0]), min_size=count, max_size=count))
    comments = [f"slurmsched: dur={run_s}s" + (f" deadline=+{int(run_s * times) + 1}s" if times else "")
                for run_s, times in zip(duration_s, factor, strict=True)]  # fmt: skip
    return Trace.of(list(range(1, count + 1)), [1] * count, submit_s, duration_s, comment=Labels.of(comments))


@pytest.mark.parametrize("name", EVERY)
@settings(deadline=None, max_examples=5)
@given(trace=traces())
def test_every_policy__keeps_no_gpu_idle_while_somebody_waits(name: str, trace: Trace) -> None:
    """Work conservation, on an ideal cluster of 3 GPUs and jobs of one: where fewer are held, nobody waits. All end."""
    cluster = IdealCluster(trace, [3])
    replay_events(cluster, DirectPlanner(EVERY[name], Count()), CarryStore())
    _, busy, waiting = cluster.history.steps()
    assert (waiting[busy < 3] == 0).all()
    done = cluster.outcomes()
    assert len(done.end_s) == len(trace)
    assert done.executed_s.tolist() == pytest.approx(trace.duration_s.tolist())


@settings(deadline=None, max_examples=10)
@given(work_s=st.integers(400, 900), knob=st.sampled_from([0.5, 1.0, 2.0]))
def test_promote_knob__a_long_job_ends_in_a_stream_of_short_ones(work_s: int, knob: float) -> None:
    """Short jobs in a row on one GPU: without the knob the long job waits for their end, with it it ends among them."""
    stream = 200
    trace = Trace.of(list(range(stream + 1)), [1] * (stream + 1), [0, *range(stream * 50)[::50]],
                     [work_s, *[50] * stream])  # fmt: skip
    ends = []
    for policy in (DiscretizedLas((100.0,)), DiscretizedLas((100.0,), promote_knob=knob)):
        cluster = IdealCluster(trace, [1])
        replay_events(cluster, DirectPlanner(policy, Count()), CarryStore())
        done = cluster.outcomes()
        ends.append(float(done.end_s[done.job_id == 0][0]))
    assert ends[1] < 50.0 * stream <= ends[0]


@st.composite
def problems(draw: st.DrawFn) -> AllocationProblem:
    """Jobs of one GPU on two GPU types, each job at some speed on both."""
    jobs = draw(st.integers(1, 6))
    speed = np.array(draw(st.lists(st.floats(0.1, 4.0), min_size=2 * jobs, max_size=2 * jobs))).reshape(jobs, 2)
    capacity = np.array(draw(st.lists(st.integers(1, 4), min_size=2, max_size=2)), np.float64)
    ones = np.ones(jobs)
    return AllocationProblem(capacity, ones, speed, 100.0 * ones, 0.0 * ones, ones)


@settings(deadline=None, max_examples=40)
@given(problem=problems())
def test_max_min__gives_everybody_at_least_an_equal_split(problem: AllocationProblem) -> None:
    """Sharing incentive, as Gavel's paper proves of max-min fairness; and no type is given more than there is."""
    share = max_min(problem)
    assert (share.sum(axis=0) <= problem.capacity + 1e-6).all()
    assert (share.sum(axis=1) <= 1 + 1e-6).all()
    split = (equal_split(problem) * problem.speed).sum(axis=1)
    assert ((share * problem.speed).sum(axis=1) >= split * (1 - 1e-4)).all()


@settings(deadline=None, max_examples=60)
@given(
    demand=st.lists(st.floats(0.0, 50.0), min_size=1, max_size=8), capacity=st.floats(0.5, 100.0),
    weight=st.lists(st.floats(0.1, 5.0), min_size=8, max_size=8),
)  # fmt: skip
def test_water_fill__nobody_is_below_a_fair_part_of_what_they_ask(
    demand: list[float], capacity: float, weight: list[float]
) -> None:
    """No more than there is or is asked for, nothing left while somebody asks, and the weighted part at least."""
    asked, weights = np.array(demand), np.array(weight[: len(demand)])
    given = water_fill(asked, weights, capacity)
    assert given.sum() <= capacity * (1 + 1e-9) and (given <= asked + 1e-9).all()
    assert given.sum() == pytest.approx(min(capacity, asked.sum()))
    assert (given >= np.minimum(asked, capacity * weights / weights.sum()) - 1e-9).all()


@settings(deadline=None, max_examples=80)
@given(
    gpus=st.lists(st.integers(1, 8), min_size=1, max_size=6),
    needed=st.lists(st.integers(1, 6), min_size=6, max_size=6),
    spare=st.lists(st.integers(0, 12), min_size=6, max_size=6),
    firm=st.lists(st.booleans(), min_size=6, max_size=6),
)  # fmt: skip
def test_packing__best_promises_as_many_as_greedy(
    gpus: list[int], needed: list[int], spare: list[int], firm: list[bool]
) -> None:
    """Of those promised before and, with equally many of them, of all; nobody has GPUs now that are not there."""
    count = len(gpus)
    need = np.array(needed[:count])
    demand = LeaseDemand(np.array(gpus), need, need + np.array(spare[:count]), np.array(firm[:count]))
    made = [pack(demand, 8) for pack in (pack_greedily, pack_by_programme)]
    kept = [(int((one.admitted & demand.firm).sum()), int((one.admitted & ~demand.firm).sum())) for one in made]
    assert kept[1] >= kept[0]
    for one in made:
        assert not one.admitted[demand.gpus > 8].any() and (demand.needed <= demand.within)[one.admitted].all()


@st.composite
def deadlines(draw: st.DrawFn) -> Trace:
    """Gangs of up to 8 GPUs with exact run times, some with deadlines that can be met and some that cannot."""
    count, zero_s = draw(st.integers(2, 16)), draw(st.sampled_from([0.0, 1.764e9]))
    columns = [draw(st.lists(each, min_size=count, max_size=count)) for each in (
        st.integers(0, 4_000), st.sampled_from([1, 1, 2, 3, 5, 8]), st.integers(1, 6_000),
        st.sampled_from([0.0, 0.9, 1.05, 1.5, 2.0, 4.0]),
    )]  # fmt: skip
    submit_s, gpus, duration_s, factor = columns
    comments = [f"slurmsched: dur={run_s}s" + (f" deadline=+{int(run_s * times) + 1}s" if times else "")
                for run_s, times in zip(duration_s, factor, strict=True)]  # fmt: skip
    return Trace.of(list(range(1, count + 1)), gpus, [zero_s + at_s for at_s in submit_s], duration_s,
                    comment=Labels.of(comments))  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(trace=deadlines(), lease_s=st.sampled_from([60.0, 1_200.0]), packing=st.sampled_from(["milp", "greedy"]))
def test_chronus__keeps_every_promise(trace: Trace, lease_s: float, packing: str) -> None:
    """With exact run times who was ever promised its deadline meets it, whatever came afterwards."""
    assert broken_promises(trace, 8, Chronus(lease_s=lease_s, packing=packing)) == []


def test_chronus__keeps_every_promise_on_its_authors_trace() -> None:
    """The first jobs of their trace of deadlines, more work than 32 GPUs can do."""
    assert broken_promises(shipped_trace("chronus_slo").first(120), 32, Chronus()) == []


def broken_promises(trace: Trace, gpus: int, policy: Chronus) -> list[int]:
    """Ids of the jobs that were promised their deadlines in a replay and ended later."""
    promised, ranks = set[int](), policy.rank

    class Watched(Chronus):
        def rank(self, snapshot: Snapshot) -> Ranking:
            ranking = ranks(snapshot)
            promised.update(int(key.partition("@")[0]) for key in ranking.carry["lease_plan"]["times"])
            return ranking

    cluster = IdealCluster(trace, [gpus])
    replay_events(cluster, DirectPlanner(Watched(policy.lease_s, policy.packing), Count()), CarryStore())
    done = cluster.outcomes()
    ends = dict(zip(done.job_id.tolist(), done.end_s.tolist(), strict=True))
    due = {job: deadline.due_s(at_s) for job, at_s, comment in
           zip(trace.job_id.tolist(), trace.submit_s.tolist(), trace.comment, strict=True)
           if (deadline := parse_hints(comment).deadline) is not None}  # fmt: skip
    return sorted(job for job in promised if ends[job] > due[job] + 1e-4)


@settings(deadline=None, max_examples=60)
@given(
    free=st.lists(st.integers(0, 8), min_size=8, max_size=8), remaining_s=st.floats(1.0, 20_000.0),
    due_s=st.floats(1.0, 6_000.0), low=st.sampled_from([1, 2, 4]),
)  # fmt: skip
def test_filled__fits_and_is_in_time(free: list[int], remaining_s: float, due_s: float, low: int) -> None:
    """The plan never holds more than is free, only sizes of the job, and does all of its work before the deadline."""
    table = timetable(0.0, 600.0, 8, 8)
    table.free[:] = free
    sizes = sizes_of(snapshot([{"gpus": 4, "comment": f"slurmsched: min_gpus={low} max_gpus=8"}]), [0], 0.1)[0]
    plan = least_share_in_time(sizes, remaining_s, due_s, table)
    if plan is not None:
        assert (plan <= table.free).all() and set(plan.tolist()) <= {0, *sizes.gpus.tolist()}
        speed = np.array([dict(zip(sizes.gpus.tolist(), sizes.speed.tolist(), strict=True)).get(k, 0.0) for k in plan])
        assert float((speed * table.until(due_s)).sum()) >= remaining_s - 1e-3
