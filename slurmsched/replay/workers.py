"""Who plays the points of a sweep: processes of this machine, or Dask workers, in Slurm jobs or started by hand."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

from slurmsched.errors import InputError, SlurmschedError
from slurmsched.replay.traces import Trace
from slurmsched.slurm.commands import Commands

CONNECT_S = 10.0
ATTEMPTS = 3
CONNECTS, PAUSE_S = 10, 1.0  # the same break may meet several connections in a row
# What a worker's job asks for where the site's Dask configuration (jobqueue.slurm) says nothing of its own.
JOB = {"cores": 1, "processes": 1, "memory": "4 GiB", "name": "slurmsched-sweep", "walltime": "1-00:00:00"}
# With OpenSSL 3.5 and 3.6 Dask's TLS connections break at times (a read gives EPIPE), with TLS 1.3 more often.
TLS = "export DASK_DISTRIBUTED__COMM__TLS__MAX_VERSION=1.2"
DASKS_OWN = {"name": "dask-worker", "walltime": "00:30:00"}


@dataclass(frozen=True, slots=True)
class Workers:
    """executor: takes the replays. share: a trace as the executor's tasks are to be given it. attempts: how often a
    point is given out that is lost with a worker, or with the trace that only this worker held."""

    executor: Executor
    share: Callable[[Trace], Any] = lambda trace: trace
    attempts: int = 1


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def processes(count: int) -> Iterator[Workers]:
    """So many processes of this machine, a replay at a time each. When the body fails, or this process is killed, they
    end at once."""
    context = multiprocessing.get_context("spawn")  # a fork would copy the locks of other threads as they are
    executor = ProcessPoolExecutor(count, context, initializer=_begin)
    try:
        yield Workers(executor)
    except BaseException:
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def _begin() -> None:
    """In a worker: Ctrl-C is for its parent to act on, and it does not outlive its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


@contextmanager
def scheduler(address: str) -> Iterator[Workers]:
    """The workers of a running Dask scheduler. Raises InputError without Dask, or if it does not answer."""
    distributed = _dask("distributed")
    try:
        client = distributed.Client(address, timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler answers: {error}", source=address) from error
    with client:
        yield _workers(client)


@contextmanager
def slurm_jobs(count: int, folder: Path) -> Iterator[Workers]:
    """So many Slurm jobs, a Dask worker each, that talk with this process by TLS; they end with the body.

    What they ask for comes from Dask's own configuration, jobqueue.slurm, over JOB. folder: made where there is
    none, seen by all machines, for their key, which its owner alone can read, and their logs. Raises InputError
    without Dask or for a configuration that it refuses, SlurmError when Slurm would not take such a job.
    """
    distributed, jobqueue = _dask("distributed"), _dask("dask_jobqueue")
    try:
        folder.mkdir(exist_ok=True)
        asked = job_settings(_dask("dask").config.get("jobqueue.slurm", {}), folder)
        key = distributed.Security.temporary(tls_max_version=ssl.TLSVersion.TLSv1_2)
        cluster = jobqueue.SLURMCluster(security=key, protocol="tls://", **asked)
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"dask-jobqueue cannot describe a worker's job: {error}") from error
    with _forgotten(cluster), cluster, distributed.Client(cluster) as client:
        Commands().run("sbatch", "--test-only", stdin=cluster.job_script())  # Dask would try for ever, silently
        cluster.adapt(minimum_jobs=count, maximum_jobs=count)  # unlike scale, it replaces a job that has ended
        yield _workers(client)


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


def job_settings(site: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Arguments of SLURMCluster. site: the configuration jobqueue.slurm, which comes first where it says something."""
    places = {"log-directory": str(folder), "shared-temp-directory": str(folder)}
    asked = {name: value for name, value in {**JOB, **places}.items() if site.get(name) in (None, DASKS_OWN.get(name))}
    prologue = [*(site.get("job-script-prologue") or ()), TLS]
    options = {"dashboard_address": "127.0.0.1:0", **(site.get("scheduler-options") or {})}
    made = {name.replace("-", "_"): value for name, value in asked.items()}
    job_name = {"job_name": made.pop("name")} if "name" in made else {}
    return {**made, **job_name, "job_script_prologue": prologue, "scheduler_options": options}


def _workers(client: Any) -> Workers:
    """The client's executor. A trace is sent once to each worker, not with each task."""

    def share(trace: Trace) -> Any:
        for left in reversed(range(CONNECTS)):
            try:
                client.wait_for_workers(1)  # however long Slurm's queue is; scatter would give up
                return client.scatter(trace)
            except OSError as error:  # Dask connects anew
                if not left:
                    raise SlurmschedError(f"the connection to Dask broke {CONNECTS} times: {error}") from error
                time.sleep(PAUSE_S)
        return None

    return Workers(client.get_executor(pure=False), share, ATTEMPTS)


def _dask(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"Dask is not installed here ({error}): pip install 'slurmsched[sweep]'") from error
