"""job_submit.lua on job descriptions as Slurm gives them: what it writes, refuses, leaves alone, and survives."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.plugin.lua import PLUGIN, VERSIONS, runtime, said

NO_VAL = 4294967294
FILES = ("lua/slurmsched_hints.lua", "lua/slurmsched_keys.lua", "job_submit/job_submit.lua")


@pytest.fixture(params=VERSIONS)
def load(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """The plug-in in a folder as /etc/slurm, with these settings and this script of the site."""

    def load(settings: str = "", site: str | None = None, without: str = "") -> Any:
        for name in FILES:
            shutil.copy(PLUGIN / name, tmp_path)
        if without:
            (tmp_path / without).unlink()
        (tmp_path / "slurmsched_settings.lua").write_text(f"return {{ {settings} }}")
        if site is not None:
            (tmp_path / "job_submit_site.lua").write_text(site)
        lua = runtime(request.param)
        lua.eval(f"dofile('{tmp_path}/job_submit.lua')")
        return lua

    return load


def submit(lua: Any, partitions: dict[str, dict[str, int]] | None = None, **fields: Any) -> tuple[int, dict[str, Any]]:
    """What slurmctld does at a submission: the answer, and the job's description afterwards."""
    job = lua.table_from(fields)
    parts = lua.table_from({name: lua.table_from(part) for name, part in (partitions or {}).items()})
    return lua.globals().slurm_job_submit(job, parts, 1000), dict(job)


def modify(lua: Any, job: dict[str, Any], uid: int = 1000, **fields: Any) -> tuple[int, dict[str, Any]]:
    """What slurmctld does at `scontrol update`: the answer, and the change afterwards."""
    change = lua.table_from({"nice": NO_VAL, **fields})
    record = lua.table_from({"user_id": 1000, "nice": 0, "start_time": 0, **job})
    return lua.globals().slurm_job_modify(change, record, lua.table_from({}), uid), dict(change)


def test_submit__writes_hints_in_one_form_and_tells_faults(load: Any) -> None:
    """The user's text first, then the keys in order; a hint of no use stays, at the end."""
    lua = load()
    answer, job = submit(lua, comment="run 17 SLURMSCHED: Topo=NVLink dur=2 preempt=YES,  for tests")
    assert (answer, job["comment"]) == (0, "run 17 for tests slurmsched: preempt=yes topo=nvlink dur=2")
    assert [text.partition(":")[0] for text in said(lua)] == ["slurmsched"]
    assert "is no duration with a unit" in said(lua)[0]


def test_submit__leaves_a_comment_without_hints_alone(load: Any) -> None:
    """Blanks and all; none becomes none."""
    lua = load()
    assert submit(lua, comment="  a  b ")[1] == {"comment": "  a  b "}
    assert submit(lua)[1] == {}


def test_submit__defaults_by_partition_give_way_to_the_users(load: Any) -> None:
    """Of the first partition that has any, of the default partition where none is named, else of *."""
    lua = load('defaults = { gpu = "preempt=yes restart=90s", ["*"] = "share=no" }')
    parts = {"cpu": {"flag_default": 0}, "gpu": {"flag_default": 1}}
    assert submit(lua, parts, partition="x,gpu", comment="slurmsched: preempt=no")[1]["comment"] == (
        "slurmsched: preempt=no restart=90s"
    )
    assert submit(lua, parts)[1]["comment"] == "slurmsched: preempt=yes restart=90s"
    assert submit(lua, parts, partition="cpu")[1]["comment"] == "slurmsched: share=no"
    mistyped = submit(lua, parts, comment="slurmsched: preempt=nein")[1]["comment"]
    assert mistyped == "slurmsched: restart=90s preempt=nein"  # what was meant may be the opposite of the default


def test_submit__options_of_the_spank_plugin_count_over_the_comment(load: Any) -> None:
    """They come in the job's SPANK environment."""
    lua = load()
    env = lua.table_from(["A=b", "SLURMSCHED_HINTS=topo=numa ckpt=USR1@60"])
    _, job = submit(lua, comment="mine", spank_job_env=env)
    assert job["comment"] == "mine slurmsched: ckpt=USR1@60 topo=numa"


