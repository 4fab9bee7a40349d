"""What a worker's job is asked for, and when workers count as lost; Dask itself is tried in the lab."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurmsched import __version__
from slurmsched.errors import InputError, SlurmError, SlurmUnreachableError, WorkersLostError
from slurmsched.model.trace import Trace
from slurmsched.sim.experiments import dask_workers
from slurmsched.sim.experiments.dask_workers import GRACE_S, TELL_S, DaskJobs, job_settings, slurm_jobs


class Config(dict[str, Any]):
    """As dask.config: `get` by a dotted name."""


def settings(site: Mapping[str, Any], folder: Path, **more: Any) -> dict[str, Any]:
    return job_settings(Config({"jobqueue.slurm": site, **more}), folder)


def test_job_settings__the_sites_configuration_comes_first(tmp_path: Path) -> None:
    """What it leaves at Dask's default is ours, but for a walltime that Dask would set to half an hour."""
    ours = settings({"cores": None, "walltime": "00:30:00", "name": "dask-worker", "queue": None}, tmp_path)
    assert {name: ours[name] for name in ("cores", "memory", "walltime", "job_name", "log_directory")} == {
        "cores": 1, "memory": "4 GiB", "walltime": "1-00:00:00", "job_name": "slurmsched-sweep",
        "log_directory": str(tmp_path),
    }  # fmt: skip
    theirs = settings(
        {"cores": 2, "memory": "1GB", "walltime": "02:00:00", "name": "x", "log-directory": "l"}, tmp_path
    )
    assert {"cores", "memory", "walltime", "job_name", "log_directory"} & set(theirs) == set()


def test_job_settings__names_from_variables_count_too(tmp_path: Path) -> None:
    """DASK_JOBQUEUE__SLURM__JOB_SCRIPT_PROLOGUE stands in Dask's configuration with underscores."""
    site = {"job_script_prologue": ["module load x"], "log_directory": "l", "scheduler_options": {"port": 7}}
    made = settings(site, tmp_path)
    assert (made["job_script_prologue"][0], "log_directory" in made) == ("module load x", False)
    assert made["scheduler_options"] == {"dashboard_address": "127.0.0.1:0", "port": 7}


@pytest.mark.parametrize("name", ["job-script-prologue", "env-extra"])
def test_job_settings__a_prologue_may_be_one_line(name: str, tmp_path: Path) -> None:
    """As a variable gives it; under its older name too."""
    assert settings({name: "module load x"}, tmp_path)["job_script_prologue"][0] == "module load x"


def test_job_settings__workers_take_no_module_from_the_folder(tmp_path: Path) -> None:
    """That they are started in; what the site's prologue loads comes first, and nothing else is put in."""
    prologue = settings({"job-script-prologue": ["module load x"]}, tmp_path)["job_script_prologue"]
    assert prologue == ["module load x", "export PYTHONSAFEPATH=1"]


@pytest.mark.parametrize(
    ("site", "protocol"), [({}, "tls://"), ({"protocol": None}, "tls://"), ({"protocol": "tcp://"}, "tcp://")]
)
def test_job_settings__encrypted_unless_the_site_says_otherwise(
    site: dict[str, Any], protocol: str, tmp_path: Path
) -> None:
    """Clear text is a choice that somebody writes down."""
    assert settings(site, tmp_path)["protocol"] == protocol
    with pytest.raises(InputError, match="'ucx://' is neither 'tls://' nor 'tcp://'"):
        settings({"protocol": "ucx://"}, tmp_path)


class Cluster:
    """In the place of SLURMCluster: keeps what it was made with, and comes no further."""

    made: list[dict[str, Any]] = []  # noqa: RUF012

    def __init__(self, **words: Any) -> None:
        self.made.append(words)
        raise ValueError("enough")


@pytest.mark.parametrize(("protocol", "key"), [("tls://", "a key"), ("tcp://", None)])
def test_slurm_jobs__use_dasks_own_security(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str, key: str | None
) -> None:
    """A key for this run, made by Dask; none in clear text. Python's sockets stay as they are."""
    monkeypatch.setattr(Cluster, "made", [])
    distributed = SimpleNamespace(Security=SimpleNamespace(temporary=lambda: "a key"))
    config = Config({"jobqueue.slurm": {"protocol": protocol}})
    for name, module in (("distributed", distributed), ("dask_jobqueue", SimpleNamespace(SLURMCluster=Cluster)),
                         ("dask", SimpleNamespace(config=config))):  # fmt: skip
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(InputError, match="cannot describe a worker's job: enough"), slurm_jobs(1, tmp_path, print):
        pass
    assert [(words["protocol"], words["security"]) for words in Cluster.made] == [(protocol, key)]
    assert ssl.SSLContext.sslsocket_class is ssl.SSLSocket


