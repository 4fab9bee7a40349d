"""What goes wrong at a site: a clear message, the right exit code, nothing lost, and the next cycle works."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.live.lab import USERS, Done, Installed, forked, nices, run, submit, until

pytestmark = [pytest.mark.live, pytest.mark.newest]

# A command that dies as by kill -9 so many seconds after it sends its n-th write; 0: after its begin.
KILLED = """
import os, signal, sys, threading
from slurmsched.slurm import writer
writes, after_s = int(sys.argv.pop(1)), float(sys.argv.pop(1))
timer = threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGKILL))
true_send = writer.CommandWriter.send
def send(self, actions):
    def counted():
        for sent, action in enumerate(actions, 1):
            if sent == writes:
                timer.start()
            yield action
    return true_send(self, counted())
writer.CommandWriter.send = send
from slurmsched.cli.main import main
if not writes:
    timer.start()
os._exit(main())
"""
PHANTOM = ("--partition=phantom",)  # its nodes are down: jobs wait, also over a restart of slurmctld


@pytest.fixture
def waiting(site: Installed) -> list[int]:
    """Jobs that wait in the wrong order, longest first, for nodes that are down."""
    site.configure(policy='{ name = "srsf" }')
    return [submit(USERS[i % 4], 1 + i % 3, *PHANTOM, f"--time={100 - 8 * i}") for i in range(10)]


def works(site: Installed) -> None:
    """The next cycle writes what is due, and the one after has nothing to do."""
    site.tick()
    assert site.tick()["planned"] == 0
    assert any(nices().values())


def failed(done: Done, code: int, *words: str) -> None:
    """One line on stderr that names the trouble, no traceback, this exit code."""
    assert done.rc == code, done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word.lower() in done.err.lower()


def test_slurmctld_down__exit_3_and_nothing_lost(site, waiting):
    """Slurm does not answer: said within seconds, exit code 3; works again when it is back."""
    run("labctl", "stop", "slurmctld")
    failed(site("tick", "--apply", check=False), 3, "controller", "is slurmctld up")
    failed(site("plan", check=False), 3, "controller", "is slurmctld up")
    run("labctl", "start", "slurmctld")
    run("labctl", "wait-ready")
    works(site)


def test_slurmctld_dies_while_writing__unknown_is_settled_later(site, waiting):
    """Some writes are sent, then slurmctld is gone: no value is left that the journal does not know."""
    site.configure(pace__writes_per_s="2.0")
    writing = site.start("tick", "--apply")
    until(lambda: any(nices().values()), "the first write is there")
    run("labctl", "stop", "slurmctld")
    _, said = writing.communicate(timeout=240)
    assert said.count("writing ended early") == len(said.splitlines()) == 1
    run("labctl", "start", "slurmctld")
    run("labctl", "wait-ready")
    assert writing.returncode == 3
    known = site.journalled()
    assert all(nice == 0 or nice in known[job] for job, nice in nices().items())
    site.configure(pace__writes_per_s="100.0")
    works(site)


def test_slurmdbd_down__cycle_works_all_the_same(site, waiting):
    """Rights and history cannot be asked, but what was known serves; Slurm itself goes on too."""
    site.tick("--dry-run")
    run("labctl", "stop", "slurmdbd")
    done = site("plan", "--json", check=False)
    assert done.rc == 0, done.err
    assert done.json()["changes"]
    run("labctl", "start", "slurmdbd")
    works(site)


def test_undo__with_a_full_disk_without_ledger_policy_and_whole_records(site, waiting):
    """It needs what the journal tells, and nothing else: each value goes back, and what was passed over is said."""
    run("mount", "-t", "tmpfs", "-o", "size=4m", "none", str(site.folder))
    try:
        site.configure(policy='{ name = "srsf" }')
        site.tick()
        assert any(nices().values())
        site.journal.with_name("journal.operations.jsonl").write_text('{"of": "tomorrow"}\nno line\n')
        site.configure(policy='{ name = "no-such-policy" }', leader__enabled="true",
                       ledger__url='"mysql+pymysql://nobody:nothing@127.0.0.1:1/none"')  # fmt: skip
        (site.folder / "ledger.db").unlink()
        with site.journal.open("a") as journal:
            journal.write("x" * (4095 - site.journal.stat().st_size % 4096) + "\n")  # no page has room for more
        site.owned()
        run("sh", "-c", f"cat /dev/zero > {site.folder}/filler", check=False)
        assert run("sh", "-c", f"echo x > {site.folder}/more", check=False).rc != 0
        done = site("undo", "--apply", "--yes", check=False)
        assert (done.rc, any(nices().values())) == (0, False), done.out + done.err
        for said in ("lines_skipped", "not_written", "the writes of other hosts are unknown"):
            assert said in done.err, done.err
    finally:
        run("umount", str(site.folder))


def test_database_locked__exit_4_and_no_job_touched(site, waiting):
    """Another process holds the database: exit code 4, and nothing was sent."""
    site.tick("--dry-run")
    with closing(sqlite3.connect(site.folder / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        failed(site("tick", "--apply", check=False), 4, "locked")
        assert not any(nices().values())
    site.owned()
    works(site)


@contextmanager
def full_disk(site: Installed) -> Iterator[None]:
    """The ledger's folder on a file system with no room left."""
    run("mount", "-t", "tmpfs", "-o", "size=256k", "full", str(site.folder))
    try:
        site.configure()
        run("dd", "if=/dev/zero", f"of={site.folder}/filler", "bs=1k", check=False)
        site.owned()
        yield
    finally:
        run("umount", str(site.folder))