def test_submit__one_node_gpus_become_gpus_per_node(load: Any) -> None:
    """Only where asked for, only for one node, only where nothing else is said of GPUs."""
    asked = {"tres_per_job": "gres/gpu:a100:4", "max_nodes": 1}
    on, off = load("gpus_per_node = true"), load()
    assert submit(off, **asked)[1]["tres_per_job"] == "gres/gpu:a100:4"
    assert submit(on, **asked)[1] == {**asked, "tres_per_job": "", "tres_per_node": "gres/gpu:a100:4"}
    for other in ({"max_nodes": 2}, {"max_nodes": NO_VAL}, {"tres_per_task": "gres/gpu:1"},
                  {"tres_per_job": "gres/gpu:4,gres/nic:1"}):  # fmt: skip
        assert submit(on, **asked | other)[1] == asked | other


def test_submit__one_gpu_that_may_be_shared_becomes_shards(load: Any) -> None:
    """Rounded up; only where asked for, only of one GPU without a type, only with both hints."""
    asked = {"tres_per_node": "gres/gpu:1", "min_nodes": 1, "comment": "slurmsched: share=yes gpu_part=0.3"}
    on = load("shards_per_gpu = 8")
    for unset in ({}, {"min_nodes": NO_VAL}, {"tres_per_node": "gres/gpu"}, {"tres_per_job": ""}):
        assert submit(on, **asked | unset)[1]["tres_per_node"] == "gres/shard:3"
    for other in ({"min_nodes": 2}, {"tres_per_node": "gres/gpu:2"}, {"tres_per_node": "gres/gpu:a100:1"},
                  {"tres_per_node": "gres/gpu:1,gres/nic:1"}, {"tres_per_task": "gres/gpu:1"},
                  {"comment": "slurmsched: share=no gpu_part=0.3"}, {"comment": "slurmsched: share=yes"},
                  {"comment": "x"}):  # fmt: skip
        assert submit(on, **asked | other)[1] == asked | other
    hundred = load("shards_per_gpu = 100")
    for part, shards in (("0.07", 7), ("0.29", 29), ("0.071", 8), ("1e-12", 1)):  # 0.07 * 100 > 7, of a float
        small = asked | {"comment": f"slurmsched: share=yes gpu_part={part}"}
        assert submit(hundred, **small)[1]["tres_per_node"] == f"gres/shard:{shards}"
    for setting in ("", 'shards_per_gpu = "many"', "shards_per_gpu = 0"):
        assert submit(load(setting), **asked)[1] == asked


def test_submit__a_wrong_hint_is_refused_only_on_wish(load: Any) -> None:
    """And then the job is as it was."""
    wrong = "slurmsched: topo=moon preempt=YES"
    assert submit(load("refuse = true"), comment=wrong) == (-1, {"comment": wrong})
    assert submit(load(), comment=wrong)[0] == 0


def test_modify__normalises_a_new_comment(load: Any) -> None:
    """A change without a comment is not touched."""
    lua = load()
    assert modify(lua, {}, comment="slurmsched: PROGRESS=3/9")[1]["comment"] == "slurmsched: progress=3/9"
    assert modify(lua, {}, comment="")[1]["comment"] == ""
    assert modify(lua, {}) == (0, {"nice": NO_VAL})


def test_modify__guard_keeps_owners_off_the_levers(load: Any) -> None:
    """Nice may rise; hints of a job with nodes stay but for progress and loss; others than the owner may do all."""
    lua = load("guard = { nice = true, comment = true }")
    running = {"nice": 500, "start_time": 9, "comment": "slurmsched: preempt=yes progress=1/9"}
    assert modify(lua, running, nice=0)[0] == -1
    assert modify(lua, running, nice=0, uid=990)[0] == 0
    assert modify(lua, running, nice=600)[0] == 0
    assert modify(lua, running, comment="slurmsched: preempt=no")[0] == -1
    assert modify(lua, running, comment="mine slurmsched: preempt=yes progress=2/9")[0] == 0
    assert modify(lua, running, comment="slurmsched: preempt=yes progress=2/9 loss=3:2:1")[0] == 0
    for expected in (0, 4_000_000_000):  # of a waiting job: none yet, or when Slurm expects it to start
        assert modify(lua, {**running, "start_time": expected}, comment="")[0] == 0
    for state in (0, 0x8000, 0x20000):  # one that waits on after the time at which Slurm expected it to start
        assert modify(lua, {**running, "job_state": state}, comment="")[1]["comment"] == ""
    for state in (1, 2, 0x4001):  # running, suspended, being given nodes
        assert modify(lua, {**running, "job_state": state}, comment="slurmsched: preempt=no")[0] == -1
    assert modify(load(), running, nice=0, comment="")[0] == 0


