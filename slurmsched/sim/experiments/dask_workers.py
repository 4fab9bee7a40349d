"""Dask workers for a sweep, as Slurm jobs or of a running scheduler."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurmsched import __version__
from slurmsched.errors import InputError, SlurmError, SlurmUnreachableError, WorkersLostError
from slurmsched.model.trace import Trace
from slurmsched.sim.experiments.worker_processes import SweepWorkers
from slurmsched.slurm.commands import Commands, argument_batches

CONNECT_S, CLOSE_S = 10.0, 30.0
ASK_S = 30.0  # between two questions to Slurm
GRACE_S = 60.0  # Dask connects anew within 30 s; it replaces a worker 15 s after that has gone
ATTEMPTS = 3
CONNECTS, PAUSE_S = 3, 1.0
TELL_S = 15.0  # without a worker
# What a worker's job asks for where the site's Dask configuration (jobqueue.slurm) says nothing of its own.
JOB = {"cores": 1, "processes": 1, "memory": "4 GiB", "name": "slurmsched-sweep", "walltime": "1-00:00:00"}
DASKS_OWN = {"name": "dask-worker", "walltime": "00:30:00"}
TLS, TCP = "tls://", "tcp://"
SAFE_PATH = "export PYTHONSAFEPATH=1"  # a worker takes no module from the folder it is started in
Message = Callable[[str], None]


@contextmanager
def scheduler(address: str, tell: Message) -> Iterator[SweepWorkers]:
    """The workers of a running Dask scheduler. tell: given a line where none comes. Raises InputError without Dask, or
    if it does not answer."""
    distributed = _dask("distributed")
    try:
        client = distributed.Client(address, timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler answers: {error}", source=address) from error
    with _ended(client):
        yield _workers(client, DaskJobs(client, tell=tell, address=address))


@contextmanager
def slurm_jobs(count: int, folder: Path, tell: Message) -> Iterator[SweepWorkers]:
    """That many Slurm jobs, a Dask worker each; they end with the body.

    They talk with this process by TLS with a key made for this run, or in clear text where Dask's configuration says so
    (jobqueue.slurm.protocol: "tcp://").

    What they ask for comes from Dask's own configuration, jobqueue.slurm, over JOB.

    folder: for their key, which only its owner can read, and their logs. All machines see it. It is made if missing.
    tell: gets a line if no worker comes.
    Raises InputError without Dask or for a configuration that Dask refuses. Raises SlurmError if Slurm refuses such a
    job, and WorkersLostError if Dask does not reach its own scheduler.
    """
    distributed, jobqueue = _dask("distributed"), _dask("dask_jobqueue")
    try:
        folder.mkdir(exist_ok=True)
        asked = job_settings(_dask("dask").config, folder)
        security = distributed.Security.temporary() if asked["protocol"] == TLS else None
        cluster = jobqueue.SLURMCluster(security=security, **asked)
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"dask-jobqueue cannot describe a worker's job: {error}") from error
    with _forgotten(cluster), _ended(cluster, _cancelled), _ended(_client(distributed, cluster)) as client:
        Commands().run("sbatch", "--test-only", stdin=cluster.job_script())  # Dask would try for ever, silently
        # unlike scale, it replaces a job that has ended
        adaptive = cluster.adapt(minimum_jobs=count, maximum_jobs=count)
        yield _workers(client, DaskJobs(client, cluster, adaptive, folder, tell))


def _client(distributed: Any, cluster: Any) -> Any:
    try:
        return distributed.Client(cluster)
    except OSError as error:
        raise WorkersLostError(f"Dask does not reach its own scheduler: {error}") from error


@contextmanager
def _ended(made: Any, rest: Callable[[Sequence[str]], None] = lambda _: None) -> Iterator[Any]:
    """A client or cluster of Dask's for the body, and its end, which may fail after a break of the connection. rest:
    what is to be done then, given the ids of a cluster's jobs."""
    try:
        yield made
    finally:
        jobs = _job_ids(made)
        try:
            made.close(timeout=CLOSE_S)
        except Exception:  # Dask's, of many kinds, and after the work
            rest(jobs)


def _cancelled(jobs: Sequence[str]) -> None:
    if jobs:
        with suppress(SlurmError):
            Commands().run("scancel", *jobs)


def _job_ids(cluster: Any) -> list[str]:
    """Of the jobs that Slurm was given for its workers, if it has any."""
    workers = dict(getattr(cluster, "workers", None) or {})
    return [str(job.job_id) for job in workers.values() if getattr(job, "job_id", None)]


@contextmanager
def _forgotten(cluster: Any) -> Iterator[None]:
    """Remove the files with the key when the body ends: dask-jobqueue leaves that to the garbage collector, which does
    not always come to them."""
    try:
        yield
    finally:
        for name in ("_job_key", "_job_cert", "_job_ca_file"):
            if file := getattr(cluster, name, None):
                file.close()


def job_settings(config: Any, folder: Path) -> dict[str, Any]:
    """Arguments of SLURMCluster but for the key. config: Dask's; jobqueue.slurm comes first where it says something.
    Raises InputError for a protocol that is none of the two."""
    given: Mapping[str, Any] = config.get("jobqueue.slurm", {})
    site = {name.replace("_", "-"): value for name, value in given.items()}  # variables give names with underscores
    places = {"log-directory": str(folder), "shared-temp-directory": str(folder)}
    asked = {name: value for name, value in {**JOB, **places}.items() if site.get(name) in (None, DASKS_OWN.get(name))}
    theirs = site.get("job-script-prologue") or site.get("env-extra")  # the second is its older name
    if (protocol := site.get("protocol") or TLS) not in (TLS, TCP):
        raise InputError(f"{protocol!r} is neither {TLS!r} nor {TCP!r}", source="jobqueue.slurm.protocol")
    options = {"dashboard_address": "127.0.0.1:0", **(site.get("scheduler-options") or {})}
    made = {name.replace("-", "_"): value for name, value in asked.items()}
    job_name = {"job_name": made.pop("name")} if "name" in made else {}
    prologue = [*_listed(theirs), SAFE_PATH]
    return {**made, **job_name, "job_script_prologue": prologue, "scheduler_options": options, "protocol": protocol}


