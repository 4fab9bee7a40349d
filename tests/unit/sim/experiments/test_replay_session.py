"""A replay from words."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import pytest

from slurmsched import __version__
from slurmsched.errors import ConfigError, InputError
from slurmsched.model import Labels, Plan, Snapshot
from slurmsched.model.trace import Trace, trace_digest
from slurmsched.planning.planner import Planner
from slurmsched.sim.experiments.replay_request import ReplayRequest, parse_policy, read_history
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.sim.experiments.slurmctld_setup import QuietTimes
from slurmsched.sim.slurmctld.simulated_slurmctld import SimulatedSlurmctld

SIX = Trace.of([1, 2, 3, 4, 5, 6], [2, 4, 1, 2, 1, 3], [0, 1, 2, 3, 4, 5], [6, 4, 3, 5, 9, 2])


def figures(**words: Any) -> dict[str, Any]:
    return ReplaySession(SIX, ReplayRequest(**{"cluster": "1x4", **words})).run().figures


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("fifo", ("fifo", {})),
        ("las:quantum_gpu_s=30", ("las", {"quantum_gpu_s": 30})),
        ("discretized-las:thresholds_gpu_s=[10, 20.5],fifo_by=start",
         ("discretized-las", {"thresholds_gpu_s": [10, 20.5], "fifo_by": "start"})),
        ('sia:speeds={name = "throughputs", table = "gavel"},p=-1',
         ("sia", {"speeds": {"name": "throughputs", "table": "gavel"}, "p": -1})),
        ("sia:speeds={name='throughputs',table='a',xs=[1,2]},p=-1",
         ("sia", {"speeds": {"name": "throughputs", "table": "a", "xs": [1, 2]}, "p": -1})),
        (r"""e-las:table="a,[\"",name=it's,other='x:{'""",
         ("e-las", {"table": 'a,["', "name": "it's", "other": "x:{"})),
        ("gittins:dimension=1d:least_samples=5", ("gittins", {"dimension": "1d", "least_samples": 5})),
    ],
)  # fmt: skip
def test_parse_policy__takes_name_and_parameters(text: str, parsed: tuple[str, dict[str, Any]]) -> None:
    """Values as in the configuration file; a bare word is a text."""
    assert parse_policy(text) == parsed


def test_parse_policy__refuses_a_part_without_value() -> None:
    """The part is named, and how it should look."""
    with pytest.raises(ConfigError, match="'dimension' is not PARAMETER=VALUE"):
        parse_policy("gittins:dimension")
    with pytest.raises(ConfigError, match=r"'srtf' is not PARAMETER=VALUE, .*; give each policy by itself"):
        parse_policy("fifo,srtf")


@pytest.mark.parametrize(
    ("words", "jct_s"),
    [
        ({"policy": "fifo"}, [6, 10, 13, 15, 19, 17]), ({"policy": "easy"}, [6, 10, 5, 15, 19, 17]),
        ({"policy": "fjf"}, [6, 17, 5, 11, 13, 13]), ({"policy": "fifo", "backfill": "skip"}, [6, 17, 5, 11, 13, 13]),
        ({"policy": "sjf"}, [6, 12, 5, 17, 21, 8]), ({"policy": "srtf"}, [12, 5, 8, 13, 20, 7]),
        ({"policy": "fifo", "placement": "consolidated"}, [6, 10, 13, 15, 19, 17]),
        ({"policy": "easy", "placement": "consolidated"}, [6, 10, 5, 15, 19, 17]),
    ],
)  # fmt: skip
def test_session__plays_the_named_discipline(words: dict[str, str], jct_s: list[int]) -> None:
    """Ends of the six jobs drawn in docs/replay.md."""
    assert figures(**words)["avg_jct_s"] == pytest.approx((sum(jct_s) - 15) / 6)


