from __future__ import annotations

import sys

from slurmsched.cli import top
from slurmsched.config_file import load_config
from slurmsched.daemon import cycle_parts


def test_top__says_what_to_install(run, monkeypatch):
    """Exit code 2 without textual."""
    monkeypatch.setitem(sys.modules, "slurmsched.observe.top_app", None)
    done = run("top")
    assert (done.code, "pip install 'slurmsched[top]'" in done.err) == (2, True)


def test_top__refuses_an_interval_that_is_none(run):
    """And takes none below two seconds."""
    assert run("top", "--interval", "soon").code == 2
    assert (top.seconds("1s"), top.seconds("1m")) == (2.0, 60.0)


def test_top__runs_on_looks_of_the_cluster(run, fakes, monkeypatch):
    """Each look is a frame of the cluster and its plan, as `queue` has it."""
    from slurmsched.observe import top_app

    looks = []
    monkeypatch.setattr(top_app.TopApp, "run", lambda self: looks.append(self._look()))
    assert run("top", "--interval", "30s").code == 0
    assert [row.job_id for row in looks[0].rows] == [12, 11]
    known = looks[0].past(12, 4)
    assert (known.ours, known.waits_s, len(known.unread)) == ((), (), 1)


def test_looked__is_in_the_policys_order(site, fakes):
    """The same, without a screen."""
    tree = load_config(site)
    with cycle_parts.open_cycle_parts(tree, apply=False, read_only=True) as parts:
        assert top.looked(tree, parts).policy == "discretized-las"
