"""Nodes that could be powered down: how far demand may rise before they are needed, and what that would have saved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from slurmsched.errors import InputError
from slurmsched.input_files import InputFile, csv_records
from slurmsched.model import Nodes, NodeState, Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.durations import DAY_S
from slurmsched.model.trace_rows import parse_number, parse_time_s

STEP_S = 600.0
BESIDE_S = 3_600.0  # times of the day so near count as the same one
DAYS = 28  # of the past that are used
LEAST_DAYS = 2  # without that many nothing is forecast
_UNFIT = (
    NodeState.RESERVED | NodeState.PLANNED | NodeState.COMPLETING | NodeState.POWERING_DOWN | NodeState.POWERING_UP
    | NodeState.POWER_DOWN | NodeState.POWER_UP | NodeState.POWERED_DOWN | NodeState.REBOOT_REQUESTED
    | NodeState.REBOOT_ISSUED | NodeState.CLOUD | NodeState.MAINTENANCE
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PowerRules:
    """By what nodes are let go.

    horizon_s: a node goes only if it is not expected to be needed for so long [s].
    hold_s: and if that was so for so long [s].
    quantile: share of the rises of demand at this time of the day that must be covered.
    buffer: nodes that stay up beyond that.
    boot_s: how long a node takes to come back [s].
    forecast: False lets every node go that is idle, whatever comes.
    Raises InputError for a value out of range.
    Source: Hu et al. (Helios), SC '21, cluster energy saving. There a forecast of the hours ahead says which nodes are
    not needed. A buffer stays up, and jobs that find too few nodes wake them. Theirs forecasts by boosted trees, ours
    by quantiles of past rises at the same time of the day. That it also wakes nodes ahead is ours.
    """

    horizon_s: float = 3 * 3_600.0
    hold_s: float = 3_600.0
    quantile: float = 0.9
    buffer: int = 2
    boot_s: float = 300.0
    forecast: bool = True

    def __post_init__(self) -> None:
        ranges = {
            "horizon_s": (STEP_S, DAY_S - BESIDE_S), "hold_s": (0, DAY_S), "quantile": (0, 1),
            "buffer": (0, 1 << 20), "boot_s": (0, DAY_S),
        }  # fmt: skip
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"power: {name} must be between {low:g} and {high:g}, got {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class PowerSaving:
    """What came of it.

    node_h: all there were.
    off_node_h: of nodes that were off [node h].
    wake_ups: nodes that were woken.
    short_steps: steps with too few nodes up.
    delayed: starts that found too few, None if not known; each was boot_s late at most.
    busy_node_h: of nodes that were needed.
    """

    node_h: float
    off_node_h: float
    wake_ups: int
    short_steps: int
    delayed: int | None
    delay_s: float
    busy_node_h: float = 0.0

    @property
    def use_gain_pct(self) -> float:
        """By how much the share of needed nodes in those that are up grows, over nothing ever being off [points]."""
        up_h = self.node_h - self.off_node_h
        return 100.0 * (self.busy_node_h / up_h - self.busy_node_h / self.node_h) if up_h > 0 else 0.0


@dataclass(frozen=True, slots=True)
class PowerAdvice:
    """Nodes that could go now.

    idle: nodes that run nothing.
    rise: by how much demand may grow [GPUs], NaN if not known.
    waiting: GPUs that waiting jobs ask for.
    why: why there are none, "" if there are.
    """

    nodes: tuple[str, ...]
    idle: int
    rise: float
    waiting: int
    why: str = ""


def gpu_demand(start_s: Floats, end_s: Floats, gpus: Floats | Int64s, begin_s: float, stop_s: float) -> Floats:
    """Most GPUs in use at a time in each step of STEP_S from begin_s on. (S,)."""
    steps = max(int(np.ceil((stop_s - begin_s) / STEP_S)), 0)
    time_s, use = _in_use(start_s, end_s, gpus)
    place = np.floor((time_s - begin_s) / STEP_S).astype(np.int64)
    inside = (place >= 0) & (place < steps)
    most = np.full(steps, -np.inf)
    np.maximum.at(most, place[inside], use[inside])
    begun = np.searchsorted(time_s, begin_s + STEP_S * np.arange(steps), side="right") - 1
    return np.maximum(most, np.where(begun >= 0, use[begun] if len(use) else 0.0, 0.0))


def demand_until_now(snapshot: Snapshot, start_s: Floats, end_s: Floats, gpus: Int64s, days: float) -> Floats:
    """GPUs in use in each step up to now, by ended runs and by the running jobs of the queue. (S,), see gpu_demand.

    start_s, end_s, gpus: one entry for each ended run. (R,).
    days: the longest past that is returned.
    """
    now_s = snapshot.now_s
    jobs = snapshot.jobs.take(snapshot.jobs.running & (snapshot.jobs.gpus > 0))
    begin_s = max(float(end_s.min(initial=now_s)), now_s - days * DAY_S)
    starts, ends = np.append(start_s, jobs.start_s), np.append(end_s, np.full(len(jobs), now_s))
    return gpu_demand(starts, ends, np.append(gpus, jobs.gpus).astype(np.float64), begin_s, now_s)


def _in_use(start_s: Floats, end_s: Floats, gpus: Floats | Int64s) -> tuple[Floats, Floats]:
    """Times at which GPUs are taken or given back, ascending, those given back first; and GPUs in use from then on."""
    time_s = np.concatenate([start_s, end_s])
    change = np.concatenate([gpus, -np.asarray(gpus)]).astype(np.float64)
    order = np.lexsort((change, time_s))
    return time_s[order], np.cumsum(change[order])


class DemandIncrease:
    """How much a demand rose within the horizon, by day and time of the day. demand: (S,), a value a step."""

    def __init__(self, demand: Floats, power: PowerRules) -> None:
        self._power, self._day = power, int(DAY_S // STEP_S)
        self._ahead = int(power.horizon_s // STEP_S)
        if len(demand) > self._ahead:
            peaks = np.lib.stride_tricks.sliding_window_view(demand, self._ahead + 1).max(axis=1)
            self._rise = peaks - demand[: len(peaks)]
        else:
            self._rise = np.zeros(0)

    def at(self, step: int) -> float:
        """The rise to expect at a step, from whole days before it; NaN while too few are known."""
        near = int(BESIDE_S // STEP_S)
        around = np.arange(-near, near + 1)
        days = step - self._day * np.arange(1, DAYS + 1)
        rows = (days[:, None] + around).ravel()
        rows = rows[(rows >= 0) & (rows + self._ahead < step) & (rows < len(self._rise))]
        if len(rows) < LEAST_DAYS * len(around):
            return float("nan")
        return float(np.quantile(self._rise[rows], self._power.quantile, method="higher"))


def power_saving(
    demand: Floats, nodes: Floats, power: PowerRules, starts: tuple[Int64s, Floats] | None = None
) -> PowerSaving:
    """What powering nodes down would have saved.

    demand: nodes needed, by step. nodes: nodes there are, by step. starts: step of each job's start, and nodes needed
    from it on. What is decided at the end of a step knows nothing of later ones. Nodes that jobs need come at once, at
    the price of delayed starts; those that are expected to be needed are woken ahead.
    """
    rises = DemandIncrease(demand, power)
    up, off, wake_ups, short = nodes[0] if len(nodes) else 0.0, 0.0, 0, 0
    ups, least = np.zeros(len(demand)), np.zeros(len(demand))
    hold = int(power.hold_s // STEP_S) if power.forecast else 0
    for step, need in enumerate(np.minimum(np.ceil(demand), nodes)):
        up = ups[step] = min(up, nodes[step]) if step else nodes[0]
        if need > up:
            woken = min(need + power.buffer, nodes[step]) - up
            up, wake_ups, short = up + woken, wake_ups + int(woken), short + 1
        off += nodes[step] - up
        rise = rises.at(step) if power.forecast else 0.0
        least[step] = nodes[step] if np.isnan(rise) else min(np.ceil(need + rise), nodes[step])
        keep = min(least[max(step - hold, 0) : step + 1].max() + power.buffer, nodes[step])
        wake_ups += int(max(least[step] - up, 0.0))
        up = min(max(up, least[step]), keep)
    late = None if starts is None else int((np.minimum(np.ceil(starts[1]), nodes[starts[0]]) > ups[starts[0]]).sum())
    hour = STEP_S / 3_600
    busy = float(np.minimum(np.ceil(demand), nodes).sum()) * hour
    return PowerSaving(float(nodes.sum()) * hour, off * hour, wake_ups, short, late, (late or 0) * power.boot_s, busy)


def power_saving_of_runs(
    start_s: Floats, end_s: Floats, gpus: Int64s, nodes: int, node_gpus: float, power: PowerRules
) -> PowerSaving:
    """The same for runs on that many nodes of that many GPUs, as if packed onto the fewest."""
    if not len(start_s):
        return power_saving(np.zeros(0), np.zeros(0), power)
    begin_s, stop_s = float(start_s.min()), float(end_s.max())
    need = gpu_demand(start_s, end_s, gpus, begin_s, stop_s) / node_gpus
    time_s, use = _in_use(start_s, end_s, gpus)
    began = np.sort(start_s)
    step = np.minimum(np.floor((began - begin_s) / STEP_S).astype(np.int64), len(need) - 1)
    after = use[np.searchsorted(time_s, began, side="right") - 1] / node_gpus
    return power_saving(need, np.full(len(need), float(nodes)), power, (step, after))


def power_advice(snapshot: Snapshot, used: Floats, power: PowerRules) -> PowerAdvice:
    """Idle nodes that could be powered down now.

    used: most GPUs in use in each step up to now, see demand. What waiting jobs ask for stays up besides.
    """
    nodes, jobs = snapshot.nodes, snapshot.jobs
    idle = _idle(nodes)
    waiting = int(jobs.gpus[jobs.pending & (jobs.gpus > 0)].sum())
    rise = DemandIncrease(used, power).at(len(used))
    advice = PowerAdvice((), int(idle.sum()), rise, waiting)
    if not idle.any():
        return replace(advice, why="no GPU node is idle")
    if np.isnan(rise):
        return replace(advice, why=f"fewer than {LEAST_DAYS} days of the past are known: nothing can be forecast")
    spare = float(nodes.gpus[idle].sum()) - rise - waiting - power.buffer * int(nodes.gpus[idle].max())
    names = _spare_nodes(nodes, np.flatnonzero(idle), spare)
    return replace(advice, nodes=names, why="" if names else "every idle node may be needed")


def _idle(nodes: Nodes) -> Bools:
    """GPU nodes that are up, run no job, and are neither reserved nor planned. (N,) bool."""
    bare = nodes.is_state(NodeState.IDLE) & (nodes.gpus_used == 0) & (nodes.cpus_used == 0)
    return bare & (nodes.gpus > 0) & ~nodes.closed & ~nodes.is_state(_UNFIT)


def _spare_nodes(nodes: Nodes, rows: Int64s, spare: float) -> tuple[str, ...]:
    """Nodes of at most that many GPUs, always of the kind of which most idle ones are left, the last name first."""
    kinds: dict[str, list[int]] = {}
    for row in rows.tolist():
        kinds.setdefault(nodes.gpu_types[row], []).append(row)
    chosen = list[str]()
    while fit := [kind for kind, free in kinds.items() if free and nodes.gpus[free[-1]] <= spare]:
        row = kinds[max(fit, key=lambda kind: (len(kinds[kind]), kind))].pop()
        chosen.append(nodes.name[row])
        spare -= float(nodes.gpus[row])
    return tuple(sorted(chosen))


# The series from a file.

COLUMNS = ("time", "active", "total")


def read_series(path: Path) -> tuple[Floats, Floats]:
    """Most nodes in use, and most nodes there were, in each step of STEP_S. (S,), (S,).

    time: Unix seconds, or as 2017-10-09 07:01:55. A step without a row is as the one before.
    Raises InputError for a file that cannot be read, naming the line.
    """
    source, rows = InputFile(path), list[tuple[float, float, float]]()
    for line, row in csv_records(source, COLUMNS):
        try:
            text = row["time"]
            time_s = float(text) if text.replace(".", "", 1).isdecimal() else parse_time_s(text)
            rows.append((time_s, parse_number(row, "active"), parse_number(row, "total")))
        except (ValueError, AttributeError) as error:
            raise source.fail(str(error), line) from None
    if not rows:
        raise source.fail("holds no row")
    table = np.array(rows)
    step = np.floor((table[:, 0] - table[:, 0].min()) / STEP_S).astype(np.int64)
    return _by_step(step, table[:, 1]), _by_step(step, table[:, 2])


def _by_step(step: Int64s, values: Floats) -> Floats:
    most = np.full(int(step.max()) + 1, -np.inf)
    np.maximum.at(most, step, values)
    known = np.maximum.accumulate(np.where(np.isinf(most), 0, np.arange(len(most))))
    return np.asarray(most[known])
