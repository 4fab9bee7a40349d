"""cli_filter.lua tells the user what is wrong with hints and what they mean, and changes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.plugin.lua import PLUGIN, VERSIONS, runtime, said


@pytest.fixture(params=VERSIONS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """The plug-in in a folder as /etc/slurm, and the Lua to run it in."""
    for name in ("lua/slurmsched_hints.lua", "lua/slurmsched_keys.lua", "cli_filter/cli_filter.lua"):
        shutil.copy(PLUGIN / name, tmp_path)
    return tmp_path, request.param


def submitted(folder: tuple[Path, str], **options: Any) -> tuple[int, Any]:
    """The answer of slurm_cli_pre_submit, and the Lua."""
    lua = runtime(folder[1])
    lua.eval(f"dofile('{folder[0]}/cli_filter.lua')")
    return lua.globals().slurm_cli_pre_submit(lua.table_from(options), 0), lua


def test_pre_submit__tells_faults_and_on_wish_meanings(folder: tuple[Path, str]) -> None:
    """Nothing for a comment whose hints are all right."""
    assert said(submitted(folder, comment="slurmsched: dur=2h")[1], "log_info") == []
    answer, lua = submitted(folder, comment="slurmsched: topo=nvlink dur=2")
    assert (answer, len(said(lua, "log_info"))) == (0, 1)
    (folder[0] / "slurmsched_settings.lua").write_text("return { explain = true }")
    told = said(submitted(folder, comment="slurmsched: topo=nvlink")[1], "log_info")
    assert [text.partition(": The widest")[0] for text in told] == ["slurmsched: topo=nvlink"]


def test_pre_submit__is_silent_without_a_comment_or_its_files(folder: tuple[Path, str]) -> None:
    """Steps of srun have no comment; a login node may lack the table."""
    assert submitted(folder)[0] == 0
    (folder[0] / "slurmsched_keys.lua").unlink()
    answer, lua = submitted(folder, comment="slurmsched: dur=2")
    assert (answer, said(lua, "log_info")) == (0, [])


def test_site__its_script_has_the_last_word(folder: tuple[Path, str]) -> None:
    """Each of the three functions is handed on."""
    site = "function slurm_cli_pre_submit(o, n) o.account = 'x' return n + 7 end"
    (folder[0] / "cli_filter_site.lua").write_text(site)
    answer, lua = submitted(folder, comment="c")
    assert answer == 7
    assert lua.globals().slurm_cli_setup_defaults(lua.table_from({}), False) == 0
    assert lua.globals().slurm_cli_post_submit(0, 1, 2) == 0