def _listed(value: Any) -> list[Any]:
    """A setting that is one text, a list or nothing."""
    return [value] if isinstance(value, str) else list(value or ())


@dataclass(slots=True)
class DaskJobs:
    """Says why nothing more is to be expected of the workers, when that has held for GRACE_S; "" until then.

    cluster, adaptive, folder: where the workers are jobs of ours, what submits them and where their logs are.
    tell: given a line when no worker was there for TELL_S, though one may still come.
    address: of a scheduler that is not ours.
    """

    client: Any
    cluster: Any = None
    adaptive: Any = None
    folder: Path = Path()
    tell: Message = lambda line: None
    address: str = ""
    _alone_s: float | None = field(init=False, default=None)  # since when; infinite once that is reported
    _since_s: float | None = field(init=False, default=None)
    _asked_s: float = field(init=False, default=-ASK_S)
    _states: dict[str, str] | None = field(init=False, default=None)  # what Slurm said then

    def __call__(self) -> str:
        reason = self.reason()
        now_s = time.monotonic()
        if not reason:
            self._since_s = None
            self._tell_who_waits(now_s)
            return ""
        self._since_s = now_s if self._since_s is None else self._since_s
        return reason if now_s - self._since_s >= GRACE_S else ""

    def reason(self) -> str:
        """What is wrong at this moment."""
        comm = self.client.scheduler_comm
        if self.client.status == "closed" or comm is None or comm.closed():
            return "the connection to Dask's scheduler broke"
        if self.cluster is None or self.cluster.scheduler.workers:
            return ""
        if self.adaptive.periodic_callback is None:
            return "Dask has stopped to submit workers"
        if time.monotonic() - self._asked_s >= ASK_S:
            self._ask()
        known = self._states is None or self._states
        return "" if known else f"no worker is connected or in Slurm's queue; their logs are in {self.folder}"

    def _tell_who_waits(self, now_s: float) -> None:
        """Once for each time without workers."""
        if self._connected():
            self._alone_s = None
        elif self._alone_s is None:
            self._alone_s = now_s
        elif now_s - self._alone_s >= TELL_S:
            self._alone_s = math.inf
            self.tell(f"{self._missing()}; the sweep goes on when one comes")

    def _connected(self) -> bool:
        if self.cluster is not None:
            return bool(self.cluster.scheduler.workers)
        try:
            return bool(self.client.nthreads())
        except OSError:  # Dask connects anew
            return True

    def _missing(self) -> str:
        if self.cluster is not None:
            return f"no worker yet: {self._coming()}"
        start = f"start one by `dask worker {self.address}` on a machine with slurmsched {__version__}"
        return f"no worker is connected to {self.address}; {start}"

    def _coming(self) -> str:
        """What is known of the workers' jobs at this moment."""
        self._ask()
        if self._states is None:
            return f"Slurm does not answer for their jobs {','.join(_job_ids(self.cluster))}"
        waiting = [job for job, state in self._states.items() if state == "PENDING"]
        begun = [job for job in self._states if job not in waiting]
        said = [f"jobs {','.join(waiting)} are in Slurm's queue"] if waiting else []
        if begun:
            said.append(f"jobs {','.join(begun)} have begun, but their workers have not come (logs in {self.folder})")
        return "; ".join(said) or f"Slurm has no job of theirs (logs in {self.folder})"

    def _ask(self) -> None:
        """The state of each worker's job that Slurm knows, by its id; None if it does not answer."""
        self._asked_s, self._states = time.monotonic(), {}
        if not (jobs := _job_ids(self.cluster)):
            return
        try:
            options = [f"--jobs={listed}" for listed in argument_batches(jobs)]
            answer = "\n".join(Commands().run("squeue", "--noheader", each, "--format=%i %T") for each in options)
            self._states = dict(line.split() for line in answer.splitlines() if line.strip())
        except SlurmUnreachableError:
            self._states = None
        except SlurmError:  # of a single job that it no longer knows it says that the id is invalid
            pass


def _workers(client: Any, watch: DaskJobs) -> SweepWorkers:
    """The client's executor. A trace is sent once to each worker, not with each task: as the result of a task, which
    Dask makes again where it was lost with a worker. What it scatters is lost, and then what was played of it too."""

    def share(trace: Trace) -> Any:
        for attempts_after in reversed(range(CONNECTS)):
            try:
                _arrived(client, watch)  # however long Slurm's queue is
                return client.submit(unchanged, trace, pure=False)
            except OSError as error:  # Dask connects anew
                if not attempts_after:
                    raise WorkersLostError(f"the connection to Dask broke: {error}") from error
                time.sleep(PAUSE_S)
        return None

    return SweepWorkers(client.get_executor(pure=False), share, ATTEMPTS, watch)


def unchanged(trace: Trace) -> Trace:
    """The trace, on a worker."""
    return trace


def _arrived(client: Any, watch: DaskJobs) -> None:
    """Wait for a worker. Raises WorkersLostError when none is to be expected, OSError when the connection breaks."""
    while not client.nthreads():
        if reason := watch():
            raise WorkersLostError(reason)
        time.sleep(PAUSE_S)


def _dask(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"Dask is not installed here ({error}): pip install 'slurmsched[sweep]'") from error
