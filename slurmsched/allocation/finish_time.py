"""Finish-time fairness: time in the shared cluster against time alone on a fair part of it, of jobs and of apps.

Source: Mahajan et al. (Themis), NSDI '20; Narayanan et al. (Gavel), OSDI '20, for shares of the least rho.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.allocation.job_memory import recall, remembered
from slurmsched.allocation.solver import bisect_least
from slurmsched.estimators.past_run_times import normalized_name
from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.model.ordering import arrival_s
from slurmsched.model.states import FINISHED


def contending(snapshot: Snapshot) -> Bools:
    """Jobs that hold GPUs or wait for some: among these the cluster is divided. (N,) bool."""
    jobs = snapshot.jobs
    return (jobs.pending | jobs.running) & ~jobs.is_state(FINISHED) & (jobs.gpus > 0)


def stretch(snapshot: Snapshot) -> Floats:
    """How many times longer each job runs on 1/N of the GPUs, N jobs contending, than on all it asks for. (N,) >= 1.

    A gang larger than its part is taken to hold its GPUs for the part of the time that it pays for.
    Source: Mahajan et al. (Themis), NSDI '20, for 1/N; Narayanan et al. (Gavel), OSDI '20, for gangs in turns.
    """
    gpus = float(snapshot.nodes.gpus[~snapshot.nodes.down].sum())
    count = int(contending(snapshot).sum())
    return np.maximum(snapshot.jobs.gpus * count / gpus, 1.0) if gpus else np.ones(len(snapshot.jobs))


# Isolated time of finished work.

ISOLATED_KEY = "isolated"  # in a carry
_ISOLATED_COLUMNS = ("isolated_s", "remaining_s", "rate")


def isolated_so_far(snapshot: Snapshot, remaining_s: Floats, rate: Floats) -> tuple[Floats, dict[str, Any]]:
    """Isolated time of what is done (N,) [s], and what to remember until the next allocation.

    remaining_s: (N,) run time still to come [s].
    rate: (N,) share of its work that a job does in a second, in seconds of run time. It is for its own part of the
        cluster as things are now.

    What was done since the last allocation counts at the rate then.
    Source: `finish_time_fairness` of Gavel's released code (c4fa400).
    """
    carried: Any = snapshot.carry.get(ISOLATED_KEY)
    known = recall(snapshot.jobs, carried if isinstance(carried, Mapping) else {}, _ISOLATED_COLUMNS)
    new = np.isnan(known["rate"])
    made_s = np.where(new, 0.0, known["remaining_s"] - remaining_s)
    isolated_s = np.where(new, 0.0, known["isolated_s"] + made_s / np.where(new, 1.0, np.maximum(known["rate"], 1e-12)))
    columns = dict(zip(_ISOLATED_COLUMNS, (isolated_s, remaining_s, rate), strict=True))
    return isolated_s, dict(remembered(snapshot.jobs, columns))


# Rho and shares of time.

_ISOLATED_OF_JOBS = ("isolated_s", "executed_s", "stretch")  # in a carry, by job


@dataclass(frozen=True, slots=True)
class FinishTimes:
    """By row of jobs, (N,) [s].

    elapsed_s: since submission.
    remaining_s: run time to come.
    isolated_s: whole time on 1/N of the cluster.
    """

    elapsed_s: Floats
    remaining_s: Floats
    isolated_s: Floats

    @property
    def rho(self) -> Floats:
        """Shared time over isolated time if the job ran from now on. (N,)."""
        return (self.elapsed_s + self.remaining_s) / np.maximum(self.isolated_s, 1e-9)


def isolated_columns(snapshot: Snapshot) -> dict[str, Floats]:
    """Isolated time of the work done so far, counted with the N of each look, and what to remember. (N,) each."""
    jobs, known, now = snapshot.jobs, recall(snapshot.jobs, snapshot.carry, _ISOLATED_OF_JOBS), stretch(snapshot)
    new = np.isnan(known["isolated_s"])
    done_s = jobs.executed_s - np.where(new, 0.0, known["executed_s"])
    isolated_s = np.where(new, 0.0, known["isolated_s"]) + done_s * np.where(new, now, known["stretch"])
    return dict(zip(_ISOLATED_OF_JOBS, (isolated_s, jobs.executed_s, now), strict=True))


def least_worst_shares(snapshot: Snapshot, times: FinishTimes) -> Floats:
    """Shares of time at which the largest rho of those that contend is least, by bisection. (N,) in [0, 1]."""
    gpus = snapshot.jobs.gpus.astype(np.float64)
    who, capacity = contending(snapshot), float(snapshot.nodes.gpus[~snapshot.nodes.down].sum())

    def shares(rho: float) -> Floats:
        spare_s = rho * times.isolated_s - times.elapsed_s
        return np.where(who, np.divide(times.remaining_s, spare_s, out=np.full(len(gpus), 2.0), where=spare_s > 0), 0.0)

    def feasible(rho: float) -> bool:
        found = shares(rho)
        return bool((found <= 1.0).all() and found @ gpus <= capacity)

    high = max(float(np.max(times.rho, initial=0.0, where=who)), 1e-6)
    for _ in range(64):
        if feasible(high):
            return np.minimum(shares(bisect_least(feasible, 0.0, high)), 1.0)
        high *= 2
    return who.astype(np.float64)


# Apps: jobs that count once, such as a hyper-parameter search.
#
# Source: Mahajan et al. (Themis), NSDI '20, where an app is a set of jobs that share what it wins. Ours: jobs of one
# user with similar names are one app. It ends with its last job, because Slurm runs them all to their end.

APPS_KEY = "apps"  # in a carry: by name, first submission, isolated time of what is done, and its rate
EXECUTED = ("executed_s",)  # in a carry, by job


@dataclass(frozen=True, slots=True, eq=False)
class Apps:
    """The apps that the jobs belong to.

    of: (N,) int64, the app of each job.
    times: of each app, (K,).
    names: what each is known by, (K,).
    carry: to take back at the next look.
    """

    of: Int64s
    times: FinishTimes
    names: tuple[str, ...]
    carry: Mapping[str, Any]

    @property
    def of_jobs(self) -> FinishTimes:
        """The times of each job's app, (N,) each."""
        return FinishTimes(
            *(column[self.of] for column in (self.times.elapsed_s, self.times.remaining_s, self.times.isolated_s))
        )