def test_disk_full__exit_4_and_no_job_touched(site, waiting):
    """Neither ledger nor journal can be written: exit code 4, and nothing was sent."""
    with full_disk(site):
        failed(site("tick", "--apply", check=False), 4)
        assert not any(nices().values())
    works(site)


def test_malformed_comments__warned_and_ignored(site):
    """A broken hint in every job never fails a cycle or a job."""
    site.configure(policy='{ name = "srsf" }')
    broken = [
        "slurmsched: dur=banana",
        "slurmsched:dur",
        "slurmsched: =",
        "a|b\tc slurmsched: dru=2h",
        "\u00e4\u6f22 slurmsched: ckpt=@",
    ]
    for i, comment in enumerate(broken):
        submit(USERS[i % 4], 1, *PHANTOM, f"--comment={comment}", f"--time={60 - 10 * i}")
    works(site)


def test_users_nice__kept_through_writes_changes_and_undo(site, waiting):
    """What the user chose is part of every value; a change behind our back is seen, respected, and left alone."""
    job = submit("alice", 1, *PHANTOM, "--nice=70", "--time=1")
    site.tick()
    assert nices()[job] < 70
    run("scontrol", "update", f"jobid={job}", "nice=33", user="alice")
    site.tick()
    assert nices()[job] == 33, "the user's change is respected"
    refused = site("plan", "--json").json()["refused"]
    assert any(row["job_id"] == job and row["rule"] == "backoff" for row in refused)
    site("undo", "--apply", "--yes")
    assert nices()[job] == 33


@pytest.mark.parametrize(
    "setting",
    [("PrivateData", "jobs,usage,users,accounts,nodes,partitions,reservations"), ("SlurmctldParameters", "rl_enable")],
    ids=["private-data", "rate-limit"],
)
def test_site_settings__do_not_stop_the_operator(site, waiting, setting):
    """PrivateData hides nothing from an Operator; the rate limiter slows the writes, and none is lost."""
    run("labctl", "conf", *setting)
    run("labctl", "restart", "slurmctld")
    run("labctl", "wait-ready")
    works(site)


def test_rate_limiter__a_refused_ping_is_no_outage(site, waiting):
    """`scontrol show config` ends with 1 where the limiter refuses its ping behind the settings; a cycle reads on."""
    run("labctl", "conf", "SlurmctldParameters", "rl_enable,rl_bucket_size=1")
    run("labctl", "restart", "slurmctld")
    run("labctl", "wait-ready")
    until(lambda: run("scontrol", "show", "config", user=site.user, check=False).rc == 1, "a ping is refused")
    assert all(site("plan", "--json").json()["changes"] for _ in range(3))


def test_plain_user__reads_and_is_told_why_not_more(site, waiting):
    """Without Operator rights `plan` works and says what is missing; applying is refused with exit code 6."""
    run("chmod", "-R", "a+rX", str(site.folder))
    done = site("plan", user="alice")
    assert "Operator" in done.out + done.err
    site.configure(
        ledger__url='"sqlite:////tmp/alice/l.db"', ledger__journal='"/tmp/alice/j"', ledger__lock='"/tmp/alice/k"'
    )
    run("rm", "-rf", "/tmp/alice")
    failed(site("tick", "--apply", user="alice", check=False), 6, "Operator")
    assert len(site("status", "--json", user="alice").json()["cycles"]) == 1, "what was observed is remembered"
    assert not any(nices().values())


def test_stop_file__nothing_is_written_while_it_is_there(site, waiting):
    """The administrator's emergency brake."""
    (site.folder / "stop").touch()
    site("tick", "--apply", check=False)
    assert not any(nices().values())
    (site.folder / "stop").unlink()
    works(site)


def test_two_at_once__the_second_is_told_who_works(site, waiting):
    """Cron and daemon share one lock: exit code 5, and no mail while the first one is not late."""
    site.configure(pace__writes_per_s="0.5")
    first = site.start("tick", "--apply")
    until(lambda: any(nices().values()), "the first one writes")
    failed(site("tick", "--apply", "-v", check=False), 5, str(first.pid))
    quiet = site("tick", "--apply", check=False)
    assert (quiet.rc, quiet.err) == (5, "")
    assert first.wait(timeout=240) == 0


def test_kill_9__at_any_point_no_unknown_value_stays(site):
    """Killed at 24 points, most of them while it writes: every value is in the journal, the next tick finishes, undo
    gives all back."""
    site.configure(policy='{ name = "srsf" }', pace__writes_per_s="8.0")
    for i in range(20):
        submit(USERS[i % 4], 1, *PHANTOM, f"--time={100 - 4 * i}", f"--nice={i}")
    own, written = nices(), []
    for step in range(24):
        writes, after_s = ((9, 0.006), (1, 0.0), (0, 0.06), (2, 0.0), (1, 0.003), (1, 0.05))[step % 6]
        argv = ("-c", str(writes), str(after_s * step), "--config", str(site.file), "tick", "--apply")
        done = forked(KILLED, argv, site.user, check=False)
        assert done.rc in (-signal.SIGKILL, 0), done.err
        known = site.journalled()
        assert all(nice == own[job] or nice in known.get(job, ()) for job, nice in nices().items())
        written += [sum(nice != own[job] for job, nice in nices().items())] * (done.rc == -signal.SIGKILL)
        if step % 6 == 5:
            site("undo", "--apply", "--yes")
            assert nices() == own
    site.tick()
    whole = sum(nice != own[job] for job, nice in nices().items())
    assert any(0 < part < whole for part in written), "some were killed in the middle of the writing"
    assert site.tick()["planned"] == 0
    site("undo", "--apply", "--yes")
    assert nices() == own
