"""Commands of slurmsched on a fake Slurm, in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slurmsched.cli.main import main
from tests.cases.fake_slurm import FakeSlurm
from tests.unit.cli.conftest import Answer

Run = Callable[..., Answer]


@pytest.fixture
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line on a fake Slurm: on(slurm, "fit", "--gpus-per-node=8", toml="[preemption]...")."""
    for name in ("SLURMSCHED_CONFIG", "SLURM_CONF"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")

    def call(slurm: FakeSlurm, *arguments: str, toml: str = "") -> Answer:
        path = tmp_path / "slurmsched.toml"
        path.write_text(
            f'[scope]\npartitions = ["gpu"]\n[cycle]\nstop_file = "{tmp_path}/stop"\n'
            f'[ledger]\nurl = "sqlite:///{tmp_path}/ledger.db"\njournal = "{tmp_path}/journal.jsonl"\n'
            f'lock = "{tmp_path}/lock"\n[slurm]\nadapter = "cli"\n{toml}'
        )
        monkeypatch.setattr("slurmsched.slurm.commands.Commands.start", lambda _, *words, **given:
                            slurm.start(*words, **given))  # fmt: skip
        capsys.readouterr()
        code = main(["--config", str(path), *arguments])
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return call