def apps(snapshot: Snapshot, remaining_s: Floats) -> Apps:
    """The apps of a snapshot. remaining_s: (N,) run time still to come of each job, finite."""
    jobs, who = snapshot.jobs, contending(snapshot)
    names, of = _app_of_jobs(snapshot)
    gpus = jobs.gpus * np.where(jobs.pending, np.maximum(jobs.array_tasks, 1), 1).astype(np.float64)
    longest_s = np.zeros(len(names))
    np.maximum.at(longest_s, of[who], remaining_s[who])
    asked, work_gpu_s = (np.bincount(of[who], each[who], len(names)) for each in (gpus, gpus * remaining_s))
    cluster = float(snapshot.nodes.gpus[~snapshot.nodes.down].sum())
    part = cluster / max(int((asked > 0).sum()), 1)
    rate = 1.0 / np.maximum(np.minimum(asked, part or np.inf), 1e-9)
    carried, executed_s = _remembered_apps(snapshot.carry), recall(jobs, snapshot.carry, EXECUTED)["executed_s"]
    before = np.array([carried.get(name, (np.inf, 0.0, now)) for name, now in zip(names, rate.tolist(), strict=True)])
    before = before.reshape(len(names), 3)
    done_gpu_s = np.where(jobs.finished, 0.0, (jobs.executed_s - np.nan_to_num(executed_s)) * jobs.gpus)
    done_s = before[:, 1] + np.bincount(of, done_gpu_s, len(names)) * before[:, 2]
    came_s = before[:, 0].copy()
    np.minimum.at(came_s, of[who], np.nan_to_num(arrival_s(jobs)[who], nan=snapshot.now_s))
    elapsed_s = np.where(asked > 0, np.maximum(snapshot.now_s - came_s, 0.0), 0.0)
    times = FinishTimes(elapsed_s, longest_s, done_s + np.maximum(longest_s, work_gpu_s / max(part, 1e-9)))
    here = np.isfinite(came_s) & (np.bincount(of, ~jobs.finished, len(names)) > 0)
    rate = np.where(asked > 0, rate, before[:, 2])  # who only stands still, suspended or on its way out, keeps its own
    rows = zip(names, came_s.tolist(), done_s.tolist(), rate.tolist(), here.tolist(), strict=True)
    return Apps(of, times, names, {APPS_KEY: {name: values for name, *values, known in rows if known}})


@dataclass(frozen=True, slots=True, eq=False)
class AppBids:
    """What apps bid for.

    app: (B,).
    members: rows of each that may have GPUs.
    gpus: (B, C) of each bid.
    speed: (B, C) share of what the app asks for that it then runs on, 0 = no bid.
    without: (B, 1) share that it keeps in any case.
    """

    app: Int64s
    members: list[Int64s]
    gpus: Int64s
    speed: Floats
    without: Floats

    def first(self, bidder: int, gpus: Int64s, bid: int) -> Int64s:
        """Rows of the jobs that one of its bids is for."""
        members = self.members[bidder]
        return members[: int(np.searchsorted(np.cumsum(gpus[members]), self.gpus[bidder, bid])) + 1]


