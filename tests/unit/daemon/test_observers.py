from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from slurmsched.config_file import parse_config
from slurmsched.cycle import run_cycle
from slurmsched.daemon.observers import METRICS, WEB, IdleMails, Observers
from slurmsched.errors import ConfigError
from slurmsched.model import Plan, Receipt
from slurmsched.model.plan import Outcome, RunTimeFactors, SetAdminComment
from slurmsched.observe import prometheus as meters_module
from slurmsched.planning.planner import Planner
from slurmsched.testing import mixed_snapshot, snapshot


class World:
    """A cluster, planner and store of one snapshot."""

    def __init__(self, look) -> None:
        self.look = look

    def read(self):
        return self.look

    def recall(self, look):
        return look

    def plan(self, look):
        return Plan()

    def apply(self, plan):
        return Receipt()

    def append(self, *_):
        pass


class TellingWorld(World):
    """One whose planner tells what times are made of."""

    def terms(self, look):
        return RunTimeFactors(("GPUs",), 60.0, np.array([[8.0]]), np.array([[2.0]]))


def config(tmp_path: Path, **tables):
    return parse_config({"cycle": {"stop_file": str(tmp_path / "stop")}, **tables})


def scrape(watch: Observers) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{watch.port(METRICS)}/metrics", timeout=10) as answer:
        return answer.read().decode()


@pytest.fixture
def watch(tmp_path):
    made = Observers(config(tmp_path, metrics={"listen": "127.0.0.1:0"}), apply=True)
    yield made
    made.close()


def test_scrape__shows_the_last_cycle_with_its_stages(watch):
    """Before a cycle there is no snapshot; after it gauges are of it and each stage was timed once."""
    assert "slurmsched_snapshot_timestamp_seconds " not in scrape(watch)
    world = World(snapshot(now_s=77.0))
    run_cycle(*watch.parts(world, world, world), watch.done)
    told = scrape(watch)
    assert "slurmsched_snapshot_timestamp_seconds 77.0" in told
    for stage in ("read", "recall", "plan", "apply"):
        assert f'slurmsched_cycle_stage_seconds_count{{stage="{stage}"}} 1.0' in told


def test_scrape__tells_failures_and_who_leads(watch):
    """A cycle that failed, and one in which another host led."""
    watch.ended("failed")
    assert "slurmsched_failed_cycles_in_a_row 1.0" in scrape(watch)
    watch.ended("standby")
    assert "slurmsched_leader 0.0" in scrape(watch)
    watch.done(snapshot(), Plan(), Receipt())
    assert "slurmsched_leader 1.0" in scrape(watch)


def test_off__by_default(tmp_path):
    """No server, no file, and the parts are the cycle's own."""
    quiet, world = Observers(config(tmp_path), apply=False), World(snapshot())
    assert quiet.parts(world, world, world) == (world, world, world)
    quiet.done(snapshot(), Plan(), Receipt())
    assert quiet.port(METRICS) == 0


