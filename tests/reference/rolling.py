"""The naive twin of past_run_times.RollingHistory: every look goes over the whole past."""

from __future__ import annotations

from slurmsched.estimators.past_run_times import normalized_name


def decayed_mean_s(rows, half_life_s, columns, job):
    """Weighted mean of the executed times [s] of rows that are like the job in these columns, None without any.

    rows: (user, name, GPUs, executed [s], end [s]), ascending end. job: (user, name, GPUs).
    """

    def key(user, name, gpus):
        told = {"account": "", "user": user, "alike": normalized_name(name), "gpus": gpus}
        return [told[column] for column in columns]

    like = [row for row in rows if key(*row[:3]) == key(*job)]
    if not like:
        return None
    last_s = like[-1][4]
    weights = [2.0 ** ((row[4] - last_s) / half_life_s) for row in like]
    return sum(weight * row[3] for weight, row in zip(weights, like, strict=True)) / sum(weights)
