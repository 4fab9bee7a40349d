"""Running Slurm's commands, with small scripts in their place."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from slurmsched.errors import SlurmError, SlurmUnreachableError
from slurmsched.slurm.commands import Commands, clean_environment


@pytest.fixture
def script(tmp_path):
    """Makes a command of that name and returns Commands that find it."""

    def make(name: str, body: str, timeout_s: float = 20.0) -> Commands:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return Commands(str(tmp_path), timeout_s=timeout_s)

    return make


def test_run__gives_what_was_printed(script):
    """Output, with UTF-8 and whatever bytes are not UTF-8 replaced."""
    assert script("squeue", r"printf 'a\303\274\377'").run("squeue") == "aü\ufffd"


def test_run__passes_arguments_and_input(script):
    """Arguments unsplit, standard input as given."""
    assert script("scontrol", 'echo "$1|$2"; cat').run("scontrol", "a b", "c", stdin="show\n") == "a b|c\nshow\n"


def test_run__speaks_one_language(script, monkeypatch):
    """C locale, Unix seconds, full task lists; no variable of the user bends the output; slurm.conf as configured."""
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    lines = script("squeue", "env").run("squeue").splitlines()
    assert {"LC_ALL=C", "SLURM_TIME_FORMAT=%s", "SLURM_BITSTR_LEN=0"} <= set(lines)
    assert not [line for line in lines if line.startswith(("SQUEUE_", "SLURM_CLUSTERS", "LANG"))]


def test_clean_environment__keeps_where_the_cluster_is(monkeypatch):
    """SLURM_CONF stays unless another one is configured."""
    monkeypatch.setenv("SLURM_CONF", "/a")
    assert [clean_environment()["SLURM_CONF"], clean_environment("/b")["SLURM_CONF"]] == ["/a", "/b"]


@pytest.mark.parametrize(
    "message",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "slurm_load_jobs error: Zero Bytes were transmitted or received",
        "slurm_load_jobs error: Connection reset by peer",
        "sacct: error: Problem talking to the database: Resource temporarily unavailable",
        "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection: Connection refused",
        "squeue: error: resolve_ctls_from_dns_srv: fatal: Could not establish a configuration source",
    ],
)
def test_run__tells_that_slurm_is_away(script, message):
    """Slurm's own words for an absent daemon become one error that keeps them."""
    with pytest.raises(SlurmUnreachableError, match=r"squeue: .+"):
        script("squeue", f"echo '{message}' >&2; exit 1").run("squeue")


def test_run__passes_on_other_failures(script):
    """Any other failure is a SlurmError with the last words of the command."""
    with pytest.raises(SlurmError, match="Invalid user") as error:
        script("squeue", "echo 'squeue: error: Invalid user: x' >&2; exit 1").run("squeue")
    assert not isinstance(error.value, SlurmUnreachableError)


def test_run__names_the_program_once_and_each_line_once(script):
    """sacct begins every line with its name, and repeats itself where slurmdbd is away."""
    said = "sacct: error: open: Connection refused\\nsacct: error: open: Connection refused\\nsacct: error: no database"
    with pytest.raises(SlurmUnreachableError, match=r"^sacct: open: Connection refused; no database; is slurmdbd up"):
        script("sacct", f"printf '{said}' >&2; exit 1").run("sacct")


def test_run__ends_what_does_not_answer(script):
    """After timeout_s the process is ended and the error says which setting to change."""
    start_s = time.monotonic()
    with pytest.raises(SlurmUnreachableError, match="timeout_s"):
        script("squeue", "exec sleep 60", timeout_s=0.3).run("squeue")
    assert time.monotonic() - start_s < 10


def test_run__tells_that_a_program_is_missing(tmp_path):
    """The error names program, folder and setting."""
    with pytest.raises(SlurmUnreachableError, match=rf"no squeue in {tmp_path}.*slurm.bin_dir"):
        Commands(str(tmp_path)).run("squeue")


def test_start__runs_commands_side_by_side(script):
    """Two that wait for each other both end: the second runs before the first is collected."""
    commands = script("first", "while [ ! -e $0.go ]; do sleep 0.02; done; echo one")
    script("second", 'touch "$(dirname $0)/first.go"; echo two')
    first, second = commands.start("first"), commands.start("second")
    assert (first.text(), second.text()) == ("one\n", "two\n")


def test_start__does_not_stop_a_talkative_command(script):
    """More output than a pipe holds is there although nobody read it while the command ran."""
    started = script("squeue", 'head -c 3000000 /dev/zero | tr "\\0" x; touch $0.ended').start("squeue")
    ended = Path(script("squeue2", "true").bin_dir) / "squeue.ended"
    until_s = time.monotonic() + 20
    while not ended.exists() and time.monotonic() < until_s:
        time.sleep(0.02)
    assert ended.exists()
    assert len(started.text()) == 3_000_000


def test_abandon__leaves_nothing_behind(script):
    """An abandoned command is ended and its files are closed; doing it twice does no harm."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    started = script("squeue", "exec sleep 60").start("squeue")
    started.abandon()
    started.abandon()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