def test_taken_address__is_told_once_and_tried_again(tmp_path, capsys):
    """Cycles do not depend on it: somebody else's process on the port must not stop them."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        held = Observers(config(tmp_path, metrics={"listen": listen}), apply=True)
        held.ended("failed")
        held.ended("failed")
    assert capsys.readouterr().err.count("watch.failed") == 1
    held.ended("failed")
    assert "slurmsched_failed_cycles_in_a_row 3.0" in scrape(held)
    held.close()


def test_adopt__moves_the_server_and_keeps_the_figures(watch, tmp_path):
    """A reload: the old address is given back, sums go on, and nothing is served where nothing is wanted."""
    watch.ended("failed")
    watch.adopt(config(tmp_path, metrics={"listen": "localhost:0"}), apply=False)
    told = scrape(watch)
    assert 'slurmsched_cycles_total{outcome="failed"} 1.0' in told
    assert "slurmsched_apply 0.0" in told
    watch.adopt(config(tmp_path), apply=False)
    assert watch.port(METRICS) == 0


def test_textfile__is_written_and_taken_up(tmp_path):
    """By each cycle; a later process goes on from it."""
    path = tmp_path / "out.prom"
    tree = config(tmp_path, metrics={"textfile": str(path)})
    Observers(tree, apply=True).ended("failed")
    Observers(tree, apply=True).ended("failed")
    assert 'slurmsched_cycles_total{outcome="failed"} 2.0' in path.read_text()


def test_textfile__that_cannot_be_written_is_told_once(tmp_path, capsys):
    """With the key that names it."""
    tree = config(tmp_path, metrics={"textfile": str(tmp_path / "nosuch" / "out.prom")})
    held = Observers(tree, apply=True)
    held.ended("failed")
    told = capsys.readouterr().err
    assert (told.count("watch.failed"), "metrics.textfile" in told) == (1, True)


def _unwritable(tmp_path: Path) -> Path:
    """A path that can be neither written nor unlinked, as on a read-only mount."""
    (tmp_path / "file").touch()
    return tmp_path / "file" / "out.prom"


def test_textfile__that_cannot_be_unlinked_either_is_told_once(tmp_path, capsys):
    """At the start, after cycles that worked and that failed, and at a reload: nothing is raised."""
    tree = config(tmp_path, metrics={"textfile": str(_unwritable(tmp_path))})
    held = Observers(tree, apply=True)
    held.done(snapshot(), Plan(), Receipt())
    held.ended("failed")
    held.adopt(tree, apply=True)
    told = capsys.readouterr().err
    assert (told.count("watch.failed"), told.count("metrics.textfile")) == (1, 1)


@pytest.mark.parametrize("broken", ["prometheus.write_textfile", "web.frame.Frame", "web.web_server.WebServer"])
def test_fault_of_any_part__ends_neither_a_cycle_nor_the_daemon(tmp_path, monkeypatch, capsys, broken):
    """Whatever is raised where; the other parts do their work."""
    monkeypatch.setattr(f"slurmsched.observe.{broken}", lambda *_, **__: 1 / 0)
    tree = config(tmp_path, web={"listen": "127.0.0.1:0"}, metrics={"textfile": str(tmp_path / "out.prom")})
    watch = Observers(tree, apply=True)
    watch.done(snapshot(), Plan(), Receipt())
    watch.looked(snapshot(), Plan(), None)
    watch.ended("failed")
    watch.close()
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert watch._families


def test_fault_of_pages__does_not_keep_a_failure_from_being_counted(tmp_path, monkeypatch, capsys):
    """ended() is called where a cycle has failed already."""
    tree = config(tmp_path, web={"listen": "127.0.0.1:0"}, metrics={"listen": "127.0.0.1:0"})
    watch = Observers(tree, apply=True)
    monkeypatch.setattr(watch._pages, "fail", lambda _: 1 / 0)
    watch.ended("failed")
    assert "slurmsched_failed_cycles_in_a_row 1.0" in scrape(watch)
    watch.close()
    assert "web.failed" in capsys.readouterr().err


def test_adopt__that_fails_changes_nothing(watch, tmp_path, monkeypatch):
    """Where pages cannot be had, figures go on under the configuration before."""
    before = watch._config
    monkeypatch.setattr("slurmsched.observe.web.web_pages.WebPages", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        watch.adopt(config(tmp_path, web={"listen": "127.0.0.1:0"}, metrics={"listen": "localhost:0"}), apply=False)
    assert (watch._config, watch._meters.config, watch._apply) == (before, before, True)


def test_adopt__of_other_names_is_heeded(tmp_path):
    """A reload that only changes web.hosts; the address stays."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    watch = Observers(config(tmp_path, web={"listen": listen}), apply=False)
    asked = urllib.request.Request(f"http://{listen}/style.css", headers={"Host": "proxy.site"})
    with pytest.raises(urllib.error.HTTPError, match="421"):
        urllib.request.urlopen(asked, timeout=10)
    watch.adopt(config(tmp_path, web={"listen": listen, "hosts": ["proxy.site"]}), apply=False)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        assert answer.status == 200
    watch.close()


