"""Trains the network of `dl2` in replays: first to do as the simple rule does, then by what its own choices bring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.estimators.policy_network import Adam, PolicyNetwork
from slurmsched.model import Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.trace import Trace
from slurmsched.policies.dl2 import FEATURES, Chooser, Dl2, smallest_share
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ideal_setup, on_its_cluster, play_events
from slurmsched.sim.ideal.ideal_planner import DirectPlanner

LESSON_RATE, LESSON_STEPS, BATCH = 0.005, 400, 256  # of the first lesson; its rate and batch are the release's
RATE, DISCOUNT = 0.001, 0.9  # of the replays after it


@dataclass(slots=True)
class Episode:
    """What one replay taught.

    choices: features of the choices (C, F) and the one taken, of each decision.
    round_of: (D,) the round of each decision.
    unfinished: jobs that wait or run at the begin of each round.
    mean_jct_s: of its jobs.
    """

    choices: list[tuple[Floats, int]] = field(default_factory=list)
    round_of: list[int] = field(default_factory=list)
    unfinished: list[int] = field(default_factory=list)
    mean_jct_s: float = float("nan")

    def returns(self) -> Floats:
        """Less the jobs unfinished in each round and after it, a later round counting less. (R,)."""
        made, later = np.zeros(len(self.unfinished)), 0.0
        for place in reversed(range(len(made))):
            later = made[place] = DISCOUNT * later - self.unfinished[place]
        return made


class RecordingPolicy:
    """Dl2 whose choices are another's, and are written down. A policy for one replay."""

    preemptive: ClassVar[bool] = True

    def __init__(self, policy: Dl2, choose: Chooser) -> None:
        self.policy, self.estimator, self.episode = policy, policy.estimator, Episode()
        self._choose = choose

    def rank(self, snapshot: Snapshot) -> Ranking:
        """As Dl2."""
        decided = len(self.episode.choices)
        ranking = self.policy.ranked(snapshot, self._take)
        if len(self.episode.choices) > decided:
            self.episode.unfinished.append(len(snapshot.jobs))
            made = len(self.episode.choices) - decided
            self.episode.round_of += [len(self.episode.unfinished) - 1] * made
        return ranking

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """As Dl2."""
        return self.policy.next_change_s(snapshot, ranking, running)

    def _take(self, features: Floats) -> int:
        taken = self._choose(features)
        self.episode.choices.append((features, taken))
        return taken


def check_trainable(name: str) -> None:
    """Raises ConfigError for a policy without a network."""
    if name != "dl2":
        raise ConfigError(f"{name!r} has no network to train; dl2 has one", key="policy")


def train(
    trace: Trace,
    request: ReplayRequest,
    policy: Dl2,
    episodes: int,
    seed: int,
    on_episode: Callable[[int, float], None] = lambda _number, _mean_jct_s: None,
) -> PolicyNetwork:
    """The network that did best in the replays, by mean JCT.

    request: its cluster, placement and physics. episodes: replays of reinforcement.
    on_episode: called after each replay with its number and mean JCT [s]; number 0 is the first lesson's.
    Raises ConfigError where nothing is to be decided, as without elastic jobs.
    Source: Peng et al. (DL2), IEEE TPDS 2021: supervised, then by policy gradient.
    Ours: jobs that are not done count, an option of the release, in place of progress.
    """
    taught = _lesson(trace, request, policy)
    on_episode(0, taught.mean_jct_s)
    network = with_lesson(PolicyNetwork.new(FEATURES, seed), taught.choices, seed)
    best, least_s, descent, baseline = network, np.inf, Adam(RATE), np.zeros(0)
    for number in range(1, episodes + 1):
        tried = played(trace, request, policy, _sampler(network, (seed, number)))
        on_episode(number, tried.mean_jct_s)
        if tried.mean_jct_s < least_s:
            best, least_s = network, tried.mean_jct_s
        baseline = _mean(baseline, returns := tried.returns(), number)
        network = reinforced(network, tried, returns - baseline[: len(returns)], descent)
    return best