def app_bids(apps: Apps, rows: Int64s, gpus: Int64s, held: Bools) -> AppBids:
    """Bids of each app for its first job, its first two, four and so on, and all of them.

    rows: of jobs that may have GPUs, in their order, which is that of the apps too: of equal bids the first wins.
    gpus: (N,). held: (N,) jobs that keep theirs.
    """
    bidders = np.array(list(dict.fromkeys(apps.of[rows].tolist())), np.int64)
    members = [rows[apps.of[rows] == bidder] for bidder in bidders]
    most = max((len(each).bit_length() + 1 for each in members), default=1)
    bids, speed = np.ones((len(bidders), most), np.int64), np.zeros((len(bidders), most))
    keeps = np.bincount(apps.of[held], gpus[held], len(apps.names))[bidders]
    whole = keeps + np.array([float(gpus[each].sum()) for each in members])
    for bidder, each in enumerate(members):
        total = np.cumsum(gpus[each])
        counts = np.array(sorted({min(1 << step, len(each)) for step in range(most)}))
        bids[bidder, : len(counts)] = total[counts - 1]
        speed[bidder, : len(counts)] = (total[counts - 1] + keeps[bidder]) / whole[bidder]
    return AppBids(bidders, members, bids, speed, (keeps / np.maximum(whole, 1.0))[:, None])


def _app_of_jobs(snapshot: Snapshot) -> tuple[tuple[str, ...], Int64s]:
    """Names of apps, ascending, and the app of each job. A job without a name is an app of its own."""
    jobs = snapshot.jobs
    name = [normalized_name(each) for each in jobs.name.names]
    texts = [
        f"{jobs.account.names[account]}/{jobs.user.names[user]}/{name[row] or f'job {job}'}"
        for account, user, row, job in zip(jobs.account.codes.tolist(), jobs.user.codes.tolist(),
                                           jobs.name.codes.tolist(), jobs.job_id.tolist(), strict=True)
    ]  # fmt: skip
    names = tuple(sorted(set(texts)))
    place = {text: row for row, text in enumerate(names)}
    return names, np.array([place[text] for text in texts], np.int64)


def _remembered_apps(carry: Mapping[str, Any]) -> dict[str, tuple[float, float, float]]:
    """What is remembered of apps; nothing of a carry that another policy left."""
    found = carry.get(APPS_KEY)
    return {str(name): tuple(map(float, row)) for name, row in found.items()} if isinstance(found, Mapping) else {}  # type: ignore[misc]


# A partial-allocation auction over bid tables.

_GAIN_STEP = 1e-9  # of a gain; less is rounding


def auction(gains: Floats, gpus: Int64s, offered: int) -> tuple[Int64s, Floats]:
    """Which of its bids each bidder wins, (B,), -1 for none, and the part of a lease that it keeps, (B,) in (0, 1].

    gains: (B, K), by how much log(1 / rho) of a bidder grows by each of its bids; one that is not above 0 is no bid.
    gpus: (B, K) GPUs of each bid, at least 1. Of several that are equally good the first bid counts.
    The product of all 1 / rho is made largest, exactly, by dynamic programming over the GPUs offered. A winner keeps
    the product of the others' values with it over that without it, which is the hidden payment of the mechanism.
    Source: Cole et al., EC '13, as used by Mahajan et al. (Themis), NSDI '20. Taking the payment from the length of the
    lease, since a gang is whole, is ours.
    """
    gains = np.rint(gains / _GAIN_STEP)  # sums of whole numbers are exact, so that ties are ties in any order
    below = _best_sums(gains, gpus, offered)
    above = _best_sums(gains[::-1], gpus[::-1], offered)[::-1]
    wins, part, remaining = np.full(len(gains), -1, np.int64), np.ones(len(gains)), offered
    for bidder in range(len(gains) - 1, -1, -1):
        for bid in np.flatnonzero((gains[bidder] > 0) & (gpus[bidder] <= remaining)).tolist():
            then = remaining - int(gpus[bidder, bid])
            if below[bidder, then] + gains[bidder, bid] == below[bidder + 1, remaining] > below[bidder, remaining]:
                wins[bidder], remaining = bid, then
                break
    best = below[-1, offered]
    for bidder in np.flatnonzero(wins >= 0).tolist():
        without = float(np.max(below[bidder] + above[bidder + 1][::-1]))
        part[bidder] = np.exp(min(best - gains[bidder, wins[bidder]] - without, 0.0) * _GAIN_STEP)
    return wins, part


def _best_sums(gains: Floats, gpus: Int64s, offered: int) -> Floats:
    """Largest sum of gains of the first b bidders on c GPUs. (B + 1, offered + 1)."""
    table = np.zeros((len(gains) + 1, offered + 1))
    for bidder, (row, sizes) in enumerate(zip(gains.tolist(), gpus.tolist(), strict=True)):
        table[bidder + 1] = table[bidder]
        for gain, size in zip(row, sizes, strict=True):
            if size <= offered and gain > 0:
                with_it = table[bidder, : offered + 1 - size] + gain
                table[bidder + 1, size:] = np.maximum(table[bidder + 1, size:], with_it)
    return table
