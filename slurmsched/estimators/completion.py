"""Missing entries of a table of throughputs from those that were measured."""

from __future__ import annotations

import numpy as np

from slurmsched.model.columns import Bools, Floats

ROUNDS = 100  # of alternating fits; on tables of a few types they settle in fewer
SPREAD = 0.1  # ridge that keeps a row with one entry from taking any factor


def completed(rates: Floats) -> Floats:
    """Rates with an estimate where there is none (NaN); what was measured stays. (K, T).

    In logarithms a rate is its row's mean plus its type's plus one product of factors, fitted by alternating least
    squares: rank one beyond the additive part. A type without any entry is as fast as the mean of the others.
    Source: the low-rank completion of Narayanan et al. (Gavel), OSDI '20 (after Quasar, ASPLOS '14); this
    form is ours. Raises ValueError for a row without any entry.
    """
    known = rates > 0
    if not known.any(axis=1).all():
        raise ValueError("a row without any rate cannot be completed")
    logs = np.log(np.where(known, rates, 1.0))
    row, type_ = _means(logs, known)
    rest = np.where(known, logs - row[:, None] - type_, 0.0)
    product = _rank_one(rest, known)
    return np.where(np.isnan(rates), np.exp(row[:, None] + type_ + product), rates)


def _means(logs: Floats, known: Bools) -> tuple[Floats, Floats]:
    """The additive part: of rows (K,) and of types (T,), which are 0 on the mean."""
    type_ = np.zeros(logs.shape[1])
    row = np.zeros(len(logs))
    for _ in range(ROUNDS):
        row = ((logs - type_) * known).sum(axis=1) / known.sum(axis=1)
        type_ = ((logs - row[:, None]) * known).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        type_ = np.where(known.any(axis=0), type_ - type_[known.any(axis=0)].mean(), 0.0)
    return ((logs - type_) * known).sum(axis=1) / known.sum(axis=1), type_


def _rank_one(rest: Floats, known: Bools) -> Floats:
    """The product of a factor of each row and one of each type nearest to the known entries of `rest`. (K, T)."""
    of_type = np.linspace(-1.0, 1.0, rest.shape[1])
    of_row = np.zeros(len(rest))
    for _ in range(ROUNDS):
        of_row = (rest * known) @ of_type / (known @ of_type**2 + SPREAD)
        of_type = (rest * known).T @ of_row / (known.T @ of_row**2 + SPREAD)
    return np.outer(of_row, of_type)


def rising(rates: Floats, estimated: Floats) -> Floats:
    """Rates by ascending number of GPUs in which no estimated one is below that of fewer GPUs. (K, T).

    estimated: (K, T) bool. A measured rate stays, even one that falls.
    """
    return np.where(estimated, np.maximum.accumulate(rates, axis=0), rates)
