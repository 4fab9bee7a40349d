"""Profiles of training: by hand on a small one, and on those that are shipped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from slurmsched.errors import ConfigError, InputError
from slurmsched.estimators.profiled_goodput import ProfiledGoodput, TrainingProfile, packed_gpus, training_profiles
from slurmsched.testing import snapshot

# two epochs; a step takes 1 s whatever the batch, and exchanges gradients for 0.2 s of it on more GPUs than one
STEPS = {
    ("1", 1, 1): np.array([[10.0, 1.0, 0.0], [20.0, 1.0, 0.0]]),
    ("2", 1, 2): np.array([[10.0, 1.0, 0.2], [20.0, 1.0, 0.2]]),
    ("11", 2, 2): np.array([[10.0, 2.0, 1.2], [20.0, 2.0, 1.2]]),
    ("", 4, 4): np.array([[10.0, 4.0, 3.2], [20.0, 4.0, 3.2]]),
}
# noise: none in the first epoch (a larger batch gains nothing), as much as it likes in the second (gains all)
GRADIENTS = np.array([[100.0, 1.0, 0.0], [200.0, 0.0, 1.0]])
SMALL = TrainingProfile("small", STEPS, {10: GRADIENTS, 40: GRADIENTS})


def test_rates__goodput_by_epoch() -> None:
    """Of 200 units of work: 1 a second without noise, and four times as many where a batch four times as large gains
    all: two passes of 20, of which one exchanges nothing."""
    assert SMALL.rates((1,), 10).tolist() == [1 / 200, 1 / 200]
    assert SMALL.rates((2,), 40) * 200 == pytest.approx([1.0, 4.0])
    assert SMALL.rates((1,), 40) * 200 == pytest.approx([0.5, 2.0])


def test_rates__the_best_batch_of_each_epoch() -> None:
    """The smallest while there is no noise, the largest when there is much."""
    assert SMALL.rates((2,)) * 200 == pytest.approx([1.0, 4.0])
    assert (SMALL.rates((2,)) >= SMALL.rates((2,), 20) - 1e-12).all()


def test_rates__between_what_was_measured() -> None:
    """On three nodes half way from two to four: 3 s a step."""
    assert SMALL.rates((1, 1, 1), 30)[0] * 200 == pytest.approx(1 / 3.0)


def test_rates__none_where_it_cannot_run() -> None:
    """Five GPUs have less than the least batch each."""
    assert SMALL.rates((1, 4)).tolist() == [0.0, 0.0]


def test_run_time__is_work_over_rates() -> None:
    """100 s in each epoch, in whole seconds."""
    assert SMALL.run_time_s(1, 10) == 200.0
    assert (np.diff(SMALL.epoch_ends, prepend=0.0) / SMALL.rates((1,), 10)).sum() == pytest.approx(200.0)


def test_epoch__changes_at_its_end() -> None:
    """The first ends at half the work, a last one does not."""
    assert [SMALL.epoch(done) for done in (0.0, 0.4999, 0.5, 0.5 - 1e-12, 1.0)] == [0, 0, 1, 1, 1]


def test_packed__least_node_first() -> None:
    """As the profiles name placements."""
    assert [packed_gpus(gpus) for gpus in (1, 4, 6, 8)] == [(1,), (4,), (2, 4), (4, 4)]


def test_shipped_profiles__are_six_models_that_gain_from_gpus() -> None:
    """To one node each model trains faster with each GPU more, in every epoch and by its best batch; where its nodes
    begin does not matter."""
    known = training_profiles("pollux")
    assert sorted(known) == ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"]
    for profile in known.values():
        mean = [profile.rates(packed_gpus(gpus)).mean() for gpus in range(1, 5)]
        assert mean == sorted(mean)
        assert profile.rates((1, 4)).tolist() == profile.rates((4, 1)).tolist()


def test_profiles__say_what_is_missing(tmp_path: Path) -> None:
    """A folder without applications."""
    with pytest.raises(InputError, match="one folder an application"):
        training_profiles(str(tmp_path / "nowhere"))


def test_profiled_goodput__is_over_the_mean_as_asked_for() -> None:
    """In sum over the epochs one GPU at its own batch; more GPUs are faster, and so are late epochs, with more noise; a
    model without a profile has no curve."""
    hints = ("model=imagenet batch=1600", "model=imagenet batch=1600 progress=9/10", "model=other batch=8", "batch=4")
    given = snapshot([{"gpus": 1, "comment": f"slurmsched: {text}"} for text in hints])
    early, late, other, none = (ProfiledGoodput().curve(given, row, np.array([1, 4, 16])) for row in range(4))
    assert early is not None and late is not None and other is none is None
    assert early[0] < 1.0 < late[0]
    assert (np.diff(early) > 0).all() and (late > early).all()
    adapted = ProfiledGoodput(adapt=True).curve(given, 1, np.array([1, 4, 16]))
    assert adapted is not None and (adapted >= late * 0.99).all() and adapted[2] > late[2]


def test_profiled_goodput__refuses_a_node_without_gpus() -> None:
    """As a number of GPUs."""
    with pytest.raises(ConfigError, match="at least 1"):
        ProfiledGoodput(per_node=0)
