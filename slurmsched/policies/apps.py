"""Apps of several jobs: a search for hyper-parameters counts once, has one rho, and bids with as many jobs as it likes.

Source: Mahajan et al. (Themis), NSDI '20, where an app is a set of jobs that share what it wins. Ours: jobs of one user
whose names are alike are one app, which is done when the last of them is, as Slurm runs them all to their end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from slurmsched.estimators.groups import alike
from slurmsched.model import Snapshot
from slurmsched.model.columns import Bools, Floats, Int64s
from slurmsched.policies.finish_time import Times
from slurmsched.policies.isolated import contending
from slurmsched.policies.memory import recall
from slurmsched.policies.order import arrival_s

KEY = "apps"  # in a carry: by name, first submission, isolated time of what is done, and its rate
EXECUTED = ("executed_s",)  # in a carry, by job


@dataclass(frozen=True, slots=True, eq=False)
class Apps:
    """of: (N,) int64, the app of each job. times: of each app, (K,). names: what each is known by, (K,). carry: to take
    back at the next look.
    """

    of: Int64s
    times: Times
    names: tuple[str, ...]
    carry: Mapping[str, Any]

    @property
    def of_jobs(self) -> Times:
        """The times of each job's app, (N,) each."""
        return Times(*(column[self.of] for column in (self.times.elapsed_s, self.times.left_s, self.times.isolated_s)))


def apps(snapshot: Snapshot, left_s: Floats) -> Apps:
    """The apps of a snapshot. left_s: (N,) run time still to come of each job, finite."""
    jobs, who = snapshot.jobs, contending(snapshot)
    names, of = _named(snapshot)
    gpus = jobs.gpus * np.where(jobs.pending, np.maximum(jobs.array_tasks, 1), 1).astype(np.float64)
    longest_s = np.zeros(len(names))
    np.maximum.at(longest_s, of[who], left_s[who])
    asked, work_gpu_s = (np.bincount(of[who], each[who], len(names)) for each in (gpus, gpus * left_s))
    cluster = float(snapshot.nodes.gpus[~snapshot.nodes.down].sum())
    part = cluster / max(int((asked > 0).sum()), 1)
    rate = 1.0 / np.maximum(np.minimum(asked, part or np.inf), 1e-9)
    kept, executed_s = _kept(snapshot.carry), recall(jobs, snapshot.carry, EXECUTED)["executed_s"]
    before = np.array([kept.get(name, (np.inf, 0.0, now)) for name, now in zip(names, rate.tolist(), strict=True)])
    before = before.reshape(len(names), 3)
    done_gpu_s = np.where(jobs.finished, 0.0, (jobs.executed_s - np.nan_to_num(executed_s)) * jobs.gpus)
    done_s = before[:, 1] + np.bincount(of, done_gpu_s, len(names)) * before[:, 2]
    came_s = before[:, 0].copy()
    np.minimum.at(came_s, of[who], np.nan_to_num(arrival_s(jobs)[who], nan=snapshot.now_s))
    elapsed_s = np.where(asked > 0, np.maximum(snapshot.now_s - came_s, 0.0), 0.0)
    times = Times(elapsed_s, longest_s, done_s + np.maximum(longest_s, work_gpu_s / max(part, 1e-9)))
    here = np.isfinite(came_s) & (np.bincount(of, ~jobs.finished, len(names)) > 0)
    rate = np.where(asked > 0, rate, before[:, 2])  # who only stands still, suspended or on its way out, keeps its own
    rows = zip(names, came_s.tolist(), done_s.tolist(), rate.tolist(), here.tolist(), strict=True)
    return Apps(of, times, names, {KEY: {name: values for name, *values, known in rows if known}})


@dataclass(frozen=True, slots=True, eq=False)
class AppBids:
    """What apps bid for. app: (B,). members: rows of each that may have GPUs. gpus: (B, C) of each bid. speed: (B, C)
    share of what the app asks for that it then runs on, 0 = no bid. without: (B, 1) share that it keeps in any case.
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


def _named(snapshot: Snapshot) -> tuple[tuple[str, ...], Int64s]:
    """Names of apps, ascending, and the app of each job. A job without a name is an app of its own."""
    jobs = snapshot.jobs
    name = [alike(each) for each in jobs.name.names]
    texts = [
        f"{jobs.account.names[account]}/{jobs.user.names[user]}/{name[row] or f'job {job}'}"
        for account, user, row, job in zip(jobs.account.codes.tolist(), jobs.user.codes.tolist(),
                                           jobs.name.codes.tolist(), jobs.job_id.tolist(), strict=True)
    ]  # fmt: skip
    names = tuple(sorted(set(texts)))
    place = {text: row for row, text in enumerate(names)}
    return names, np.array([place[text] for text in texts], np.int64)


def _kept(carry: Mapping[str, Any]) -> dict[str, tuple[float, float, float]]:
    """What is remembered of apps; nothing of a carry that another policy left."""
    found = carry.get(KEY)
    return {str(name): tuple(map(float, row)) for name, row in found.items()} if isinstance(found, Mapping) else {}  # type: ignore[misc]
