"""Running Slurm's commands, with small scripts in their place."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmsched.errors import SlurmError, SlurmUnreachableError
from slurmsched.model import SetNice
from slurmsched.slurm.accounting import read_typical_run_times
from slurmsched.slurm.commands import MOST_BYTES, Commands, argument_batches, clean_environment, node_batches
from slurmsched.slurm.cons_tres import read_shapes
from slurmsched.slurm.reader import CommandReader, read_few
from slurmsched.slurm.recheck import Recheck
from slurmsched.slurm.squeue import GROUPS


@pytest.fixture
def script(tmp_path):
    """Makes a command of that name and returns Commands that find it."""

    def make(name: str, body: str, timeout_s: float = 20.0) -> Commands:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return Commands(str(tmp_path), timeout_s=timeout_s)

    return make


def wait_for(happened: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 20
    while not happened() and time.monotonic() < until_s:
        time.sleep(0.02)
    assert happened()


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


def test_begin__starts_a_command_whose_answer_run_takes_once(script, tmp_path):
    """The begun one runs until `run` asks for it. Other words, and the same words again, start another."""
    commands = script("scontrol", 'echo "$@" >> "$0.asked"; while [ ! -e "$0.go" ]; do sleep 0.02; done; echo $$')
    asked = tmp_path / "scontrol.asked"
    commands.begin("scontrol", "show", "topology")
    wait_for(asked.exists)
    (tmp_path / "scontrol.go").touch()
    answers = [commands.run("scontrol", "show", what) for what in ("topology", "topology", "node")]
    assert len(set(answers)) == 3
    assert asked.read_text().split() == ["show", "topology", "show", "topology", "show", "node"]


def test_close__ends_what_was_begun_and_not_asked_for(script):
    """Nothing is left behind, and the next `run` starts the command anew."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    commands = script("scontrol", "exec sleep 60")
    commands.begin("scontrol")
    commands.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    script("scontrol", "echo anew")
    assert commands.run("scontrol") == "anew\n"


def test_start__does_not_stop_a_talkative_command(script):
    """More output than a pipe holds is there although nobody read it while the command ran."""
    started = script("squeue", 'head -c 3000000 /dev/zero | tr "\\0" x; touch $0.ended').start("squeue")
    wait_for((Path(script("squeue2", "true").bin_dir) / "squeue.ended").exists)
    assert len(started.text()) == 3_000_000


def test_abandon__leaves_nothing_behind(script):
    """An abandoned command is ended and its files are closed; doing it twice does no harm."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    started = script("squeue", "exec sleep 60").start("squeue")
    started.abandon()
    started.abandon()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("over", [0, 1])
def test_batches__fill_an_argument_and_no_more(script, over):
    """To the byte, and the kernel takes it. What Linux does not take is what a list of all would be."""
    words = ["x" * 999] * 99 + ["é" * 499 + "x" * (2 + over)]  # with their commas MOST_BYTES, and one more
    made = list(argument_batches(words))
    assert [len(listed.encode()) for listed in made] == ([98_999, 1001] if over else [MOST_BYTES])
    assert ",".join(made).split(",") == words
    assert script("squeue", 'echo "${#1}"').run("squeue", made[0])
    with pytest.raises(SlurmUnreachableError, match="Argument list too long"):
        script("squeue", "true").run("squeue", ",".join(map(str, range(1_000_000, 1_020_000))))


def test_batches__of_nothing_and_of_one_long_word():
    """Nothing is asked for then; a word is never cut."""
    assert list(argument_batches(())) == []
    assert list(argument_batches(["a", "b" * (MOST_BYTES + 1), "c"])) == ["a", "b" * (MOST_BYTES + 1), "c"]


def test_node_batches__keeps_a_hostlist_that_fits():
    """Only a longer one is written out."""
    assert list(node_batches("n[1-9]")) == ["n[1-9]"]
    odd = ",".join(f"node{n:06}x[1-2]" for n in range(7_000))
    made = list(node_batches(odd))
    assert max(map(len, made)) <= MOST_BYTES < len(odd)
    assert ",".join(made).split(",")[-2:] == ["node006999x1", "node006999x2"]


IDS = range(10_000_000, 10_020_000)  # 180 kB as a list


def test_ids__of_a_whole_queue_are_asked_for_in_several_commands(script, tmp_path):
    """Each of which runs: the last look, squeue's rows of some jobs, accounting's of some users, nodes by name."""
    count = f'echo "$0" >> {tmp_path}/calls; for word in "$@"; do case "$word" in'
    done = "esac; done"
    slurm = script("squeue", f"{count} [0-9]*) echo $word | tr , '\\n' | sed 's/$/|100|5|PENDING||||100|/';; {done}")
    assert len(Recheck(slurm)([SetNice(job, 100.0, "", 5, 5, 0) for job in IDS])) == len(IDS)
    quiet = script("squeue", f"{count} x) ;; {done}")
    assert len(read_few(quiet, IDS, 0.0, [])) == 0
    sacct = script("sacct", f'{count} --user=*) echo "${{word##*,}}|gpu|9|gres/gpu=1";; {done}')
    assert (f"user{IDS[-1]}", "gpu") in read_typical_run_times(sacct, {f"user{job}" for job in IDS}, [])
    sinfo = script("sinfo", f"{count} n*) echo ${{word##*,}} 1 2 3;; {done}")
    names = [f"n{job * job}" for job in IDS]
    assert read_shapes(sinfo, names)[names[-1]] == (1, 2, 3)
    calls = (tmp_path / "calls").read_text().split()
    assert {name: calls.count(str(tmp_path / name)) for name in ("squeue", "sacct", "sinfo")} == {
        "squeue": 4, "sacct": 3, "sinfo": 4,
    }  # fmt: skip


def test_arrays__that_squeue_hides_are_asked_for_in_several_commands(script, tmp_path):
    """However many there are."""
    mark = "\x1e1\x1e"
    fields = {("JobArrayID",): "1_[1-2]"}
    row = "".join(f"{fields.get(group, '1')}{mark}" for group in GROUPS)
    hidden = "".join(f"{job}_{job + 100_000}\n" for job in IDS)
    slurm = script("squeue", f'echo "$@" | grep -c -e --array >> {tmp_path}/calls')
    script("shown", "cat")
    begun = {"squeue": slurm.start("shown", stdin=row), "expanded": slurm.start("shown", stdin=hidden)}
    assert len(CommandReader(slurm)._rows(mark, begun)) == len(GROUPS)
    assert (tmp_path / "calls").read_text().split() == ["1", "1"]