def test_slurm_jobs__name_the_extra_where_dask_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An input error, not a traceback."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match="pip install 'slurmsched\\[sweep\\]'"), slurm_jobs(1, tmp_path, print):
        pass


class Slurm:
    """In the place of Commands. said: what squeue answers, or its error; asked: with which words."""

    said: str | Exception = "7\n"
    asked: list[tuple[str, ...]] = []  # noqa: RUF012

    def run(self, *words: str) -> str:
        self.asked.append(words)
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock to set, in the place of `time`, and no Slurm but ours."""
    made = SimpleNamespace(now_s=0.0)
    made.monotonic, made.sleep = lambda: made.now_s, lambda wait_s: setattr(made, "now_s", made.now_s + wait_s)
    monkeypatch.setattr(dask_workers, "time", made)
    monkeypatch.setattr(dask_workers, "Commands", Slurm)
    monkeypatch.setattr(Slurm, "said", "7 PENDING\n")
    monkeypatch.setattr(Slurm, "asked", [])
    return made


def watch(
    *, closed: bool = False, status: str = "running", workers: int = 0, jobs: tuple[Any, ...] = ("7",)
) -> DaskJobs:
    comm = SimpleNamespace(closed=lambda: closed)
    cluster = SimpleNamespace(
        scheduler=SimpleNamespace(workers=range(workers)),
        workers={n: SimpleNamespace(job_id=job) for n, job in enumerate(jobs)},
    )
    client = SimpleNamespace(status=status, scheduler_comm=comm)
    return DaskJobs(client, cluster, SimpleNamespace(periodic_callback=object()), Path("/logs"))


def test_watch__says_nothing_of_workers_that_are_well(clock: SimpleNamespace) -> None:
    """One is connected, or its job is in Slurm's queue however long; Slurm is asked for the second only, rarely
    and once more for what is told."""
    connected, queued = watch(workers=1), watch()
    for _ in range(1000):
        clock.now_s += 2.0
        assert (connected(), queued()) == ("", "")
    assert {words[0] for words in Slurm.asked} == {"squeue"} and len(Slurm.asked) <= 2000 / dask_workers.ASK_S + 2


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (watch(closed=True, workers=1), "the connection to Dask's scheduler broke"),
        (watch(status="closed", workers=1), "the connection to Dask's scheduler broke"),
        (watch(jobs=()), "no worker is connected or in Slurm's queue; their logs are in /logs"),
        (watch(jobs=(None,)), "no worker is connected or in Slurm's queue; their logs are in /logs"),
    ],
)
def test_watch__speaks_when_it_has_held_for_a_while(clock: SimpleNamespace, broken: DaskJobs, said: str) -> None:
    """Until then Dask may mend it."""
    assert broken() == ""
    clock.now_s += GRACE_S - 1
    assert broken() == ""
    clock.now_s += 1
    assert broken() == said


@pytest.mark.parametrize("answer", ["", "\n", SlurmError("squeue: Invalid job id specified")])
def test_watch__jobs_that_slurm_no_longer_knows_are_gone(clock: SimpleNamespace, answer: Any) -> None:
    """Though Dask still counts them as coming."""
    Slurm.said, lost = answer, watch()
    assert lost.reason().startswith("no worker is connected")
    assert Slurm.asked[0][2] == "--jobs=7"


def test_watch__slurm_that_is_down_says_nothing_of_jobs(clock: SimpleNamespace) -> None:
    """They may run."""
    Slurm.said = SlurmUnreachableError("slurmctld is down")
    assert watch().reason() == ""


def test_watch__what_is_mended_counts_from_the_beginning(clock: SimpleNamespace) -> None:
    """A connection that was away twice for less than the grace is no loss."""
    now = watch(closed=True, workers=1)
    for _ in range(3):
        now.client.scheduler_comm = None
        assert now() == ""
        clock.now_s += GRACE_S - 1
        now.client.scheduler_comm = SimpleNamespace(closed=lambda: False)
        assert now() == ""
        clock.now_s += 1


def test_watch__notices_that_dask_no_longer_submits(clock: SimpleNamespace) -> None:
    """Its adaptive scaling has stopped: lost workers stay lost."""
    stopped = watch()
    stopped.adaptive = SimpleNamespace(periodic_callback=None)
    assert stopped.reason() == "Dask has stopped to submit workers"


class Client:
    """Answers `nthreads` in turn; OSError is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.submitted = list(answers), 0

    def nthreads(self) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def submit(self, task: Any, trace: Trace, **_: Any) -> Trace:
        self.submitted += 1
        return task(trace)

    def get_executor(self, **_: Any) -> Any:
        return None


