"""One pass of slurmctld's main scheduler, and one of its backfill scheduler."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slurmsched.kernels._jit import kernel
from slurmsched.kernels.backfill_slots import (
    BITS,
    ReadyBy,
    Runs,
    SlotTable,
    as_many,
    enough_before,
    last_end,
    last_gain,
    may_start,
    merged,
    next_try,
    overlaps,
    pack,
    pick_later,
    ready_nodes,
    reserve,
    runs_to_go,
    tested_after,
    unpack,
)
from slurmsched.kernels.slurmctld_nodes import (
    NodeOrder,
    NodeRequest,
    holds,
    pick_nodes,
    pick_spared,
    take_nodes,
    use_limits,
    within_limits,
)
from slurmsched.model.columns import Bools, Floats, Int64s


class PassNodes(NamedTuple):
    """The N nodes that a pass sees.

    free: (R, N) int64 free GPUs, CPUs and memory [GPUs, CPUs, MiB], then CPUs of each partition that limits them;
        a pass subtracts what it gives.
    completing: (N,) bool, nodes that start nothing now.
    usable: (P, N) bool, the nodes of each pool.
    """

    free: Int64s
    completing: Bools
    usable: Bools


class QueuedJobs(NamedTuple):
    """The J jobs that a pass tests, in that order.

    pool: (J,) int64, the job's row of PassNodes.usable.
    nodes: (J,) int64, how many nodes it asks for.
    need, last: (J, R) int64, what each node and what the last one gives [GPUs, CPUs, MiB and more].
    limit_s: (J,) float64 time limits [s].
    array: (J,) int64 id of the array that it is a task of, 0 = none.
    limit: (J, K) int64, the limits that count it, as within_limits and use_limits read them.
    amount: (J, K) float64, what it uses of each, in the unit of the limit.
    throttle: (J,) int64, the limit that is the number of tasks its array may run at once, -1 = none.
    group: (J, G) int64, for backfill, whose tested jobs it counts among: of its user, its partition, both.
    reserves: (J,) bool, for backfill, whether it gets a reservation where it cannot start now.
    least_loaded: (J,) bool, whether it gets the nodes with the most free CPUs.
    job: (J,) int64 below J, the same number for a job that stands here once for each of its partitions.
    """

    pool: Int64s
    nodes: Int64s
    need: Int64s
    last: Int64s
    limit_s: Floats
    array: Int64s
    limit: Int64s
    amount: Floats
    throttle: Int64s
    group: Int64s
    reserves: Bools
    least_loaded: Bools
    job: Int64s


class PassPartitions(NamedTuple):
    """What a job that does not fit blocks in a main pass.

    members: (Q, N) bool, the nodes of each partition.
    part: (J,) int64, the partition of each job.
    bound: (J,) bool, whether the job is bound to the nodes of its pool.
    failed: (Q,) bool, partitions that a job before has blocked; a pass adds to them.
    """

    members: Bools
    part: Int64s
    bound: Bools
    failed: Bools


class ClosedTimes(NamedTuple):
    """Times in which nodes start nothing.

    span: (B, 2) float64 begin and end [s].
    nodes: (B, N) bool, the nodes that are closed then.
    """

    span: Floats
    nodes: Bools


# Over 30 lines: a third is signature and docstring; each test of slurmctld's decides whether the next is made.
@kernel
def main_pass(
    cluster: PassNodes,
    open_nodes: Bools,
    partitions: PassPartitions,
    closed: ClosedTimes,
    jobs: QueuedJobs,
    room: Floats,
    depth: int,
    now: float,
    order: NodeOrder,
) -> Int64s:
    """Which jobs start, and where. (K, 3) int64: job, node, kind, as take_nodes gives them, in order of start.

    These are changed: cluster.free, open_nodes, partitions.failed and room.

    open_nodes: (N,) bool.
    room: (L,) float64, what each limit still allows.
    depth: records tested at most.

    A job may not run into a time in which its nodes are closed. The first job of a partition that does not fit blocks
    it, and its nodes for all that follow. One that is bound to nodes blocks those only. One that a limit stops, or that
    asks for more nodes than are open, blocks no other.
    Source: Slurm's src/slurmctld/job_scheduler.c.
    """
    members, part, width = partitions.members, partitions.part, open_nodes.size
    taken, given, used = np.zeros(width, np.int64), room_for_starts(jobs.nodes, width), 0
    failed, mask = partitions.failed, np.empty(width, np.bool_)
    started = np.zeros(jobs.nodes.size, np.bool_)
    rejected, tested = 0, 0
    for j in range(jobs.nodes.size):
        if started[jobs.job[j]]:
            continue
        if jobs.array[j] > 0:
            if jobs.array[j] == rejected:
                continue
            rejected = jobs.array[j]
        if tested > depth:
            break
        tested += 1
        if failed[part[j]] or not within_limits(room, jobs.limit[j], jobs.amount[j]):
            continue
        mask[:] = open_nodes & cluster.usable[jobs.pool[j]]
        close(closed, now, now + jobs.limit_s[j], mask)
        if mask.sum() < jobs.nodes[j]:
            continue
        mask &= ~cluster.completing
        request = NodeRequest(jobs.nodes[j], jobs.need[j], jobs.last[j], jobs.least_loaded[j])
        if pick_nodes(cluster.free, mask, request, order, taken):
            used = take_nodes(cluster.free, request, taken, j, given, used)
            use_limits(room, jobs.limit[j], jobs.amount[j])
            rejected, started[jobs.job[j]] = 0, True
        elif partitions.bound[j]:
            open_nodes &= ~cluster.usable[jobs.pool[j]]
        else:
            failed[part[j]] = True
            open_nodes &= ~members[part[j]]
    return given[:used].copy()


@kernel
def close(closed: ClosedTimes, now: float, until: float, mask: Bools) -> None:
    """Remove from mask (N,) the nodes that are closed at some time in (now, until)."""
    for b in range(closed.span.shape[0]):
        if closed.span[b, 0] < until and closed.span[b, 1] > now:
            mask &= ~closed.nodes[b]


@kernel
def room_for_starts(nodes: Int64s, width: int) -> Int64s:
    """(G, 3) int64 rows for take_nodes, enough if every job starts. nodes: (J,). width: nodes of the cluster."""
    return np.empty((np.minimum(nodes, width).sum(), 3), np.int64)


# One pass of slurmctld's backfill scheduler.


class BackfillRules(NamedTuple):
    """When a backfill pass looks at the cluster, and where it ends.

    now, window_end: the present, and the time after which it plans nothing [s].
    step: resolution of reservations, 0 = none [s].
    epoch: Unix time of 0 [s].
    most_started: jobs started, at which the pass ends.
    most_of_array: reservations of one array, after which its other tasks are passed over.
    most_records: records of the table of reservations, at which the pass ends.
    most_tested: tries of jobs, at which the pass ends. A record ends the pass, a further task of an array does only
        after a start.
    most_of_group: (G,) int64, jobs tested of one user, one partition, and both, 0 = any number.
    order: which nodes come first.
    last_of_all: a job's start is the end of the last running job taken away, on whatever nodes.
    """

    now: float
    window_end: float
    step: float
    epoch: float
    most_started: int
    most_of_array: int
    most_records: int
    most_tested: int
    most_of_group: Int64s
    order: NodeOrder
    last_of_all: bool


class RunningJobs(NamedTuple):
    """What is held, by expected end.

    end_s: (R,) float64 expected ends [s], ascending.
    first, node_count: (R,) int64; a job holds the rows first .. first + node_count of node and held.
    node: (H,) int64 rows of nodes.
    held: (H, R) int64, what it holds there [GPUs, CPUs, MiB and more].
    """

    end_s: Floats
    first: Int64s
    node_count: Int64s
    node: Int64s
    held: Int64s


class ReadyNodes(NamedTuple):
    """When nodes will hold what jobs need, for the C distinct needs of the jobs.

    shapes: (C, R) int64 needs [GPUs, CPUs, MiB and more].
    of_need, of_last: (J,) int64, the rows of shapes that are the need and the last of each job.
    ready, by_ready: (C, N) int64, as ready_nodes sets them.
    able: (C,) int64, what ready_nodes returned, -1 = not known now.
    """

    shapes: Int64s
    of_need: Int64s
    of_last: Int64s
    ready: Int64s
    by_ready: Int64s
    able: Int64s


# Over 30 lines: one pass in slurmctld's own order; each job changes the slots, runs and counts for the next.
@kernel
def backfill_pass(
    rules: BackfillRules,
    cluster: PassNodes,
    running: RunningJobs,
    closed: ClosedTimes,
    jobs: QueuedJobs,
    walked: int,
    room: Floats,
) -> tuple[Int64s, bool]:
    """Which jobs start now, and where. (K, 3) int64: job, node, kind, as take_nodes gives them, in order of start.

    And whether that is all: false if jobs behind those that it walks through may start too.

    walked: only that many of the jobs are walked through; the others stand for all behind them, one for each request.
    cluster.free: changed.
    room: (L,) float64, what each limit still allows, changed.

    A job that cannot do without completing nodes is held up, with a reservation. A job of several partitions gets a
    reservation in each that lets it start no later than those before. A job is tried at the present, then where
    reservations end. Each try takes running jobs away:

    - at once those that end by its own time;
    - then others in windows of time, but none that ends after the next try begins.

    The start is the end of the last job taken that holds a node of the job; if last_of_all, of the last job taken.
    A try is left out where one before, of a job that asks for the same for no longer, found too few nodes in time. Both
    what is unreserved and what is free only shrinks in a pass. A try whose nodes are reserved later on proves nothing.
    Source: Slurm's sched/backfill and select/cons_tres (will-run).
    """
    now, step, jobs_count, width = rules.now, rules.step, jobs.nodes.size, cluster.usable.shape[1]
    free, completing, pool, array, nodes, need, last, limit_s, limit, amount = (
        cluster.free, cluster.completing, jobs.pool, jobs.array, jobs.nodes, jobs.need, jobs.last, jobs.limit_s,
        jobs.limit, jobs.amount,
    )  # fmt: skip
    pools = packed(cluster.usable)
    bits, still_open = np.zeros(pools.shape[1], np.int64), np.zeros(pools.shape[1], np.int64)
    mask, chosen = np.ones(width, np.bool_), np.zeros(width, np.int64)
    table, slots = slot_table(rules, closed, jobs_count, mask, bits)
    given, used, made, started = room_for_starts(nodes, width), 0, 1, 0
    runs, filled = with_room(running, nodes, given.shape[0]), running.end_s.size
    known = ready_table(jobs, width)
    ready, by_ready, able, of_need, of_last = known.ready, known.by_ready, known.able, known.of_need, known.of_last
    soon, added = np.zeros(bits.size, np.int64), np.zeros(1, np.int64)
    idle, idle_known, final = np.zeros((able.size, bits.size), np.int64), np.zeros(able.size, np.bool_), jobs_count - 1
    of_group = np.zeros((jobs.group.max() + 1, rules.most_of_group.size), np.int64)
    start_of = np.full(jobs_count, np.inf)  # in a partition before
    kind, ruled_out, never_closed = kinds_of(jobs, of_need, of_last), np.full(jobs_count, now), table.opened[0].copy()
    for k in range(1, slots):
        never_closed &= table.opened[k]
    rejected, in_array, current, tested = 0, 0, 0, 0
    for j in range(jobs_count):
        while final >= j:
            if not idle_known[of_last[final]]:
                idle_known[of_last[final]] = True
                set_idle(free, completing, known.shapes, of_last[final], mask, idle)
            until = now + limit_s[final]
            if may_start(table, slots, until, pools[pool[final]], idle[of_last[final]], nodes[final], still_open):
                break
            final -= 1
        if final < j:
            break  # reservations of jobs behind the last one that may start change nothing
        if j == walked:
            return given[:used].copy(), False
        if tested >= rules.most_tested and (array[j] == 0 or array[j] != current):
            break
        if start_of[jobs.job[j]] <= now:
            continue
        if array[j] != current:
            current, in_array = array[j], 0
        if array[j] > 0:
            if array[j] == rejected:
                continue
            rejected = array[j]
        if not within_limits(room, limit[j], amount[j]) or passed_over(rules, of_group, jobs.group[j]):
            continue
        before_j, tried = started, as_many(never_closed, pools[pool[j]], nodes[j])
        request, later = NodeRequest(nodes[j], need[j], last[j], jobs.least_loaded[j]), now
        if jobs.reserves[j] and table.end[0] >= now + 1.0:
            later = last_gain(table, slots, ruled_out_by(kind, limit_s, ruled_out, j), pools[pool[j]], now)
        first, ruled_out[j] = later, np.inf
        for shape in (of_need[j], of_last[j]):
            if able[shape] < 0:
                update_ready(free, runs, filled, known, shape)
        least = ready_by(known, of_last[j], nodes[j], runs.end, soon, added)
        while later <= rules.window_end:
            from_s, later, may_fit, tried = next_try(
                table, slots, later, limit_s[j], rules.window_end, pools[pool[j]], still_open, least, tried,
                jobs.reserves[j],
            )  # fmt: skip
            start = np.inf
            if may_fit:
                unpack(still_open, mask)
                to_go = runs_until_fit(ready, by_ready, able, mask, nodes[j], of_need[j], of_last[j])
                if to_go >= 0:
                    if to_go == 0 or runs.end[to_go - 1] <= min(later if later >= 0 else np.inf, rules.window_end):
                        ruled_out[j] = min(ruled_out[j], from_s)
                    start = future_start(
                        rules, free, runs, filled, to_go, ready[of_need[j]], ready[of_last[j]], mask, request, chosen,
                        from_s, later if later >= 0 else np.inf,
                    )  # fmt: skip
            if start == np.inf:
                if later < 0 or not jobs.reserves[j]:
                    ruled_out[j] = min(ruled_out[j], later if later >= 0 else np.inf)
                    break
                continue
            start = max(start, from_s)
            waits = start <= now and held_up(free, mask, completing, request, rules.order, chosen)
            if waits:
                start, later = now + 1.0, -1.0
            if start > now and not jobs.reserves[j]:
                break
            slot, slot_end = whole_steps(rules, start, start + limit_s[j])
            pack(chosen, bits)
            if start > now and not waits and overlaps(table, slots, slot, slot_end, bits):
                later = start + (step if step > 0 else 1.0) if start == from_s else start
                continue
            if start <= now:
                add_run(runs, filled, jobs_count - j, runs.node.size - given.shape[0] + used, now + limit_s[j], request,
                        chosen)  # fmt: skip
                used = take_nodes(free, request, chosen, j, given, used)
                use_limits(room, limit[j], amount[j])
                filled, started, rejected, start_of[jobs.job[j]] = filled + 1, started + 1, 0, now
                able[:] = -1
                idle_known[:] = False
                break
            if later >= 0 and start > later:
                continue
            if start <= min(rules.window_end, start_of[jobs.job[j]]):
                start_of[jobs.job[j]] = start
                if made >= rules.most_records:
                    return given[:used].copy(), True
                before, slots = slots, reserve(table, slots, slot, slot_end, bits)
                never_closed &= ~bits
                made += slots - before
                slots = merged(table, slots, slot, slot_end)
                in_array += 1 if array[j] > 0 else 0
                most = rules.most_of_array if jobs.throttle[j] < 0 else min(rules.most_of_array, room[jobs.throttle[j]])
                rejected = array[j] if in_array >= most else 0
            break
        if first > now and not tried:
            tried = enough_before(table, slots, first, pools[pool[j]], nodes[j], limit_s[j], still_open)
        tested += 1 if tried else 0
        if started > before_j and (started >= rules.most_started or tested >= rules.most_tested):
            break
    return given[:used].copy(), True


@kernel
def any_fits(cluster: PassNodes, pool: Int64s, nodes: Int64s, last: Int64s) -> bool:
    """Whether any of these jobs finds enough nodes idle: without them it does not start now, whatever is reserved.

    pool, nodes: (J,), last: (J, R), as QueuedJobs has them.
    """
    for j in range(nodes.size):
        missing = nodes[j]
        for n in range(cluster.completing.size):
            if cluster.usable[pool[j], n] and not cluster.completing[n] and holds(cluster.free, last[j], n):
                missing -= 1
                if missing <= 0:
                    return True
    return False


@kernel
def passed_over(rules: BackfillRules, of_group: Int64s, group: Int64s) -> bool:
    """Whether as many jobs of its user or partition were tested as may be; else it is counted among them.

    of_group: (., G) int64 jobs tested so far, by number of the group. group: (G,) those of the job.
    """
    for g in range(group.size):
        if rules.most_of_group[g] > 0 and of_group[group[g], g] >= rules.most_of_group[g]:
            return True
    for g in range(group.size):
        of_group[group[g], g] += 1
    return False


@kernel
def set_idle(free: Int64s, completing: Bools, shapes: Int64s, shape: int, mask: Bools, idle: Int64s) -> None:
    """Set a row of idle (C, W) to the nodes that hold that row of shapes (C, R) now and do not complete a job.

    free: (R, N). completing: (N,). mask: (N,), overwritten.
    """
    for n in range(mask.size):
        mask[n] = not completing[n] and holds(free, shapes[shape], n)
    pack(mask, idle[shape])


@kernel
def ready_by(known: ReadyNodes, shape: int, nodes: int, end: Floats, words: Int64s, added: Int64s) -> ReadyBy:
    """Nothing known yet of when that many nodes hold the need of a row of known.shapes. words, added: overwritten."""
    words[:] = 0
    added[0] = 0
    return ReadyBy(known.ready[shape], known.by_ready[shape], known.able[shape], end, nodes, words, added)


@kernel
def packed(usable: Bools) -> Int64s:
    """The nodes of each pool as pack sets them, (P, W) int64. usable: (P, N)."""
    pools = np.zeros((usable.shape[0], (usable.shape[1] + BITS - 1) // BITS), np.int64)
    for p in range(usable.shape[0]):
        pack(usable[p], pools[p])
    return pools


@kernel
def slot_table(
    rules: BackfillRules, closed: ClosedTimes, jobs: int, mask: Bools, bits: Int64s
) -> tuple[SlotTable, int]:
    """The table with the closed times in it, and how many slots are in use. mask: all nodes. bits: overwritten."""
    rows = 2 * (jobs + closed.span.shape[0]) + 2
    table, slots = SlotTable(np.empty(rows), np.empty(rows), np.zeros((rows, bits.size), np.int64)), 1
    table.begin[0], table.end[0] = rules.now, rules.window_end
    pack(mask, table.opened[0])
    for b in range(closed.span.shape[0]):
        pack(closed.nodes[b], bits)
        slots = reserve(table, slots, closed.span[b, 0], closed.span[b, 1], bits)
    return table, slots


@kernel
def with_room(running: RunningJobs, nodes: Int64s, more: int) -> Runs:
    """The running jobs, with room for the jobs of the queue: nodes (J,), which hold `more` rows at most."""
    runs, jobs, rows = running.end_s.size, nodes.size, running.node.size
    end, order = np.empty(runs + jobs, np.float64), np.empty(runs + jobs, np.int64)
    end[:runs], order[:runs] = running.end_s, np.arange(runs)
    first, node_count = np.zeros(runs + jobs, np.int64), np.concatenate((running.node_count, nodes))
    first[:runs] = running.first
    node, held = np.empty(rows + more, np.int64), np.empty((rows + more, running.held.shape[1]), np.int64)
    node[:rows], held[:rows] = running.node, running.held
    return Runs(end, order, first, node_count, node, held)


@kernel
def ready_table(jobs: QueuedJobs, width: int) -> ReadyNodes:
    """What is known of when nodes are free when a pass begins: nothing."""
    shapes, of_need, of_last = shapes_of(jobs.need, jobs.last)
    count = shapes.shape[0]
    ready, by_ready = np.empty((count, width), np.int64), np.empty((count, width), np.int64)
    return ReadyNodes(shapes, of_need, of_last, ready, by_ready, np.full(count, -1, np.int64))


@kernel
def shapes_of(need: Int64s, last: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """The distinct rows of need and last (J, R), and which of them is the need and the last of each job (J,)."""
    jobs, kinds = need.shape
    shapes, places, known = np.empty((2 * jobs, kinds), np.int64), np.empty((2, jobs), np.int64), 0
    for j in range(jobs):
        for side, rows in enumerate((need, last)):
            place = 0
            while place < known and differ(shapes, place, rows, j):
                place += 1
            for r in range(kinds):
                shapes[place, r] = rows[j, r]
            places[side, j] = place
            known = max(known, place + 1)
    return shapes[:known].copy(), places[0], places[1]


@kernel
def differ(one: Int64s, place: int, other: Int64s, j: int) -> bool:
    """Whether a row of one (., R) differs from row j of the other."""
    differs = 0
    for r in range(one.shape[1]):
        differs |= one[place, r] ^ other[j, r]
    return differs != 0


@kernel
def kinds_of(jobs: QueuedJobs, of_need: Int64s, of_last: Int64s) -> Int64s:
    """The same number for jobs that ask for the same but for time. (J,). of_need, of_last: as ReadyNodes has them."""
    shapes, nodes = max(of_need.max(), of_last.max()) + 1, jobs.nodes.max() + 1
    return ((jobs.pool * shapes + of_need) * shapes + of_last) * nodes + jobs.nodes


@kernel
def ruled_out_by(kind: Int64s, limit_s: Floats, ruled_out: Floats, j: int) -> float:
    """Until when job j cannot start, since one like it before that asks for no more time could not [s].

    kind: (J,), as kinds_of gives it. ruled_out: (J,) until when each job before could not start [s].
    """
    until = -np.inf
    for i in range(j):
        if kind[i] == kind[j] and limit_s[i] <= limit_s[j]:
            until = max(until, ruled_out[i])
    return until


@kernel
def update_ready(free: Int64s, runs: Runs, filled: int, known: ReadyNodes, shape: int) -> None:
    """Find out when nodes hold the need of a row of known.shapes. free: (3, N)."""
    known.able[shape] = ready_nodes(
        free, known.shapes[shape], runs, filled, known.ready[shape], known.by_ready[shape]
    )  # fmt: skip


@kernel
def held_up(
    free: Int64s, mask: Bools, completing: Bools, request: NodeRequest, order: NodeOrder, chosen: Int64s
) -> bool:
    """Whether a job that could start now on nodes of mask (N,) must wait for completing (N,) ones among the chosen
    (N,); it is given others where it can."""
    if not (completing & (chosen > 0)).any():
        return False
    pick_spared(free, mask, completing, request, order, chosen)
    return bool((completing & (chosen > 0)).any())


@kernel
def whole_steps(rules: BackfillRules, start: float, end: float) -> tuple[float, float]:
    """Begin and end of a reservation: from start to end, in whole steps of the Unix time [s]."""
    step, epoch = rules.step, rules.epoch
    if step <= 0:
        return start, end
    return np.floor((start + epoch) / step) * step - epoch, np.ceil((end + epoch) / step) * step - epoch


@kernel
def add_run(
    runs: Runs, filled: int, from_back: int, row: int, end: float, request: NodeRequest, chosen: Int64s
) -> None:
    """Add a job that starts on the chosen (N,) nodes and is expected to end at `end` [s].

    from_back: how far from the end of runs.first it stands. row: the first of runs.node and runs.held that is not used.
    """
    run = runs.first.size - from_back
    runs.first[run] = row
    for n in np.flatnonzero(chosen):
        runs.node[row], runs.held[row] = n, request.need if chosen[n] == 1 else request.last
        row += 1
    insert(runs.end, runs.order, filled, end, run)


@kernel
def insert(order_end: Floats, order: Int64s, runs: int, end: float, run: int) -> None:
    """Put a run into the lists by ascending end, behind equal ones."""
    place = runs
    while place > 0 and order_end[place - 1] > end:
        order_end[place], order[place] = order_end[place - 1], order[place - 1]
        place -= 1
    order_end[place], order[place] = end, run


# Over 30 lines: more than half is signature and docstring.
@kernel
def future_start(
    rules: BackfillRules,
    free: Int64s,
    runs: Runs,
    filled: int,
    to_go: int,
    ready: Int64s,
    last_ready: Int64s,
    mask: Bools,
    request: NodeRequest,
    chosen: Int64s,
    from_s: float,
    bound: float,
) -> float:
    """When a job could start on the nodes of mask (N,), as slurmctld guesses it [s]; infinite if never.

    free: (3, N).
    chosen: (N,) int64, set to its nodes.
    to_go: runs that must be gone, see runs_until_fit.
    ready, last_ready: (N,) as pick_later has them.
    from_s: runs that end by then are gone at once.
    bound: no run that ends later is taken away.
    """
    now, order_end = rules.now, runs.end
    gone, latest = 0, from_s
    while from_s > now and gone < filled and order_end[gone] <= from_s:
        gone += 1
    begun = gone
    if to_go == 0 and gone == 0:
        pick_nodes(free, mask, request, rules.order, chosen)
        return from_s
    if gone < to_go:
        gone, latest = tested_after(to_go, rules.epoch, runs, filled, mask, gone, bound)
    if latest < np.inf:
        pick_later(gone, free, runs, ready, last_ready, mask, request, rules.order, chosen)
        if not rules.last_of_all:
            latest = last_end(runs, chosen, begun, gone, latest)
    return max(latest, now + 1.0)


@kernel
def runs_until_fit(
    ready: Int64s, by_ready: Int64s, able: Int64s, mask: Bools, nodes: int, of_need: int, of_last: int
) -> int:
    """How many runs must be gone before a job fits on nodes of mask (N,); -1 if it never does.

    ready, by_ready, able: see ReadyNodes. of_need, of_last: the job's rows of them. `last` is nowhere more than `need`,
    so that it fits as soon as enough nodes hold each.
    """
    whole = nodes if of_need == of_last else nodes - 1
    to_go = runs_to_go(ready[of_need], by_ready[of_need], able[of_need], mask, whole)
    if to_go < 0 or of_need == of_last:
        return to_go
    rest = runs_to_go(ready[of_last], by_ready[of_last], able[of_last], mask, nodes)
    return max(to_go, rest) if rest >= 0 else -1
