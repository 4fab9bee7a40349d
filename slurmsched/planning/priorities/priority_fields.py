"""Nice and site factor: how a priority becomes a value of the job, and the action that writes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model import Jobs, SetNice, SetSiteFactor
from slurmsched.model.columns import Bools, Floats, Int64s

MOST_PRIORITY = 2_147_483_645  # slurm/slurm.h, NICE_OFFSET - 3: the most that Slurm's tools take, either sign


@dataclass(frozen=True, slots=True)
class NiceField:
    """Lower nice, sooner start. What the user chose stays in: value = base nice - boost.

    A site factor that an operator gave a job moves it on top of that, as the user's own nice does.
    """

    name: str = "nice"

    def now(self, jobs: Jobs) -> Int64s:
        """The value in Slurm. (N,) int64."""
        return jobs.nice

    def hidden(self, jobs: Jobs) -> Bools:
        """Jobs whose value Slurm does not show. (N,) bool."""
        return np.zeros(len(jobs), np.bool_)

    def boost(self, jobs: Jobs) -> Int64s:
        """What slurmsched adds to each priority now. (N,) int64."""
        return jobs.base_nice - jobs.nice

    def factors(self, jobs: Jobs) -> Floats:
        """Priority without user's nice, site factor and our boost. (N,) float64."""
        return _factors(jobs)

    def others(self, jobs: Jobs) -> Int64s:
        """What users and operators take off each priority: a nice of their own, less a site factor. (N,) int64."""
        return jobs.base_nice - jobs.site_factor

    def value(self, jobs: Jobs, boost: Int64s) -> Int64s:
        """The nice that gives each job this boost. (N,) int64."""
        return np.clip(jobs.base_nice - boost, -MOST_PRIORITY, MOST_PRIORITY)

    def action(self, jobs: Jobs, row: int, new: int, reason: str) -> SetNice:
        """The write of value `new` to the job in this row."""
        return SetNice(*jobs.id_and_submit(row), reason, int(jobs.nice[row]), new, int(jobs.base_nice[row]))


@dataclass(frozen=True, slots=True)
class SiteFactorField:
    """Higher site factor, sooner start. The user's nice is not touched at all."""

    name: str = "site_factor"

    def now(self, jobs: Jobs) -> Int64s:
        """The value in Slurm, 0 where sprio does not list the job. (N,) int64."""
        return jobs.site_factor

    def hidden(self, jobs: Jobs) -> Bools:
        """Jobs whose value Slurm does not show. (N,) bool."""
        return np.isnan(jobs.base_priority) & (jobs.site_factor == 0)  # sprio lists eligible jobs only

    def boost(self, jobs: Jobs) -> Int64s:
        """What slurmsched adds to each priority now: all of the site factor. (N,) int64."""
        return jobs.site_factor

    def factors(self, jobs: Jobs) -> Floats:
        """Priority without user's nice, site factor and our boost. (N,) float64."""
        return _factors(jobs)

    def others(self, jobs: Jobs) -> Int64s:
        """What users take off each priority: their nice. (N,) int64."""
        return jobs.nice

    def value(self, jobs: Jobs, boost: Int64s) -> Int64s:
        """The site factor that gives each job this boost. (N,) int64."""
        return np.clip(boost, -MOST_PRIORITY, MOST_PRIORITY)

    def action(self, jobs: Jobs, row: int, new: int, reason: str) -> SetSiteFactor:
        """The write of value `new` to the job in this row; its base is 0."""
        return SetSiteFactor(*jobs.id_and_submit(row), reason, int(jobs.site_factor[row]), new, 0)


PriorityField = NiceField | SiteFactorField
PRIORITY_FIELDS: dict[str, PriorityField] = {lever.name: lever for lever in (NiceField(), SiteFactorField())}


def _factors(jobs: Jobs) -> Floats:
    """Weighted factors of each job; worked back from its priority where Slurm did not list them."""
    from_priority = np.maximum(jobs.priority + jobs.nice - jobs.site_factor, 0)
    return np.where(np.isnan(jobs.base_priority), from_priority, jobs.base_priority)
