"""Trains the network of a policy or placement in replays: first to do as the simple rule does, then by what its own
choices bring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from slurmsched.errors import ConfigError
from slurmsched.estimators.group_speeds import NODE_LOSS
from slurmsched.estimators.policy_network import Adam, PolicyNetwork
from slurmsched.model import Assignments, Ranking, Snapshot
from slurmsched.model.columns import Bools, Floats
from slurmsched.model.trace import Trace
from slurmsched.placements import harmony
from slurmsched.placements.harmony import Harmony, least_lost
from slurmsched.policies.dl2 import FEATURES, HOUR_S, Chooser, Dl2, smallest_share
from slurmsched.resources.allocated import holding
from slurmsched.resources.startable_jobs import startable
from slurmsched.sim.experiments.replay_request import ReplayRequest
from slurmsched.sim.experiments.replay_session import ideal_setup, on_its_cluster, play_events
from slurmsched.sim.ideal.ideal_planner import DirectPlanner

LESSON_RATE, LESSON_STEPS, BATCH = 0.005, 400, 256  # of the first lesson; its rate and batch are the release's
RATE, DISCOUNT = 0.001, 0.9  # of the replays after it
NODES_RATE = 0.01  # the same of a placement
CRITIC_RATE, CRITIC_STEPS = 0.01, 20
Learner = Dl2 | Harmony
LEARNERS = {"dl2": "policies", "harmony": "placements"}  # plug-ins with a network -> their group


@dataclass(slots=True)
class Episode:
    """What one replay taught.

    choices: features of the choices (C, F) and the one taken, of each decision.
    round_of: (D,) the round of each decision.
    rewards: of each round.
    mean_jct_s: of its jobs.
    """

    choices: list[tuple[Floats, int]] = field(default_factory=list)
    round_of: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    mean_jct_s: float = float("nan")

    def returns(self) -> Floats:
        """The rewards of each round and of those after it, a later round counting less. (R,)."""
        made, later = np.zeros(len(self.rewards)), 0.0
        for place in reversed(range(len(made))):
            later = made[place] = DISCOUNT * later + self.rewards[place]
        return made

    def states(self) -> Floats:
        """The mean features of the choices of the first decision of each round. (R, F)."""
        first = np.unique(self.round_of, return_index=True)[1]
        return np.array([self.choices[place][0].mean(axis=0) for place in first.tolist()])


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
            self.episode.rewards.append(-float(len(snapshot.jobs)))  # less those that wait or run
            made = len(self.episode.choices) - decided
            self.episode.round_of += [len(self.episode.rewards) - 1] * made
        return ranking

    def next_change_s(self, snapshot: Snapshot, ranking: Ranking, running: Bools) -> float:
        """As Dl2."""
        return self.policy.next_change_s(snapshot, ranking, running)

    def _take(self, features: Floats) -> int:
        taken = self._choose(features)
        self.episode.choices.append((features, taken))
        return taken


@dataclass(slots=True)
class JobAwareExploration:
    """Draws a node evenly now and then: the more often, the fewer jobs of that kind were placed in the training."""

    chance: np.random.Generator
    placed: Counter[str] = field(default_factory=Counter)

    def drawn(self, kind: str, nodes: int) -> int | None:
        """A node by its place among so many; None where the network is to choose."""
        self.placed[kind] += 1
        explores = self.chance.random() < 1.0 / (1.0 + self.placed[kind])
        return int(self.chance.integers(nodes)) if explores else None


class RecordingPlacement:
    """Harmony whose choices are another's, and are written down. A placement for one replay.

    The reward of the choices of one moment is the speed that jobs lack until the next ones, less than 0 [job h]: all of
    it for a job that waits, as predicted for one that has neighbours.
    """

    def __init__(self, placement: Harmony, choose: Chooser, explore: JobAwareExploration | None) -> None:
        self.placement, self.episode = placement, Episode()
        self._choose, self._explore = choose, explore
        self._lacking, self._since_s = 0.0, 0.0

    def place(self, snapshot: Snapshot, ranking: Ranking) -> Assignments:
        """As Harmony."""
        if self.episode.rewards:
            self.episode.rewards[-1] -= self._lacking * (snapshot.now_s - self._since_s) / HOUR_S
        decided = len(self.episode.choices)
        target = self.placement.placed(snapshot, ranking, self._take)
        if made := len(self.episode.choices) - decided:
            self.episode.rewards.append(0.0)
            self.episode.round_of += [len(self.episode.rewards) - 1] * made
        here = holding(snapshot.jobs) | startable(snapshot)
        self._lacking = float(here.sum()) - float(self.placement.predicted_speeds(snapshot, target).sum())
        self._since_s = snapshot.now_s
        return target

    def _take(self, kind: str, features: Floats) -> int:
        drawn = None if self._explore is None else self._explore.drawn(kind, len(features))
        taken = self._choose(features) if drawn is None else drawn
        if len(features) > 1:
            self.episode.choices.append((features, taken))
        return taken


def check_trainable(name: str) -> str:
    """The group of plug-ins that has this network. Raises ConfigError for a plug-in without one."""
    if name not in LEARNERS:
        raise ConfigError(f"{name!r} has no network to train; {' and '.join(LEARNERS)} have one", key="policy")
    return LEARNERS[name]


def training_request(name: str, seed: int, words: Mapping[str, Any]) -> ReplayRequest:
    """The replays of a training. words: of the command line; None = the default of what is trained.

    Raises ConfigError for a word that what is trained takes the place of.
    """
    own, defaults = {
        "dl2": ("policy", {"placement": "consolidated", "physics": "amdahl"}),
        "harmony": ("placement", {"policy": "fifo", "physics": f"grouped:node_loss={NODE_LOSS}"}),
    }[name]
    if words.get(own) is not None:
        raise ConfigError(f"cannot be given: {name} is the {own} that is trained", key=own)
    return ReplayRequest(seed=seed, **(defaults | {word: value for word, value in words.items() if value is not None}))


# Over 30 lines: a third is the docstring.
def train(
    trace: Trace,
    request: ReplayRequest,
    learner: Learner,
    episodes: int,
    seed: int,
    on_episode: Callable[[int, float], None] = lambda _number, _mean_jct_s: None,
) -> PolicyNetwork:
    """The network that did best in the replays, by mean JCT: for dl2 with drawn choices, for harmony without.

    request: its cluster and physics, and the placement of a policy, or the policy of a placement.
    episodes: replays of reinforcement.
    on_episode: called after each replay with its number and mean JCT [s]; number 0 is the first lesson's.
    Raises ConfigError where nothing is to be decided, as without elastic jobs.
    Source: Peng et al. (DL2), IEEE TPDS 2021: supervised, then by policy gradient; Bao et al. (Harmony), INFOCOM 2019:
    with a critic, and exploration by job. Ours: for DL2 jobs that are not done count, an option of the release, in
    place of progress.
    """
    taught = _lesson(trace, request, learner)
    on_episode(0, taught.mean_jct_s)
    inputs = FEATURES if isinstance(learner, Dl2) else harmony.FEATURES
    network = with_lesson(PolicyNetwork.new(inputs, seed), taught.choices, seed)
    best, least_s, descent = network, np.inf, Adam(RATE if isinstance(learner, Dl2) else NODES_RATE)
    expected = _MeanReturns() if isinstance(learner, Dl2) else _Critic(PolicyNetwork.new(inputs, seed))
    explore = None if isinstance(learner, Dl2) else JobAwareExploration(np.random.default_rng((seed, 0)))
    for number in range(1, episodes + 1):
        tried = played(trace, request, learner, _sampler(network, (seed, number)), explore)
        shown = tried if isinstance(learner, Dl2) else played(trace, request, learner, highest_score(network))
        on_episode(number, shown.mean_jct_s)
        if shown.mean_jct_s < least_s:
            best, least_s = network, shown.mean_jct_s
        network = reinforced(network, tried, expected.advantage(tried), descent)
    return best


def _lesson(trace: Trace, request: ReplayRequest, learner: Learner) -> Episode:
    """A replay by the simple rule. Raises ConfigError where it decides nothing."""
    by_rule, lacks = (
        (smallest_share, "no job of the trace has several sizes to choose from; it needs hints min_gpus and max_gpus")
        if isinstance(learner, Dl2)
        else (least_lost, "no job of the trace has several nodes to choose from; it needs a larger cluster")
    )
    taught = played(trace, request, learner, by_rule)
    if not taught.choices:
        raise ConfigError(lacks, key="trace")
    return taught


def played(
    trace: Trace, request: ReplayRequest, learner: Learner, choose: Chooser, explore: JobAwareExploration | None = None
) -> Episode:
    """One replay on the ideal cluster. choose: who decides."""
    trace, described = on_its_cluster(trace, request)
    own: dict[str, Any] = {"policy": "dl2"} if isinstance(learner, Dl2) else {"placement": "harmony"}
    made = ideal_setup(trace, described, replace(request, **own))
    assert isinstance(made.planner, DirectPlanner)
    if isinstance(learner, Dl2):
        policy = RecordingPolicy(learner, choose)
        planner, episode = replace(made.planner, policy=policy), policy.episode
    else:
        placement = RecordingPlacement(learner, choose, explore)
        planner, episode = replace(made.planner, placement=placement), placement.episode
    play_events(replace(made, planner=planner), None)
    episode.mean_jct_s = float(made.replayed.outcomes.jct_s.mean())
    return episode


def highest_score(network: PolicyNetwork) -> Chooser:
    """Takes the choice with the highest score."""
    return lambda features: int(np.argmax(network.scores(features)))


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


class _MeanReturns:
    """The returns to be expected: the mean of each round over earlier replays. DL2's baseline."""

    def __init__(self) -> None:
        self._mean, self._replays = np.zeros(0), 0

    def advantage(self, episode: Episode) -> Floats:
        """Returns of each round beyond the mean, which counts this replay too. (R,)."""
        returns = episode.returns()
        self._replays += 1
        self._mean = _mean(self._mean, returns, self._replays)
        return np.asarray(returns - self._mean[: len(returns)])


class _Critic:
    """The returns to be expected: a second network, of the mean features of the choices. Harmony's baseline."""

    def __init__(self, network: PolicyNetwork) -> None:
        self._network, self._descent = network, Adam(CRITIC_RATE)

    def advantage(self, episode: Episode) -> Floats:
        """Returns of each round beyond those that the critic expected before it learnt from them. (R,)."""
        returns, states = episode.returns(), episode.states()
        made = returns - self._network.scores(states)
        for _ in range(CRITIC_STEPS):
            error = (self._network.scores(states) - returns) / len(returns)
            self._network = self._descent.stepped(self._network, self._network.gradients(states, error))
        return np.asarray(made)


def _mean(baseline: Floats, returns: Floats, number: int) -> Floats:
    """Mean returns of each round over so many replays; a round that a replay did not reach counts as 0 there."""
    made = np.zeros(max(len(baseline), len(returns)))
    made[: len(baseline)] += baseline * (number - 1) / number
    made[: len(returns)] += returns / number
    return made
