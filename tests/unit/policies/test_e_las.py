"""E-LAS: attained service, less for jobs that are nearly through."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.errors import ConfigError
from slurmsched.policies.e_las import ELas
from slurmsched.policies.las import Las
from slurmsched.testing import check_policy, snapshot

SIX = ((1, 600.0, ""), (2, 600.0, "45/50"), (1, 600.0, "30/60"), (4, 600.0, "3/4"), (1, 0.0, ""), (2, 300.0, "0/10"))


def six(**others):
    return snapshot(
        [{"gpus": gpus, "executed_s": ran_s, "comment": f"slurmsched: progress={done}" if done else ""}
         for gpus, ran_s, done in SIX], now_s=900.0, **others,
    )  # fmt: skip


def test_e_las__six_jobs_by_hand() -> None:
    """600, 120, 300, 600, 0 and 600 GPU s as on the page."""
    ranking = ELas(60.0).rank(six())
    assert ranking.why["counted"].tolist() == [600.0, 120.0, 300.0, 600.0, 0.0, 600.0]
    assert (ranking.order + 1).tolist() == [5, 2, 3, 1, 4, 6]
    assert ranking.notes == ("2 of 6 jobs report no progress: ordered by attained service alone",)


def test_e_las__without_progress_it_is_las() -> None:
    """Nobody tells epochs: the order of continuous least attained service."""
    given = snapshot([{"gpus": 1 + row % 3, "executed_s": 700.0 * (row * 5 % 7)} for row in range(7)])
    assert ELas(60.0).rank(given).order.tolist() == Las(quantum_gpu_s=60.0).rank(given).order.tolist()


def test_e_las__looks_again_when_a_multiple_is_reached() -> None:
    """2 GPUs with a tenth of the epochs left count 0.2 GPU s a second: the next 60 are reached 300 s from 120 GPU s."""
    given, policy = six(), ELas(60.0)
    runs = np.arange(6) == 1
    assert policy.next_change_s(given, policy.rank(given), runs) == pytest.approx(900.0 + 300.0)
    assert ELas(0.0).next_change_s(given, ELas(0.0).rank(given), runs) == 900.0


def test_e_las__conforms() -> None:
    """Every rule that all policies keep."""
    check_policy(ELas(60.0), [six()])


def test_e_las__refuses_a_negative_quantum() -> None:
    """A ConfigError that names it."""
    with pytest.raises(ConfigError) as caught:
        ELas(-1.0)
    assert caught.value.key == "policy.quantum_gpu_s"