def test_fault_of_a_figure__does_not_end_a_cycle(tmp_path, monkeypatch, capsys):
    """It is logged with its traceback."""
    watch = Observers(config(tmp_path, metrics={"textfile": str(tmp_path / "out.prom")}), apply=True)
    monkeypatch.setattr(meters_module, "gauges", lambda *_: 1 / 0)
    watch.done(snapshot(), Plan(), Receipt())
    assert "metrics.failed" in capsys.readouterr().err


def test_metrics__without_the_client_say_what_to_install(tmp_path, monkeypatch):
    """A configuration that cannot be met is refused with the key."""
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"metrics: needs prometheus_client: pip install 'slurmsched\[metrics\]'"):
        Observers(config(tmp_path, metrics={"listen": "127.0.0.1:0"}), apply=True)


@pytest.mark.parametrize(
    ("table", "message"),
    [({"metrics": {"listen": "9810"}}, "must be HOST:PORT"), ({"metrics": {"textfile": "/x/y.txt"}}, "end in .prom"),
     ({"web": {"listen": "0.0.0.0:9811"}}, "anywhere = true"), ({"web": {"listen": "127.example:1"}}, "anywhere"),
     ({"web": {"listen": "0.0.0.0:9811", "anywhere": True}}, "hosts is empty")],
)  # fmt: skip
def test_config__says_what_is_wrong(table, message):
    """Addresses, names, and an address that other hosts reach."""
    with pytest.raises(ConfigError, match=message):
        parse_config(table)


@pytest.mark.parametrize("listen", ["127.0.0.1:9811", "localhost:1", "[::1]:9811", "127.1.2.3:80"])
def test_config__takes_loopback(listen):
    """In every form."""
    assert parse_config({"web": {"listen": listen}}).web.listen == listen


def page(watch: Observers, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{watch.port(WEB)}{path}", timeout=10) as answer:
        return answer.read().decode()


def test_web__shows_the_last_cycle_and_that_one_failed_since(tmp_path):
    """What a cycle, or a look while another host leads, saw; no Slurm is asked."""
    tree, look = config(tmp_path, web={"listen": "127.0.0.1:0"}), mixed_snapshot(20)
    watch, plan = Observers(tree, apply=False), Planner.from_config(tree).plan(look)
    watch.done(look, plan, Receipt())
    assert "pending jobs in the order the policy wants" in page(watch, "/")
    assert '"mode":"dry-run"' in page(watch, "/queue.json")
    watch.ended("failed")
    assert "The last cycle failed" in page(watch, "/")
    watch.looked(look, plan, None)
    assert "The last cycle failed" not in page(watch, "/")
    watch.close()


def test_web__has_no_metrics_and_metrics_no_pages(tmp_path):
    """Each address serves its own."""
    watch = Observers(config(tmp_path, web={"listen": "127.0.0.1:0"}, metrics={"listen": "127.0.0.1:0"}), apply=False)
    for port, path in ((watch.port(WEB), "/metrics"), (watch.port(METRICS), "/queue.json")):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10)
    watch.close()


def test_web__tells_what_the_ledger_knows_or_that_it_is_away(tmp_path):
    """A ledger that is not there is no fault of the page."""
    tree = config(tmp_path, web={"listen": "127.0.0.1:0"}, ledger={"url": f"sqlite:///{tmp_path}/nosuch.db"})
    look = mixed_snapshot(20)
    watch, job = Observers(tree, apply=False), int(look.jobs.job_id[look.jobs.pending][0])
    watch.done(look, Planner.from_config(tree).plan(look), Receipt())
    told = page(watch, f"/job?id={job}")
    assert (
        "no past waits are known" in told,
        "writes and changes by others, runs and operations, past waits: " in told,
    ) == (
        True,
        True,
    )
    watch.close()