@pytest.mark.parametrize(("given", "written"), [
    ("slurmsched: progress=2/9", "slurmsched: preempt=yes progress=2/9"),
    ("step 3", "step 3 slurmsched: preempt=yes progress=1/9"),
    ("", "slurmsched: preempt=yes progress=1/9"),
    ("slurmsched: preempt=nein", "slurmsched: preempt=yes progress=1/9 preempt=nein"),
    ("x" * 1_025, None), ("x" * 1_020, None), ("slurmsched: topo=numa progress=2/9", None),
])  # fmt: skip
def test_modify__guard_lets_progress_through(load: Any, given: str, written: str | None) -> None:
    """Hints that a new comment leaves out stay: a job tells its progress alone. Without room for them it is refused."""
    lua = load("guard = { comment = true }")
    running = {"start_time": 9, "comment": "run 7 slurmsched: preempt=yes progress=1/9"}
    answer, change = modify(lua, running, comment=given)
    assert (answer, change["comment"]) == ((-1, given) if written is None else (0, written))
    assert modify(lua, running | {"comment": "run 7"}, comment=given)[1]["comment"] == given
    assert modify(lua, running, uid=990, comment="")[1]["comment"] == ""


@pytest.mark.parametrize(("change", "answer"), [
    ({"priority": 5}, -1), ({"priority": 1, "nice": 900}, -1), ({"priority": NO_VAL - 1}, -1),
    ({"priority": 0}, 0), ({"priority": NO_VAL + 1}, 0), ({"priority": NO_VAL}, 0),
])  # fmt: skip
def test_modify__guard_refuses_a_priority_of_the_owners(load: Any, change: dict[str, int], answer: int) -> None:
    """Slurm sets nice to 0 with it. An owner may hold a job (0) and release it (INFINITE)."""
    lua = load("guard = { nice = true }")
    assert modify(lua, {"nice": 500}, **change)[0] == answer
    assert modify(lua, {"nice": 500}, uid=990, **change)[0] == 0
    assert modify(load(), {"nice": 500}, **change)[0] == 0


