"""How the loss of jobs falls with their progress: curves through what they told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slurmsched.model.columns import Bools, Floats, Int64s

# Limits that are tried: of the loss at the end, over the least loss reported.
LIMITS = np.array([0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.94, 0.97])
DECAY = 0.8  # weight of a point over that of the next one
LEAST_POINTS = 4  # for a curve; fewer points give a straight line
_TINY = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class LossCurves:
    """A curve of each job: its loss at progress k.

    power: (J,) whether the loss is 1 / (a k^2 + b k + c) + limit; otherwise it is exp(a k^2 + b k + c) + limit.
    terms: (J, 3) a, b and c.
    limit: (J,) of the loss.
    line: (J,) loss that a job without a curve loses by all its work.
    latest: (J,) the last loss reported.
    known: (J,) whether there is a curve.
    """

    power: Bools
    terms: Floats
    limit: Floats
    line: Floats
    latest: Floats
    known: Bools
    scale: Floats

    @classmethod
    def of(cls, done: Floats, loss: Floats) -> LossCurves:
        """The curves that fit best; later points count more.

        done: (J, P) progress, 0 to 1, of each point, oldest first. loss: (J, P), NaN where there is none. Source: Zhang
        et al. (SLAQ), SoCC '17, section on predicting quality: one family of sublinear and one of linear or faster
        convergence, and weights that fade. Ours: a grid of limits, and least squares for the rest.
        """
        reported = np.isfinite(loss)
        points = reported.sum(axis=1)
        largest = np.where(reported, np.abs(loss), 0.0).max(axis=1, initial=0.0)
        scale = np.where(largest > 0, largest, 1.0)
        loss = loss / scale[:, None]
        later = np.cumsum(reported[:, ::-1], axis=1)[:, ::-1] - reported  # points after each
        weight = np.where(reported, DECAY**later, 0.0)
        best, terms, limit, power = _best_fit(
            np.where(reported, done, 0.0), np.where(reported, loss, 1.0), reported, weight
        )
        known = (points >= LEAST_POINTS) & np.isfinite(best)
        last = _at_place(loss, _last_point(reported))
        return cls(
            power, terms, limit, _straight_loss(done, loss, reported), np.where(points > 0, last, np.nan), known, scale
        )

    def fall(self, done: Floats, then: Floats) -> Floats:
        """How much the loss falls from one progress to others, at least 0. NaN for a job that told none. (J, S).

        done: (J,). then: (J, S).
        """
        before, after = self._at(done[:, None]), self._at(then)
        by_line = self.line[:, None] * (then - done[:, None])
        made = np.where(self.known[:, None], before - after, by_line)
        return np.clip(made, 0.0, np.maximum(self.latest, 0.0)[:, None]) * self.scale[:, None]

    def _at(self, done: Floats) -> Floats:
        square, slope, start = (each[:, None] for each in self.terms.T)
        inner = square * done**2 + slope * done + start
        with np.errstate(over="ignore"):
            return np.where(self.power[:, None], 1.0 / np.maximum(inner, _TINY), np.exp(inner)) + self.limit[:, None]


def _best_fit(done: Floats, loss: Floats, reported: Bools, weight: Floats) -> tuple[Floats, Floats, Floats, Bools]:
    """Least sum of squares of each job, and the terms, limit and family that have it. (J,), (J, 3), (J,), (J,)."""
    jobs = len(loss)
    best, terms = np.full(jobs, np.inf), np.zeros((jobs, 3))
    limit, power = np.zeros(jobs), np.zeros(jobs, np.bool_)
    least = np.where(reported, loss, np.inf).min(axis=1, initial=np.inf)
    for share in LIMITS.tolist():
        end = np.where(np.isfinite(least), least, 0.0) * share
        over = np.maximum(loss - end[:, None], _TINY)
        for by_power, degree in ((True, 2), (True, 1), (False, 1)):
            target = 1.0 / over if by_power else np.log(over)
            scale = over**4 if by_power else over**2  # so that errors count as errors of the loss
            found = _polynomial(done, target, weight * scale, degree)
            inner = found[:, 0, None] * done**2 + found[:, 1, None] * done + found[:, 2, None]
            falls = _falls(found, done, reported, by_power)
            made = 1.0 / np.maximum(inner, _TINY) if by_power else np.exp(np.minimum(inner, 50.0))
            error = np.where(falls, (weight * (made - over) ** 2).sum(axis=1), np.inf)
            better = error < best - _TINY
            best, limit = np.where(better, error, best), np.where(better, end, limit)
            terms, power = np.where(better[:, None], found, terms), np.where(better, by_power, power)
    return best, terms, limit, power


def _polynomial(done: Floats, target: Floats, weight: Floats, degree: int) -> Floats:
    """Terms of the square, the line and the constant by weighted least squares. (J, 3)."""
    powers = np.stack([done**each for each in range(degree, -1, -1)], axis=2)
    scaled = powers * (weight / np.maximum(weight.max(axis=1, keepdims=True, initial=0.0), _TINY))[:, :, None]
    normal = np.einsum("jpa,jpb->jab", scaled, powers) + 1e-10 * np.eye(degree + 1)
    right = np.einsum("jpa,jp->ja", scaled, target)
    found = np.linalg.solve(normal, right[:, :, None])[:, :, 0]
    return np.concatenate([np.zeros((len(done), 2 - degree)), found], axis=1)


def _falls(terms: Floats, done: Floats, reported: Bools, by_power: bool) -> Bools:
    """Whether the curve falls from the last point to the end, and is one there. (J,)."""
    last = _at_place(done, _last_point(reported))
    slopes = np.stack([2 * terms[:, 0] * each + terms[:, 1] for each in (last, np.ones(len(done)))])
    if not by_power:
        return np.asarray((slopes <= 0).all(axis=0))
    above = terms[:, 0] * last**2 + terms[:, 1] * last + terms[:, 2] > _TINY
    return np.asarray((slopes >= 0).all(axis=0) & above)


def _last_point(reported: Bools) -> Int64s:
    """Place of the last point of each job. (J,)."""
    return np.asarray(reported.shape[1] - 1 - reported[:, ::-1].argmax(axis=1))


def _at_place(table: Floats, place: Int64s) -> Floats:
    return np.asarray(table[np.arange(len(table)), place])


def _straight_loss(done: Floats, loss: Floats, reported: Bools) -> Floats:
    """Loss over progress between the last two points; without two, the last loss by all the work. (J,)."""
    last = _last_point(reported)
    fewer = reported & (np.arange(reported.shape[1]) < last[:, None])
    two = fewer.any(axis=1)
    before = _last_point(fewer)
    step = np.maximum(_at_place(done, last) - _at_place(done, before), _TINY)
    slope = (_at_place(loss, before) - _at_place(loss, last)) / step
    return np.where(two, np.maximum(slope, 0.0), np.nan_to_num(_at_place(loss, last)))
