"""`job wants`: writes requests to a running job into a file that the job reads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from slurmsched.cli import completers, framework
from slurmsched.cli.framework import CommandGroup, JobId, Output, clock, complain, read_config

if TYPE_CHECKING:
    from slurmsched.config import Config
    from slurmsched.db.signal_log import SignalLog
    from slurmsched.model.plan import Outcome, Signal
    from slurmsched.slurm.job_reports import RunningJobRequest
    from slurmsched.slurm.writer import CommandWriter


@click.group("job", cls=CommandGroup)
def command() -> None:
    """Ask a running job for something."""


@framework.examples(
    ("slurmsched job wants 4711", "Show the open requests to job 4711."),
    ("slurmsched job wants 4711 --size 2 --checkpoint", "Another size, and a checkpoint now."),
    ("slurmsched job wants 4711 --clear", "Withdraw all requests."),
)
@framework.with_command(command, "wants")
@click.argument("job", type=JobId(), shell_complete=completers.squeue("A"))
@click.option("--size", "gpus", type=click.IntRange(min=1), metavar="N", help="Ask it to run on this many GPUs.")
@click.option("--checkpoint", is_flag=True, help="Ask it to save a checkpoint now.")
@click.option("--stop", is_flag=True, help="Ask it to end, since its result is no longer needed.")
@click.option("--clear", is_flag=True, help="Withdraw all earlier requests.")
def wants(out: Output, job: int, gpus: int | None, checkpoint: bool, stop: bool, clear: bool) -> None:
    """Ask a running job for another size, a checkpoint or its end.

    The request is written to a file. A job that reads the file (`slurmsched-job wants`) decides when to act. Other jobs
    go on unchanged. A new request is added to earlier ones. Without an option the requests are shown.

    For a checkpoint slurmsched first signals a job with the hint save=, in dry-run too. If the job may not be
    signalled, the command ends with an error and writes no file. The job must be in scope. Nothing is sent while
    the stop file exists or slurmctld is busy. The signal is on record before it is sent; `slurmsched history` shows it.

    Needs job_reports.folder, and the right to write there. For a signal it needs the right to signal the job and to
    write beside ledger.journal.
    """
    from dataclasses import replace
    from pathlib import Path

    from slurmsched.errors import ConfigError
    from slurmsched.slurm.job_reports import RunningJobRequest, read_job_request, write_job_requests

    config = read_config(plugins=False)
    if gpus and not config.lever.size:
        raise ConfigError("is off, so the new size would not be written; set it to true", key="lever.size")
    asks = bool(gpus or checkpoint or stop)
    run, signal = _run(config, job, gpus or 0, checkpoint) if asks else (-1, None)
    folder = Path(config.job_reports.folder) if config.job_reports.folder else None
    if folder is None and (signal is None or gpus or stop or clear):
        raise ConfigError("is empty: name a folder that the nodes share", key="job_reports.folder")
    before = RunningJobRequest() if clear or folder is None else read_job_request(folder, job)
    wanted = replace(before, gpus=gpus or before.gpus, stop=stop or before.stop,
                     checkpoint_s=int(time.time()) if checkpoint else before.checkpoint_s)  # fmt: skip
    wanted = replace(wanted, run=run if gpus else wanted.run)
    if signal is not None:
        _send(config, signal)
    if folder is not None and (asks or clear):
        write_job_requests(folder, {job: wanted})
    if out.as_json:
        out.json({"job_id": job, "gpus": wanted.gpus or None, "checkpoint_s": wanted.checkpoint_s or None,
                  "stop": wanted.stop}, schema="wants")  # fmt: skip
    else:
        out.line(f"job {job}: {_in_words(wanted)}")


def _run(config: Config, job: int, gpus: int, checkpoint: bool) -> tuple[int, Signal | None]:
    """How often the job was restarted, and the signal at which it saves itself, if a checkpoint is asked for.

    Raises InputError for a job that does not run, a size that it cannot have, and a signal that it may not get.
    """
    from slurmsched.errors import InputError
    from slurmsched.model.hints import parse_hints
    from slurmsched.model.plan import Signal
    from slurmsched.planning.job_scope import signal_refusal, size_request_refusal
    from slurmsched.slurm.reader import read_cluster_once

    jobs = read_cluster_once(config, waiting=False).jobs
    row = jobs.row_of(job)
    if row < 0 or not jobs.running[row]:
        raise InputError(f"job {job} is not running; only a running job can be asked")
    if gpus and (why := size_request_refusal(jobs, row, gpus, config.scope)):
        raise InputError(f"job {job} {why}")
    name, restarts = parse_hints(jobs.comment[row]).save, int(jobs.restarts[row])
    if not (name and checkpoint):
        return restarts, None
    if why := signal_refusal(jobs, row, config.scope):
        raise InputError(f"job {job} {why}")
    return restarts, Signal(*jobs.id_and_submit(row), "a checkpoint is wanted of it", f"save-{job}", name, restarts)


def _send(config: Config, signal: Signal) -> None:
    """Signal the job if it is still the same run. The signal is on record before it is sent.

    Raises InputError if it is not, PausedError or BusyError where nothing may be sent, SlurmError if Slurm refuses.
    Raises LedgerError or RightsError if it cannot be put on record; then nothing is sent.
    """
    from functools import partial

    from slurmsched.db.signal_log import SignalLog
    from slurmsched.errors import InputError, SlurmError
    from slurmsched.planning.gate import GateContext, GateTime, refusal
    from slurmsched.slurm.live_cluster import HINDRANCES, SendCheck
    from slurmsched.slurm.reader import open_commands
    from slurmsched.slurm.recheck import Recheck
    from slurmsched.slurm.site import read_load
    from slurmsched.slurm.writer import CommandWriter, WritePacer

    commands = open_commands(config.slurm)
    stopped = SendCheck(config.cycle.stop_file).stopped
    busy = "" if stopped else WritePacer(config.pace, partial(read_load, commands)).busy()
    if found := refusal(None, GateContext(stopped=stopped, busy=busy), GateTime.APPLY):
        raise HINDRANCES[found.rule](found.reason)
    if found := refusal(signal, GateContext(seen=Recheck(commands)([signal])), GateTime.SEND):
        raise InputError(f"job {signal.job_id} gets no signal: {found.reason}")
    outcome = _recorded(SignalLog(config.ledger.journal), CommandWriter(commands), signal)
    if outcome.status != "written":
        raise SlurmError(outcome.message)


def _recorded(record: SignalLog, writer: CommandWriter, signal: Signal) -> Outcome:
    """Put the signal on record, send it, and note Slurm's answer."""
    from slurmsched.errors import LedgerError
    from slurmsched.slurm.site import own_name

    sent = record.intend(signal, own_name())
    (outcome,) = writer.send([signal])
    try:
        record.answered(sent, outcome)
    except LedgerError as error:  # that it was sent is on record
        complain(str(error))
    return outcome


def _in_words(wanted: RunningJobRequest) -> str:
    parts = [f"{wanted.gpus} GPUs" if wanted.gpus else "",
             f"a checkpoint, asked for at {clock(wanted.checkpoint_s)}" if wanted.checkpoint_s else "",
             "to stop" if wanted.stop else ""]  # fmt: skip
    return ", ".join(filter(None, parts)) or "nothing is wanted of it"