def test_session__figures_name_what_they_are_of() -> None:
    """The keys of the command's JSON, and all that is needed to get the same again."""
    made = figures(policy="discretized-las:thresholds_gpu_s=[4]", seed=3)
    keys = ("jobs avg_jct_s p50_jct_s p95_jct_s p99_jct_s avg_wait_s makespan_s preemptions lost_gpu_h gpu_utilisation "
            "wall_s version trace_digest seed config assumptions")  # fmt: skip
    assert list(made) == keys.split()
    assert (made["version"], made["trace_digest"], made["seed"]) == (__version__, trace_digest(SIX), 3)
    assert made["config"]["parameters"] == {"thresholds_gpu_s": [4]}
    assert made["config"]["nodes"] == [4]


def test_session__physics_adds_slowdown() -> None:
    """Beside the other keys; without physics there is none."""
    words = {"cluster": "2x8", "placement": "linked", "topology": "dgx-1v"}
    made = figures(physics="spread:node=0.9", **words)
    assert made["mean_slowdown"] == 1.0
    assert made["config"]["physics"] == "spread:node=0.9"
    assert "mean_slowdown" not in figures(cluster="2x8", placement="linked")


def test_session__recorded_physics_is_the_plain_cluster() -> None:
    """The same figures with its words and without."""
    plain, told = figures(placement="consolidated"), figures(placement="consolidated", physics="recorded")
    assert {**plain, "wall_s": 0} == {**told, "wall_s": 0}


def test_session__placement_takes_parameters() -> None:
    """As a policy does; a wrong one is named as the placement's."""
    assert figures(placement="linked:objective=sum")["jobs"] == 6
    with pytest.raises(ConfigError, match="placement: linked has no parameter 'objektive'"):
        figures(placement="linked:objektive=sum")


def test_session__costs_of_physics_are_the_model_s() -> None:
    """A restart cost told by the physics is that of --restart-cost; two different ones are refused."""
    words = {"policy": "srtf", "placement": "consolidated"}
    by_physics = figures(physics="spread:restart_cost_s=5", **words)
    assert by_physics["config"]["restart_cost_s"] == 5
    assert by_physics["avg_jct_s"] == figures(restart_cost_s=5.0, **words)["avg_jct_s"]
    with pytest.raises(ConfigError, match=r"restart_cost_s: is 5 by the physics and 4.0 beside it"):
        figures(physics="spread:restart_cost_s=5", restart_cost_s=4.0, **words)


def test_session__slurm_model_steers_by_levers() -> None:
    """All jobs end under slurmctld's rules too, later than on the ideal cluster."""
    made = figures(policy="srtf", model="slurm", placement="consolidated")
    assert made["jobs"] == 6
    assert made["avg_jct_s"] > figures(policy="srtf")["avg_jct_s"]
    assert figures(policy="slurm", model="slurm")["config"]["policy"] == "slurm"


@pytest.mark.parametrize(
    "words",
    [{"policy": "fifoo"}, {"policy": "slurm"}, {"policy": "fjf", "model": "slurm"}, {"placement": "nowhere"},
     {"backfill": "all"}, {"physics": "spread"}, {"physics": "magic", "placement": "linked"},
     {"topology": "dgx-1v"}, {"topology": "nowhere", "placement": "linked"},
     {"physics": "spread:across=2", "placement": "linked"}, {"physics": "gpu-types", "placement": "linked"},
     {"physics": "spread", "model": "slurm"}, {"policy": "slurm:foo=1", "model": "slurm"},
     {"policy": "easy:foo=1", "model": "slurm"}, {"policy": "gittins", "model": "slurm", "history": "needed.csv"},
     {"physics": "spread:restart_cost_s=-1", "placement": "linked"}],
)  # fmt: skip
def test_session__refuses_words_that_name_nothing(words: dict[str, str]) -> None:
    """Before anything is played."""
    with pytest.raises(ConfigError):
        ReplaySession(SIX, ReplayRequest(**{"cluster": "1x4", **words}))  # type: ignore[arg-type]


