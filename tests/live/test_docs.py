"""What the pages tell people to type at a site is typed at the lab, as its user, and works."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.live.lab import PYTHON, Installed, becoming, run, submit
from tests.unit.test_docs import SHOWN

pytestmark = [pytest.mark.live, pytest.mark.newest]

OF_A_SITE = frozenset(
    ("operations", "advise", "config", "db", "doctor", "explain", "fit", "gpus", "hints", "history", "init", "mig",
     "plan", "policy", "power", "queue", "report", "snapshot", "status", "topology", "undo", "usage", "--config")
)  # fmt: skip
NAMES = frozenset(("explain", "init", "init --history 30", "policy show NAME", "policy train"))  # named, not typed
OF_FILES = ("dgx.txt", "elastic.csv", "jobs.csv", "TRACE", "FILE", "import")  # of the reader's own
TOPO = Path(__file__).parents[1] / "unit" / "topology" / "samples" / "002-dgx1-v100.txt"
FIRST = ("db upgrade", "snapshot save", "init my.toml")  # what others read
MAY_SAY_NO = {"doctor": 10, "init": 10, "fit": 10, "history": 10, "topology": 10}  # docs/exit-codes.md


def at_the_lab(shown: str, job: int) -> list[str]:
    """The words with the lab's own names in place of the page's."""
    here = {"6": str(job), "16": str(job), "17": str(job), "4711": str(job), "1234": str(job), "JOB": str(job),
            "n7": "n2", "$USER": "alice", "ann": "alice", "long": "gpu", "dgx03": "n1"}  # fmt: skip
    words = [here.get(word, word) for word in shlex.split(shown)]
    return [*words, "--yes"] if words == ["undo", "--apply"] else words  # nobody is here to be asked


def wanted() -> list[str]:
    texts = {shown for _, shown in SHOWN if shown.split()[0] in OF_A_SITE} - NAMES
    texts = {shown for shown in texts if not any(word in shown for word in OF_FILES)}
    return sorted(texts, key=lambda shown: (not shown.startswith(FIRST), shown))


def test_pages__what_they_show_can_be_typed_at_a_site(site: Installed) -> None:
    """Every command for a live cluster, in one process; nothing is written but by `undo --apply`."""
    job = submit("alice", 1, "-p", "phantom")
    (site.folder / "queue.json").write_text(run("squeue", "--json").out)
    (site.folder / "nodes.json").write_text(run("scontrol", "show", "node", "--json").out)
    shutil.copy(site.file, site.folder / "new.toml")
    with site.file.open("a") as file:
        file.write(f'\n[measured_use]\nsource = "slurm"\nprofiles = "{site.folder}/profiles.csv"\n')
    for name in ("nvidia-smi-topo.txt", "dgx.txt"):
        shutil.copy(TOPO, site.folder / name)
    site.owned()
    lines = [at_the_lab(shown, job) for shown in wanted()]
    assert len(lines) > 40
    argv = [*becoming(site.user), f"SLURMSCHED_CONFIG={site.file}", PYTHON, str(Path(__file__).with_name("typed.py"))]
    done = subprocess.run(argv, input=json.dumps(lines), capture_output=True, text=True, cwd=site.folder, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    answers = json.loads(done.stdout.splitlines()[-1])
    for one in answers:
        assert one["code"] in (0, MAY_SAY_NO.get(one["words"][0], 0)), one