def _lesson(trace: Trace, request: ReplayRequest, policy: Dl2) -> Episode:
    """A replay by the simple rule. Raises ConfigError where it decides nothing."""
    taught = played(trace, request, policy, smallest_share)
    if not taught.choices:
        raise ConfigError("no job of the trace has several sizes to choose from; it needs hints min_gpus and max_gpus",
                          key="trace")  # fmt: skip
    return taught


def played(trace: Trace, request: ReplayRequest, policy: Dl2, choose: Chooser) -> Episode:
    """One replay on the ideal cluster. choose: who decides."""
    trace, described = on_its_cluster(trace, request)
    made, recorder = ideal_setup(trace, described, replace(request, policy="dl2")), RecordingPolicy(policy, choose)
    assert isinstance(made.planner, DirectPlanner)
    play_events(replace(made, planner=replace(made.planner, policy=recorder)), None)
    recorder.episode.mean_jct_s = float(made.replayed.outcomes.jct_s.mean())
    return recorder.episode


def _sampler(network: PolicyNetwork, seed: tuple[int, int]) -> Chooser:
    """Draws each choice by its chance."""
    chance = np.random.default_rng(seed)

    def drawn(features: Floats) -> int:
        sums = np.cumsum(network.chances(features))
        return int(min(np.searchsorted(sums, chance.random() * sums[-1], side="right"), len(sums) - 1))

    return drawn


def with_lesson(network: PolicyNetwork, choices: Sequence[tuple[Floats, int]], seed: int) -> PolicyNetwork:
    """The network after the first lesson: it takes what was taken. Cross-entropy."""
    chance, descent = np.random.default_rng(seed), Adam(LESSON_RATE)
    for _ in range(-(-LESSON_STEPS * BATCH // max(len(choices), BATCH))):
        order = chance.permutation(len(choices))
        for first in range(0, len(order), BATCH):
            batch = [choices[place] for place in order[first : first + BATCH].tolist()]
            network = _stepped(network, [(features, taken, 1.0) for features, taken in batch], descent)
    return network


def reinforced(network: PolicyNetwork, episode: Episode, advantage: Floats, descent: Adam) -> PolicyNetwork:
    """The network after one pass over the choices of a replay, by what they brought. advantage: (R,) of each round."""
    spread = float(advantage.std()) or 1.0
    weighed = [(features, taken, float(advantage[number]) / spread)
               for (features, taken), number in zip(episode.choices, episode.round_of, strict=True)]  # fmt: skip
    order = np.random.default_rng(descent.steps).permutation(len(weighed))
    for first in range(0, len(order), BATCH):
        batch = [weighed[place] for place in order[first : first + BATCH].tolist()]
        network = _stepped(network, batch, descent)
    return network


def _stepped(network: PolicyNetwork, choices: Sequence[tuple[Floats, int, float]], descent: Adam) -> PolicyNetwork:
    """One step towards the choices taken, each by its weight."""
    counts = [len(features) for features, _, _ in choices]
    every, ends = np.concatenate([features for features, _, _ in choices]), np.cumsum(counts)
    scores, slope = network.scores(every), np.zeros(len(every))
    for (_, taken, weight), first, last in zip(choices, (ends - counts).tolist(), ends.tolist(), strict=True):
        raised = np.exp(scores[first:last] - scores[first:last].max())
        chances = raised / raised.sum()
        slope[first:last] = weight * chances
        slope[first + taken] -= weight
    return descent.stepped(network, network.gradients(every, slope / len(choices)))


def _mean(baseline: Floats, returns: Floats, number: int) -> Floats:
    """Mean returns of each round over so many replays; a round that a replay did not reach counts as 0 there."""
    made = np.zeros(max(len(baseline), len(returns)))
    made[: len(baseline)] += baseline * (number - 1) / number
    made[: len(returns)] += returns / number
    return made