def test_session__interrupted_keeps_what_ended() -> None:
    """Ctrl-C goes through; the figures are of the jobs that ended, and say so."""
    session = ReplaySession(SIX, ReplayRequest(cluster="1x4", policy="srtf"))

    def stop(ended: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.run(stop)
    made = session.replayed.figures
    assert (made["jobs"], made["complete"], made["jobs_of_trace"]) == (0, False, 6)


def test_history__is_shipped_and_read_from_files(tmp_path: Path) -> None:
    """1,001 samples of Tiresias; a CSV column of one's own; anything else is refused by name."""
    path = tmp_path / "needed.csv"
    path.write_text("gpu_s\n5\n3.5\n")
    assert (len(read_history("")), read_history(str(path)).tolist()) == (1_001, [5.0, 3.5])
    for wrong in (b"gpu_s\nmany\n", gzip.compress(b"gpu_s\n5\n")[:-6], b"\x1f\x8b\x08 no gzip at all"):
        path.write_bytes(wrong)
        with pytest.raises(InputError, match=r"needed\.csv: is no column of numbers"):
            read_history(str(path))


THREE = Trace.of([1, 2, 3], [1, 1, 1], [0, 0, 0], [600, 600, 600], user=["ann", "ann", "bob"], qos=["few"] * 3)
FEW = """
[[nodes]]
gpus = 4
[[qos]]
name = "few"
max_jobs_per_user = 1
"""


def test_slurm_model__limits_act_on_the_users_of_the_trace(tmp_path: Path) -> None:
    """Of ann's two jobs the second waits for the first, bob's does not."""
    path = tmp_path / "site.toml"
    path.write_text(FEW)
    session = ReplaySession(THREE, ReplayRequest(cluster=str(path), model="slurm", policy="slurm"))
    session.run()
    starts_s = session.replayed.outcomes.first_start_s.tolist()
    assert starts_s[0] < 60 <= 600 <= starts_s[1]
    assert starts_s[2] < 60


def test_slurm_model__takes_settings_by_name() -> None:
    """Latency of our own writes and the like; an unknown one is named."""
    run = figures(cluster="1x4", model="slurm", policy="srsf", settings={"rpc_latency_s": 0.5})
    assert (run["jobs"], run["config"]["slurm"]) == (6, {"rpc_latency_s": 0.5})
    with pytest.raises(ConfigError, match=r"model\.speed: is no setting"):
        figures(model="slurm", policy="srsf", settings={"speed": 2})


# One GPU, a long job, and short ones behind it that come when it has had much.
LONG = Trace.of([1, 2, 3], [1, 1, 1], [0, 7_300, 7_400], [40_000, 600, 600], [80_000, 3_600, 3_600])


@pytest.mark.parametrize("policy", ["slurm", "discretized-las", "srsf"])
def test_slurm_model__nice_alone_stops_no_running_job(policy: str) -> None:
    """Whatever the order of those that wait, they wait for the end of the job that runs."""
    run = ReplaySession(LONG, ReplayRequest(cluster="1x1", model="slurm", policy=policy, requeue=False)).run()
    assert run.figures["preemptions"] == 0
    assert run.outcomes.first_start_s[1:].min() >= 40_000


@pytest.mark.parametrize("policy", ["discretized-las", "srsf"])
def test_slurm_model__a_requeue_frees_what_nice_cannot(policy: str) -> None:
    """The short jobs run as soon as KillWait is over; the long one goes on after them."""
    run = ReplaySession(LONG, ReplayRequest(cluster="1x1", model="slurm", policy=policy)).run()
    assert run.outcomes.preemptions.tolist() == [1, 0, 0]
    assert run.outcomes.first_start_s[1:].max() < 9_000


def test_session__tells_the_deadlines_met() -> None:
    """Two of four jobs tell deadlines, on one GPU: the first ends in time, the second not; without any no such key."""
    comments = ["slurmsched: deadline=+9s", "slurmsched: deadline=+9s", "", "slurmsched: dur=5s"]
    trace = Trace.of([1, 2, 3, 4], [1] * 4, [0] * 4, [5] * 4, comment=Labels.of(comments))
    told = ReplaySession(trace, ReplayRequest(cluster="1x1")).run().figures
    assert told["trace_digest"] != trace_digest(trace.with_columns(comment=Labels.constant("", 4)))
    assert (told["deadlines"], told["deadlines_met"]) == (2, 0.5)
    assert "deadlines" not in figures()


def test_slurm_model__tells_who_is_not_let_in(tmp_path: Path) -> None:
    """Jobs that a partition never lets start are in no figure but `refused`; without any the key is not there."""
    path = tmp_path / "site.toml"
    path.write_text(FEW + "\n[[partitions]]\nname = 'gpu'\nmax_time_s = 1\n")
    session = ReplaySession(
        THREE.with_columns(limit_known=[True, False, False]), ReplayRequest(cluster=str(path), model="slurm")
    )
    replayed = session.run()
    assert replayed.refused == {"PartitionTimeLimit": 1}
    assert (replayed.figures["refused"], replayed.figures["jobs"]) == (1, 2)
    assert "refused" not in figures(cluster="1x4", model="slurm")


@pytest.mark.parametrize(
    "placement", ["consolidated", "best-fit", "linked", "spread", "ffdl", "mapa", "sched2", "harmony"]
)
@pytest.mark.parametrize(("cluster", "gpus"), [("1x8:v100+1x4:v100", [12]), ("2x8:v100", [12, 4])])
def test_session__a_gang_for_which_no_nodes_were_asked(placement: str, cluster: str, gpus: list[int]) -> None:
    """12 GPUs are eight and four: they fit a node of eight and one of four, and beside them four GPUs of one node."""
    jobs = len(gpus)
    trace = Trace.of(list(range(1, jobs + 1)), gpus, [0] * jobs, [10] * jobs)
    played = ReplaySession(trace, ReplayRequest(cluster=cluster, policy="fifo", placement=placement)).run()
    assert played.figures["makespan_s"] == 10


@pytest.mark.parametrize(
    ("policy", "requeue", "jobs", "fewer"),
    [("srsf", False, 3, 4), ("fifo", True, 3, 4), ("las", True, 3, 1), ("srsf", True, 2, 5), ("fifo", False, 2, 12)],
)
def test_run__makes_few_cycles_while_nothing_happens(
    monkeypatch: pytest.MonkeyPatch, policy: str, requeue: bool, jobs: int, fewer: int
) -> None:
    """Two jobs wait for five hours: the same starts, nice values and number of cycles, of which fewer are made. One
    that waits alone has no order: neither its age nor usage makes a cycle. Of a policy whose order may change by itself
    none is left out."""
    trace = Trace.of([1, 2, 3], [8, 8, 4], [0, 10, 3600], [18_000, 3_600, 3_600], user=["a", "b", "c"]).first(jobs)
    usage = {"weight_fairshare": 1000} if jobs < 3 else {}
    request = ReplayRequest(cluster="1x8", model="slurm", policy=policy, requeue=requeue, settings=usage)
    plan, made = Planner.plan, list[tuple[tuple[Any, ...], int]]()
    for patched in (False, True):
        calls = list[float]()

        def noted(planner: Planner, snapshot: Snapshot, calls: list[float] = calls) -> Plan:
            calls.append(snapshot.now_s)
            return plan(planner, snapshot)

        monkeypatch.setattr(Planner, "plan", noted)
        if patched:
            monkeypatch.setattr(QuietTimes, "until", lambda *_: -math.inf)
        run = ReplaySession(trace, request).run()
        assert isinstance(run.cluster, SimulatedSlurmctld)
        job = run.cluster.job
        made.append(((run.cycles, job.first_start_s.tolist(), job.end_s.tolist(), job.nice.tolist()), len(calls)))
    assert made[0][0] == made[1][0]
    assert made[0][1] * fewer <= made[1][1] == made[1][0][0]
