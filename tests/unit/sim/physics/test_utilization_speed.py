"""Speed of two jobs on the same GPUs by their tiers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmsched.errors import ConfigError, InputError
from slurmsched.model import Labels
from slurmsched.sim.physics.gpu_speed import UtilizationSpeed
from slurmsched.sim.physics.interconnect_speed import DistanceSpeed, RingBandwidthSpeed, SocketSpeed
from slurmsched.testing import check_physics
from tests.unit.sim.physics.places import holding

PHYSICS = UtilizationSpeed(tiny=("ncf",), medium=("resnet",))


def speeds(places: Any, models: list[str], physics: UtilizationSpeed = PHYSICS) -> list[float]:
    given, held = holding(places)
    given = replace(given, jobs=given.jobs.with_columns(name=Labels.of(models)))
    return physics.speed(given, held).tolist()


def test_tiers__conforms() -> None:
    """The rules of all physics."""
    check_physics(PHYSICS, ("NCF-1", "bert"))


@pytest.mark.parametrize(
    ("models", "kept"),
    [(["NCF", "ncf"], 0.95), (["ncf", "resnet50"], 0.9), (["ResNet-18", "resnet50"], 0.85), (["ncf", "bert"], 0.85),
     (["resnet", "bert"], 0.7), (["bert", "gpt"], 0.55)],
)  # fmt: skip
def test_tiers__by_the_sum_of_both_scores(models: list[str], kept: float) -> None:
    """Both keep the same share; whoever is alone keeps all."""
    places = [{0: 0b11}, {0: 0b11}, {1: 0b11}]
    assert speeds(places, [*models, "bert"]) == [kept, kept, 1.0]


def test_tiers__a_pair_may_lie_on_two_nodes() -> None:
    """All their GPUs are shared."""
    assert speeds([{0: 0xFF, 1: 1}, {0: 0xFF, 1: 1}], ["ncf", "ncf"]) == [0.95, 0.95]


@pytest.mark.parametrize(
    "places", [[{0: 1}, {0: 1}, {0: 1}], [{0: 0b11}, {0: 0b1}], [{0: 1, 1: 1}, {1: 1}], [{0: 0b11}, {0: 0b110}]]
)
def test_tiers__refuses_to_tell_of_other_sharing(places: Any) -> None:
    """Three on a GPU, and GPUs shared in part."""
    with pytest.raises(InputError, match="no speed is known"):
        speeds(places, ["ncf"] * len(places))


@pytest.mark.parametrize(
    "kept", [(0.9,) * 4, (0.5, 0.6, 0.5, 0.5, 0.5), (1.1, 1.0, 1.0, 1.0, 1.0), (0.9, 0.9, 0.9, 0.9, 0.0)]
)
def test_tiers__refuses_shares_that_mean_nothing(kept: tuple[float, ...]) -> None:
    """A ConfigError that names them."""
    with pytest.raises(ConfigError) as caught:
        UtilizationSpeed(kept=kept)
    assert caught.value.key == "physics.kept"


@pytest.mark.parametrize("words", ["ncf", ("",), ("ncf", 1), ["ncf"]])
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (UtilizationSpeed, "tiny"),
        (UtilizationSpeed, "medium"),
        (DistanceSpeed, "insensitive"),
        (RingBandwidthSpeed, "insensitive"),
        (SocketSpeed, "insensitive"),
    ],
)
def test_physics__refuse_what_is_no_list_of_words(make: Any, name: str, words: Any) -> None:
    """A text would be taken letter by letter, and an empty word is in every name."""
    with pytest.raises(ConfigError, match="list of words") as caught:
        make(**{name: words})
    assert caught.value.key == f"physics.{name}"