@pytest.mark.parametrize("length", [1_025, 600_000])
def test_submit__a_comment_longer_than_slurm_takes_is_left_alone(load: Any, length: int) -> None:
    """Slurm calls the script before it looks at the length, and copies all messages at each that is added."""
    lua = load('defaults = { ["*"] = "share=no" }')
    comment = "slurmsched: " + "aa=1 " * (length // 5)
    assert submit(lua, comment=comment) == (0, {"comment": comment})
    assert modify(lua, {}, comment=comment)[0] == 0
    assert said(lua) == ["slurmsched: a comment of more than 1,024 bytes is left alone: no hint in it counts"] * 2
    silent = "x" * length
    assert (submit(lua, comment=silent)[1]["comment"], len(said(lua))) == (silent, 2)


def test_submit__tells_few_of_many_faults(load: Any) -> None:
    """Three and how many more; of those in options, too, which may be as long as one likes."""
    lua = load()
    submit(lua, comment=f"slurmsched: {'aa=1 ' * 200}")
    assert (len(said(lua)), said(lua)[-1]) == (4, "slurmsched: 197 more faults")
    env = lua.table_from([f"SLURMSCHED_HINTS={'aa=1 ' * 9_000}"])
    assert submit(lua, comment="mine", spank_job_env=env)[1]["comment"] == "mine"
    assert len(said(lua)) == 4


def test_submit__writes_no_comment_longer_than_slurm_takes(load: Any) -> None:
    """Such as one with defaults: Slurm would refuse the job for it."""
    lua = load('defaults = { ["*"] = "share=no" }')
    for length, written in ((900, True), (1_010, False)):
        comment = "x" * length
        assert (submit(lua, comment=comment)[1]["comment"] != comment) is written


@pytest.mark.parametrize("script", ["job_submit", "cli_filter"])
def test_install__as_the_page_says_keeps_edited_settings(script: str, tmp_path: Path) -> None:
    """Twice, as at an upgrade: the files are new, the settings the site's."""
    page = (PLUGIN.parent / "docs" / "plugins.md").read_text(encoding="utf-8")
    section = page.partition(f"## {script}.lua")[2].partition("\n## ")[0]
    lines = [
        line.strip().partition(" #")[0] for line in section.splitlines() if line.startswith("    ") and "/etc/" in line
    ]
    commands = "\n".join(line.replace("/etc/slurm/", f"{tmp_path}/") for line in lines)
    settings = tmp_path / "slurmsched_settings.lua"
    subprocess.run(["sh", "-ec", commands], cwd=PLUGIN.parent, check=True)
    assert settings.read_text() == (PLUGIN / "lua" / "slurmsched_settings.lua.sample").read_text()
    settings.write_text("return { refuse = true }")
    (tmp_path / f"{script}.lua").write_text("old")
    subprocess.run(["sh", "-c", commands], cwd=PLUGIN.parent, check=False)  # newer cp ends with 1 where it keeps a file
    assert settings.read_text() == "return { refuse = true }"
    assert (tmp_path / f"{script}.lua").read_text() == (PLUGIN / script / f"{script}.lua").read_text()
    assert runtime().eval(f"dofile('{PLUGIN}/lua/slurmsched_settings.lua.sample')") is not None


SITE = """
count = 0
function slurm_job_submit(job, parts, uid)
    count = count + 1
    if job.account == nil then slurm.log_user("site: name an account"); return slurm.ERROR end
    job.admin_comment = job.comment .. " " .. count
    return slurm.SUCCESS
end
function slurm_job_modify(job, record, parts, uid) return 2 end
return slurm.SUCCESS
"""


def test_site__its_script_comes_after_ours_and_has_the_last_word(load: Any) -> None:
    """It sees the comment as written; its globals are its own."""
    lua = load(site=SITE)
    assert submit(lua, comment="slurmsched: preempt=YES")[0] == -1
    _, job = submit(lua, account="a", comment="slurmsched: preempt=YES")
    assert job["admin_comment"] == "slurmsched: preempt=yes 2"
    assert modify(lua, {})[0] == 2
    assert lua.globals().count is None


def test_site__what_is_wrong_with_it_is_wrong_as_without_us(load: Any) -> None:
    """A script that does not load is not passed over; one that fails fails."""
    with pytest.raises(Exception, match="job_submit_site"):
        load(site="this is no Lua")
    lua = load(site="function slurm_job_submit() error('broken') end")
    with pytest.raises(Exception, match="broken"):
        submit(lua)


@pytest.mark.parametrize("lost", ["slurmsched_hints.lua", "slurmsched_keys.lua"])
def test_submit__without_its_files_jobs_go_in_unchanged(load: Any, lost: str) -> None:
    """And slurmctld's log says which is missing."""
    lua = load(without=lost)
    assert submit(lua, comment="slurmsched: preempt=YES") == (0, {"comment": "slurmsched: preempt=YES"})
    assert modify(lua, {}, comment="slurmsched: preempt=YES")[0] == 0
    assert lost in said(lua, "log_error")[0]


def test_submit__a_failure_of_ours_lets_the_job_in_unchanged(load: Any) -> None:
    """Here settings of the wrong kind."""
    lua = load("defaults = 7")
    assert submit(lua, comment="slurmsched: preempt=YES") == (0, {"comment": "slurmsched: preempt=YES"})
    assert said(lua, "log_error")[0].endswith("the job goes on unchanged")