SIX = Trace.of([1], [2], [0], [6])


def test_share__waits_for_a_worker_and_for_the_connection(clock: SimpleNamespace) -> None:
    """A break in between is tried again."""
    client = Client({}, OSError("broken"), {}, {"tls://1": 1})
    made = dask_workers._workers(client, watch())
    assert (made.share(SIX), client.submitted) == (SIX, 1)


def test_share__gives_up_on_what_does_not_come(clock: SimpleNamespace) -> None:
    """A connection that breaks each time; workers that the watch gives up."""
    with pytest.raises(WorkersLostError, match="the connection to Dask broke: broken"):
        dask_workers._workers(Client(OSError("broken")), watch()).share(SIX)
    with pytest.raises(WorkersLostError, match="no worker is connected"):
        dask_workers._workers(Client({}), watch(jobs=())).share(SIX)
    assert GRACE_S <= clock.now_s <= GRACE_S + 10


def test_watch__tells_how_to_start_workers_where_none_comes(clock: SimpleNamespace) -> None:
    """Of a scheduler that runs already: once after a while, again when those that came have gone; it is no loss."""
    told = list[str]()
    client = Client({})
    client.status, client.scheduler_comm = "running", SimpleNamespace(closed=lambda: False)
    now = DaskJobs(client, tell=told.append, address="tcp://s:8786")
    for said, (answer, wait_s) in enumerate([({}, 0.0), ({}, TELL_S), ({}, GRACE_S), ({"w": 1}, 1.0), ({}, TELL_S)]):
        client.answers, clock.now_s = [answer], clock.now_s + wait_s
        assert (now(), len(told)) == ("", min(said, 1))
    client.answers, clock.now_s = [OSError("broken")], clock.now_s + TELL_S
    assert (now(), len(told)) == ("", 1)
    for _ in range(2):
        client.answers, clock.now_s = [{}], clock.now_s + TELL_S
        assert now() == ""
    start = f"start one by `dask worker tcp://s:8786` on a machine with slurmsched {__version__}"
    assert told == [f"no worker is connected to tcp://s:8786; {start}; the sweep goes on when one comes"] * 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [("7 PENDING\n9 PENDING\n", "jobs 7,9 are in Slurm's queue"),
     ("7 RUNNING\n9 PENDING\n",
      "jobs 9 are in Slurm's queue; jobs 7 have begun, but their workers have not come (logs in /logs)"),
     (SlurmUnreachableError("down"), "Slurm does not answer for their jobs 7,9"),
     ("", "Slurm has no job of theirs (logs in /logs)")],
)  # fmt: skip
def test_watch__tells_what_slurm_says_of_the_workers_jobs(clock: SimpleNamespace, answer: Any, said: str) -> None:
    """Which wait and which have begun, by what it answers at that moment."""
    told, now = list[str](), watch(jobs=("7", "9"))
    now.tell = told.append
    assert now() == ""
    clock.now_s, Slurm.said = clock.now_s + TELL_S, answer
    for _ in range(3):
        assert now() == ""
        clock.now_s += 1.0
    assert told == [f"no worker yet: {said}; the sweep goes on when one comes"]


class Closing:
    """A cluster of two jobs, one of them not yet submitted, that does not close well."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.workers = {0: SimpleNamespace(job_id="7"), 1: SimpleNamespace(job_id=None), 2: SimpleNamespace(job_id="9")}

    def close(self, timeout: float) -> None:
        self.workers = {}
        if self.error:
            raise self.error


@pytest.mark.parametrize(("error", "asked"), [(None, []), (TimeoutError(), [("scancel", "7", "9")])])
def test_ended__cancels_the_jobs_that_dask_did_not(
    clock: SimpleNamespace, error: Exception | None, asked: list[tuple[str, ...]]
) -> None:
    """And hides no error of the work behind that of the closing."""
    with pytest.raises(KeyError), dask_workers._ended(Closing(error), dask_workers._cancelled):
        raise KeyError
    assert Slurm.asked == asked
