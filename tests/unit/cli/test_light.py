"""What a command from cron loads: importing is nearly all that a cold one does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recorded.playback import HERE, recorded_versions

ROOT = Path(__file__).parents[3]
LIBRARIES = {
    "alembic", "dask", "jinja2", "numba", "plotly", "polars", "prometheus_client", "pydantic_settings", "pyslurm",
    "rich", "scipy", "sklearn", "structlog", "textual", "yaml",
}  # fmt: skip
OURS = {
    "slurmsched.db.leader_lease",
    "slurmsched.observe.explain",
    "slurmsched.observe.prometheus",
    "slurmsched.planning.operations.operation_steps",
    "slurmsched.planning.node_lists.node_list_lever",
    "slurmsched.planning.operations.gang_reservations",
    "slurmsched.planning.quality",
    "slurmsched.planning.operations.preemption",
    "slurmsched.sim",
    "slurmsched.observe.report",
    "slurmsched.slurm.cons_tres",
    "slurmsched.slurm.pyslurm_reader",
    "slurmsched.observe.survey",
    "slurmsched.topology.fabric_files",
    "slurmsched.topology.nvidia_smi",
    "slurmsched.topology.rocm_smi",
    "slurmsched.topology.slurmd_log",
    "slurmsched.observe.web",
    "sqlalchemy.dialects.mysql",
    "sqlalchemy.dialects.postgresql",
}
# A Slurm that answers from a recording; then the command, its exit code and what it has loaded.
COMMAND = """
import json, sys
from pathlib import Path
from slurmsched.slurm import reader
from tests.recorded.playback import MARK, Playback
reader.fresh_mark = lambda: MARK
reader.open_commands = lambda _: Playback(Path(sys.argv[1]))
from slurmsched.cli.main import main
code = main(sys.argv[2:])
print(json.dumps([code, sorted(sys.modules)]))
"""


def loaded(folder: Path, *arguments: str, more: str = "") -> set[str]:
    """Modules that a command has loaded when it ends. Its ledger is there already."""
    path = folder / "slurmsched.toml"
    path.write_text(
        f'[scope]\npartitions = ["*"]\n[slurm]\nadapter = "cli"\n[ledger]\nurl = "sqlite:///{folder}/ledger.db"\n'
        f'journal = "{folder}/journal.jsonl"\nlock = "{folder}/lock"\nsacct = false\n{more}\n'
    )
    recording = str(HERE / recorded_versions()[-1])
    argv = [sys.executable, "-c", COMMAND, recording, "--config", str(path), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=True)
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stderr
    return set(modules)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a ledger of one cycle."""
    made = tmp_path_factory.mktemp("light")
    assert "alembic" in loaded(made, "tick")
    return made


@pytest.mark.parametrize("arguments", [["tick"], ["plan", "--json"]])
def test_cycle__loads_only_what_it_uses(folder, arguments):
    """By the default configuration, with a queue that waits: neither libraries of other commands nor parts that are
    switched off."""
    modules = loaded(folder, *arguments)
    assert "slurmsched.planning.planner" in modules
    assert (LIBRARIES | OURS) & modules == set()


def test_part__is_loaded_once_it_is_switched_on(folder):
    """Late is not never."""
    modules = loaded(folder, "tick", more='[placement]\npin = "multi-gpu"')
    assert {"slurmsched.planning.node_lists.node_list_lever", "slurmsched.slurm.cons_tres"} <= modules
