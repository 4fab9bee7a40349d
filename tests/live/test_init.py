"""`slurmsched init` on a real Slurm: a configuration that works as it is."""

from __future__ import annotations

import tomllib

import pytest

from tests.live.lab import BINARY, Installed, nices, run, submit

pytestmark = pytest.mark.live


def test_init__its_file_serves_at_once(site: Installed):
    """Doctor and plan run with it, in dry-run; a second init leaves it alone."""
    file = site.folder / "first.toml"
    done = run(BINARY, "init", str(file), "-p", "gpu", "-p", "phantom", user="slurmsched", check=False)
    assert done.rc in (0, 3), done.err  # 3: doctor misses /var/lib/slurmsched
    assert "adminlevel=Operator" in done.out
    text = file.read_text()
    assert tomllib.loads(text)["scope"]["partitions"] == ["gpu", "phantom"]
    assert "# gpu: 32 GPUs (a100) on 4 nodes" in text
    jobs = [submit("alice", 1, "-p", "phantom", f"--time={limit}") for limit in (50, 10)]
    run(BINARY, "--config", str(file), "plan", user="slurmsched")
    order = run(BINARY, "--config", str(file), "queue", user="slurmsched")
    assert all(str(job) in order.out for job in jobs)
    assert not any(nices().values())
    assert run(BINARY, "init", str(file), user="slurmsched", check=False).rc == 2
    assert file.read_text() == text
