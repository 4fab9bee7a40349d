"""harmony: the example of its page by hand, its network, and what training brings in a replay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slurmsched import registry
from slurmsched.config import Config
from slurmsched.errors import ConfigError, InputError
from slurmsched.estimators.policy_network import PolicyNetwork
from slurmsched.model import Ranking
from slurmsched.model.columns import Floats
from slurmsched.model.trace import Trace
from slurmsched.observe.gpu_profiles import GpuProfile, ProfileKey, write_profiles
from slurmsched.placements.harmony import FEATURES, Harmony, least_lost
from slurmsched.planning.planner import Planner
from slurmsched.sim.experiments.policy_training import (
    JobAwareExploration,
    played,
    train,
    training_request,
)
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.testing import check_placement, snapshot
from tests.unit.placements.test_gpu_placements import asks, holds, placed, site
from tests.unit.policies.test_pages import PAGES, table

PAGE = (PAGES.parent / "placements" / "harmony.md").read_text(encoding="utf-8")
REQUEST = training_request("harmony", 0, {"cluster": "3x4", "policy": "fjf"})
BAD, GOOD = "ResNet-50 (batch size 128)", "LM (batch size 80)"


def hints(kind: str) -> str:
    """Those of a job of this model."""
    model, _, batch = kind.partition(" (batch size ")
    return f"slurmsched: model={model}" + (f" batch={batch.rstrip(')')}" if batch else "")


def weights(folder: Path, **scores: float) -> str:
    """A network that adds up these features."""
    layer = np.array([[scores.get(name, 0.0)] for name in FEATURES])
    path = folder / "weights.json"
    path.write_text(PolicyNetwork(((layer, np.zeros(1)),), FEATURES).text())
    return str(path)


def test_harmony__the_example_of_the_page() -> None:
    """What each job sees of both nodes, and where it goes; all go to n1 under best-fit."""
    seen: list[Floats] = []

    def noted(_: str, features: Floats) -> int:
        seen.append(features)
        return least_lost(features)

    four = site([asks(int(row["job"]), 1, comment=hints(row["model"])) for row in table(PAGE)], "2x4", None)
    made = Harmony().placed(four, Ranking(np.arange(4)), noted)
    assert [four.nodes.name[node] for node in made.node.tolist()] == [row["goes to"] for row in table(PAGE)]
    columns = ("keeps on n1", "others lose on n1", "keeps on n2", "others lose on n2")
    shown = [[float(row[name]) for name in columns] for row in table(PAGE)]
    assert np.round([features[:, :2].ravel() for features in seen], 2).tolist() == shown
    assert set(placed(registry.make_plugin("placements", "best-fit", key="placement"), four)[4]) == {"n1"}


def test_least_lost__counts_what_others_lose_and_then_fills_nodes() -> None:
    """A node where the job keeps all and others lose half is worse; of equals the fullest, then the first."""
    keeps, loses, left = (1.0, 0.9, 0.9, 0.9), (0.5, 0.0, 0.0, 0.0), (0.0, 0.5, 0.25, 0.25)
    rest = np.zeros((4, len(FEATURES) - 4))
    assert least_lost(np.column_stack([keeps, loses, np.zeros(4), left, rest])) == 2


def test_harmony__a_network_scores_the_nodes(tmp_path: Path) -> None:
    """One that likes room spreads, one that does not packs; a gang has its workers on two nodes."""
    three = [asks(1, 1), asks(2, 1), asks(3, 8, nodes=2)]
    spread = placed(Harmony(weights(tmp_path, left=1.0)), site(three, "4x4", None))
    assert [sorted(spread[job]) for job in (1, 2, 3)] == [["n1"], ["n2"], ["n3", "n4"]]
    (other := tmp_path / "other").mkdir()
    packed = placed(Harmony(weights(other, left=-1.0)), site(three, "4x4", None))
    assert [sorted(packed[job]) for job in (1, 2, 3)] == [["n1"], ["n1"], ["n2", "n3"]]


def test_harmony__who_goes_for_a_job_is_no_neighbour() -> None:
    """The running job is displaced, and the other node is full of what is bad for it."""
    jobs = [asks(1, 4, comment=hints(BAD)), holds(2, "n1", 0b1111), holds(3, "n2", 0b1111)]
    seen: list[Floats] = []

    def noted(_: str, features: Floats) -> int:
        seen.append(features)
        return 0

    made = Harmony().placed(site(jobs, "2x4", None), Ranking(np.arange(3)), noted)
    assert (made.rows.tolist(), seen[-1][0, :3].tolist()) == ([0, 1], [1.0, 0.0, 0.0])


def test_harmony__keeps_the_laws(tmp_path: Path) -> None:
    """Those of every placement, with a network of random weights."""
    network = PolicyNetwork.new(FEATURES, 1)
    last = (np.random.default_rng(1).normal(size=network.layers[-1][0].shape), np.zeros(1))
    (path := tmp_path / "random.json").write_text(PolicyNetwork((*network.layers[:-1], last), FEATURES).text())
    check_placement(Harmony(str(path)))


def test_harmony__measured_pairs_come_first(tmp_path: Path) -> None:
    """A pair that the daemon saw in harmony; the configuration names the file."""
    path = tmp_path / "profiles.csv"
    speeds = {("mine", ""): 100.0, ("mine", "other"): 99.0, ("other", ""): 50.0, ("other", "mine"): 50.0}
    write_profiles(path, {ProfileKey(model, 0, 1, "a100", "ann", beside): GpuProfile(speed * 10.0, 10.0)
                          for (model, beside), speed in speeds.items()})  # fmt: skip
    config = Config.model_validate({"measured_use": {"profiles": str(path)}, "placement": {"name": "harmony"}})
    placement = registry.configured(config).placement
    jobs = [asks(1, 1, comment="slurmsched: model=mine"), asks(2, 1, comment="slurmsched: model=other")]
    assert placement.measured == str(path)
    here = site(jobs, "1x4", None)
    found = placement.predicted_speeds(here, placement.place(here, Ranking(np.arange(2))))
    assert found == pytest.approx([0.99**0.44, 1.0])


def test_plan__says_that_there_are_no_weights() -> None:
    """If placements are asked at all."""
    for pin, told in (("hints", True), ("off", False)):
        config = Config.model_validate({"placement": {"name": "harmony", "pin": pin}})
        notes = Planner.from_config(config).plan(snapshot([asks(1, 1)], "1x1")).notes
        assert any("slurmsched policy train harmony" in note for note in notes) is told


def small(seed: int) -> Trace:
    """Jobs of one GPU, half of them of a model that slows others."""
    chance = np.random.default_rng(seed)
    models = [BAD if bad else GOOD for bad in chance.random(24) < 0.5]
    submit_s = np.sort(chance.integers(0, 4_000, 24))
    return Trace.of(job_id=range(1, 25), gpus=[1] * 24, submit_s=submit_s, duration_s=chance.integers(600, 3_000, 24),
                    name=models, comment=[hints(model) for model in models])  # fmt: skip


def test_train__beats_placements_that_know_no_neighbours(tmp_path: Path) -> None:
    """On other jobs than it was trained on; the same seed gives the same file."""
    told: list[float] = []
    texts = [train(small(1), REQUEST, Harmony(), 2, 5, lambda _, jct_s: told.append(jct_s)).text() for _ in "ab"]
    assert texts[0] == texts[1]
    assert (len(told), told[:3]) == (6, told[3:])
    path = tmp_path / "harmony.json"
    path.write_text(texts[0])
    for seed in (2, 3):
        found = [ReplaySession(small(seed), replace(REQUEST, placement=name)).run().figures["avg_jct_s"]
                 for name in (f"harmony:weights={path}", "random", "best-fit")]  # fmt: skip
        assert found[0] < 0.98 * min(found[1:])


def test_train__a_choice_is_worth_the_speed_that_jobs_lack_after_it() -> None:
    """A job that waits an hour lacks one job hour; when it starts nobody lacks any."""
    trace = Trace.of(job_id=[1, 2, 3], gpus=[1] * 3, submit_s=[0] * 3, duration_s=[3_600] * 3)
    episode = played(trace, training_request("harmony", 0, {"cluster": "2x1"}), Harmony(), least_lost)
    assert (episode.rewards, episode.round_of) == ([-1.0, 0.0], [0, 1])
    beside = Trace.of(job_id=[1, 2, 3], gpus=[1, 1, 1], submit_s=[0, 0, 3_600], duration_s=[7_200, 7_200, 60],
                      name=[BAD] * 3, comment=[hints(BAD)] * 3)  # fmt: skip
    both = played(beside, training_request("harmony", 0, {"cluster": "2x2"}), Harmony(), lambda _: 0)
    lacks = 2 * (1 - 0.72)
    assert both.rewards[0] == pytest.approx(-lacks, abs=0.01)


def test_exploration__is_less_for_kinds_placed_often() -> None:
    """At first every second node is drawn, after hundreds hardly any."""
    explore = JobAwareExploration(np.random.default_rng(0))
    drawn = [explore.drawn("a", 4) for _ in range(2_000)]
    early, late = (sum(each is not None for each in part) for part in (drawn[:20], drawn[-1_000:]))
    assert early > 2
    assert late < 5


def test_train__says_what_is_wrong(tmp_path: Path) -> None:
    """A cluster of one node leaves no choice; the placement is what is trained; weights of dl2 are none."""
    with pytest.raises(ConfigError, match="several nodes"):
        train(small(1), training_request("harmony", 0, {"cluster": "1x4"}), Harmony(), 1, 0)
    with pytest.raises(ConfigError, match="harmony is the placement"):
        training_request("harmony", 0, {"placement": "linked"})
    (tmp_path / "other.json").write_text(PolicyNetwork.new(("x",), 0).text())
    with pytest.raises(InputError, match="other features"):
        Harmony(str(tmp_path / "other.json"))
    with pytest.raises(ConfigError, match="node_loss"):
        Harmony(node_loss=1.5)
