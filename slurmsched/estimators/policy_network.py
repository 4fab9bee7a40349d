"""A small network that scores choices: a multilayer perceptron in numpy, its gradients, and its file of weights.

One network looks at each choice by itself. So the order of choices does not matter, and their number may differ.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Floats

Layers = tuple[tuple[Floats, Floats], ...]  # weights (I, O) and biases (O,) of each layer
HIDDEN = (16, 16)
DECAYS, EPSILON = (0.9, 0.999), 1e-8  # Adam's


@dataclass(frozen=True, slots=True, eq=False)
class PolicyNetwork:
    """Tanh layers, and a last one that gives one score.

    layers: their weights and biases.
    inputs: names of the features of a choice, in order.
    """

    layers: Layers
    inputs: tuple[str, ...]

    @classmethod
    def new(cls, inputs: Sequence[str], seed: int, hidden: Sequence[int] = HIDDEN) -> PolicyNetwork:
        """With random weights. The last layer is 0: all choices are alike at first."""
        chance, sizes = np.random.default_rng(seed), (len(inputs), *hidden, 1)
        made = [(chance.normal(size=pair) / np.sqrt(pair[0]), np.zeros(pair[1])) for pair in pairwise(sizes)]
        made[-1] = (np.zeros_like(made[-1][0]), made[-1][1])
        return cls(tuple(made), tuple(inputs))

    def scores(self, features: Floats) -> Floats:
        """Of each choice. features: (C, I). (C,)."""
        return np.asarray(self._through(features)[-1][:, 0])

    def chances(self, features: Floats) -> Floats:
        """Of each choice, as softmax has them. features: (C, I). (C,)."""
        scores = self.scores(features)
        raised = np.exp(scores - scores.max())
        return np.asarray(raised / raised.sum())

    def gradients(self, features: Floats, of_scores: Floats) -> Layers:
        """Of each weight and bias. of_scores: (C,) gradient of each score."""
        outputs, made = self._through(features), list[tuple[Floats, Floats]]()
        back = of_scores[:, None]
        for place in reversed(range(len(self.layers))):
            made.append((outputs[place].T @ back, back.sum(axis=0)))
            if place:
                back = (back @ self.layers[place][0].T) * (1.0 - outputs[place] ** 2)
        return tuple(reversed(made))

    def _through(self, features: Floats) -> list[Floats]:
        """The features, then the output of each layer."""
        outputs = [features]
        for place, (weights, bias) in enumerate(self.layers):
            made = outputs[-1] @ weights + bias
            outputs.append(made if place + 1 == len(self.layers) else np.tanh(made))
        return outputs

    def text(self) -> str:
        """What a file of weights holds: JSON."""
        layers = [{"weights": weights.tolist(), "bias": bias.tolist()} for weights, bias in self.layers]
        return json.dumps({"inputs": list(self.inputs), "layers": layers}, indent=1) + "\n"


@dataclass(slots=True)
class Adam:
    """Steps of gradient descent, each weight at its own pace. Source: Kingma and Ba, ICLR '15."""

    rate: float
    first: Layers | None = None
    second: Layers | None = None
    steps: int = 0

    def stepped(self, network: PolicyNetwork, gradients: Layers) -> PolicyNetwork:
        """The network after one step against the gradients."""
        zeros = tuple((np.zeros_like(weights), np.zeros_like(bias)) for weights, bias in gradients)
        self.steps += 1
        self.first = _blend(self.first or zeros, gradients, DECAYS[0], 1)
        self.second = _blend(self.second or zeros, gradients, DECAYS[1], 2)
        mean, square = (1.0 - decay**self.steps for decay in DECAYS)

        def moved(value: Floats, first: Floats, second: Floats) -> Floats:
            return np.asarray(value - self.rate * (first / mean) / (np.sqrt(second / square) + EPSILON))

        parts = zip(network.layers, self.first, self.second, strict=True)
        layers = tuple((moved(now[0], one[0], two[0]), moved(now[1], one[1], two[1])) for now, one, two in parts)
        return PolicyNetwork(layers, network.inputs)


def _blend(before: Layers, gradients: Layers, decay: float, power: int) -> Layers:
    def blent(old: Floats, new: Floats) -> Floats:
        return np.asarray(decay * old + (1.0 - decay) * new**power)

    pairs = zip(before, gradients, strict=True)
    return tuple((blent(old[0], new[0]), blent(old[1], new[1])) for old, new in pairs)


@lru_cache(maxsize=8)
def policy_network(path: str, inputs: tuple[str, ...]) -> PolicyNetwork:
    """The network of a file of weights. inputs: the features that it must have been trained on.

    Raises InputError for a file that cannot be read, or is of other features.
    """
    try:
        tree: Any = json.loads(Path(path).read_text())
        layers = tuple((np.array(each["weights"], np.float64), np.array(each["bias"], np.float64))
                       for each in tree["layers"])  # fmt: skip
        named = tuple(tree["inputs"])
        _check(layers, len(named))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"cannot be read as weights of a policy network: {error}", source=path) from error
    if named != inputs:
        raise InputError("was trained on other features; train it anew with this version of slurmsched", source=path)
    return PolicyNetwork(layers, inputs)


def _check(layers: Layers, inputs: int) -> None:
    """Raises ValueError for layers that do not follow each other, or do not end in one finite score."""
    sizes = [inputs, *(len(bias) for _, bias in layers)]
    if not layers or sizes[-1] != 1 or [weights.shape for weights, _ in layers] != list(pairwise(sizes)):
        raise ValueError("its layers do not fit each other")
    if not all(np.isfinite(part).all() for layer in layers for part in layer):
        raise ValueError("a weight is no finite number")