def test_pages__tell_whether_a_job_makes_way(tmp_path):
    """As `explain` does, by the configuration's preemption and scope; who planned is asked what times are made of."""
    row = {
        "job_id": 7,
        "gpus": 8,
        "state": "RUNNING",
        "run_s": 9_000.0,
        "requeueable": True,
        "comment": "slurmsched: preempt=yes ckpt=USR1@9",
    }
    look = snapshot([row], "1x8", now_s=10_000.0, allocations=[{"job_id": 7, "node": "n1", "gpus": 8}])
    more = {"preemption": {"enabled": True}, "scope": {"partitions": ["*"]}}
    made = Observers(config(tmp_path, web={"listen": "127.0.0.1:0"}, **more), apply=False)
    world = TellingWorld(look)
    try:
        run_cycle(*made.parts(world, world, world), made.done)
        told = json.loads(page(made, "/job.json?id=7"))
        assert told["move"] == "it may be asked to make way; a restart counts as 120 s, by preemption.restart_cost_s"
        assert told["expected"][-1] == "x 2.00 for GPUs: 8"
    finally:
        made.close()


@pytest.mark.parametrize(("most", "said"), [(5, "no scontrol in "), (0, "Slurm is not asked for pages")])
def test_pages__ask_slurm_about_a_job_where_that_is_wanted(tmp_path, most, said):
    """Here it has no commands, which the page tells."""
    web = {"listen": "127.0.0.1:0", "asked_jobs": most}
    made = Observers(config(tmp_path, web=web, slurm={"bin_dir": str(tmp_path)}), apply=False)
    try:
        made.looked(snapshot([{"job_id": 7, "reason": "Priority"}], "1x8"), Plan(), None)
        with urllib.request.urlopen(f"http://127.0.0.1:{made.port(WEB)}/job.json?id=7", timeout=30) as answer:
            assert said in answer.read().decode()
    finally:
        made.close()


def test_idle_mails__go_out_once_to_whom_the_comment_began_to_tell(tmp_path):
    """By the configured command, without a shell; again neither for the same text nor for one that Slurm refused."""
    (command := tmp_path / "mail").write_text(f'#!/bin/sh\necho "$@: $(cat)" >>{tmp_path}/sent\n')
    command.chmod(0o755)
    mails, seen = IdleMails((str(command), "-s", "job {job}", "{user}")), snapshot([{"job_id": 7, "user": "ann;id"}])

    def cycle(new, old="", status="written"):
        mails(seen, Receipt((Outcome(SetAdminComment(7, 0.0, "", "", new, old, ""), status),)))
        mails.wait()

    idle = "slurmsched: idle 3 of 4 GPUs"
    cycle(idle)
    cycle("slurmsched: requeued 2026-11-30T01:00Z for job 3; idle 4 of 4 GPUs", idle)
    cycle("slurmsched: requeued 2026-11-30T01:00Z for job 3")
    cycle(idle, status="refused")
    assert (tmp_path / "sent").read_text() == f"-s job 7 ann;id: {idle}\n"
    cycle(idle)  # idle again: the job had its mail
    assert (tmp_path / "sent").read_text() == f"-s job 7 ann;id: {idle}\n"
    mails = IdleMails((str(tmp_path / "none"),))
    cycle(idle)  # a command that is away is a line of the log


def test_idle_mails__wait_for_the_next_cycles_and_dropped_ones_are_logged(monkeypatch, capsys):
    """Two a cycle, and five may wait: of seven jobs the last two have none."""
    sent = []
    monkeypatch.setattr("slurmsched.daemon.observers.MOST_MAILS", 2)
    monkeypatch.setattr("slurmsched.daemon.observers.MOST_WAITING", 5)
    monkeypatch.setattr("subprocess.run", lambda words, **_: sent.append(words[1]))
    mails, seen = IdleMails(("mail", "{job}")), snapshot([{"job_id": job} for job in range(1, 8)])
    begun = [SetAdminComment(job, 0.0, "", "", "slurmsched: idle 1 of 4 GPUs", "", "") for job in range(1, 8)]
    for outcomes in ([Outcome(action, "written") for action in begun], [], [], []):
        mails(seen, Receipt(tuple(outcomes)))
        mails.wait()
    assert sent == ["1", "2", "3", "4", "5"]
    assert "mail.dropped" in capsys.readouterr().err
