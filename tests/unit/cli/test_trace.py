"""`slurmsched trace`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmsched.model.trace import trace_digest
from slurmsched.sim.traces.trace_io import load_trace
from slurmsched.slurm.accounting_archive import AccountingArchive
from tests.unit.sim.traces.test_public_kinds import DATA, same


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_convert__writes_the_common_form(run: Callable[..., Any], tmp_path: Path, ending: str) -> None:
    """What is read back equals what was read; the kind is told."""
    target = tmp_path / f"t.{ending}"
    said = run("trace", "convert", str(DATA / "muri.csv"), str(target), "--json")
    assert (said.code, json.loads(said.out)["kind"], json.loads(said.out)["jobs"]) == (0, "muri", 25)
    assert same(load_trace(DATA / "muri.csv"), load_trace(target))


def test_convert__refuses_another_ending(run: Callable[..., Any], tmp_path: Path) -> None:
    """Nothing is written."""
    for arguments in (("convert", "absent"), ("anonymise", "absent"), ("generate",)):
        said = run("trace", *arguments, str(tmp_path / "t.xlsx"))  # before SOURCE is read
        assert (said.code, "must end in .parquet, .csv or .csv.gz" in said.err) == (2, True)
    assert not (tmp_path / "t.xlsx").exists()


def test_convert__takes_parameters_of_the_kind(run: Callable[..., Any], tmp_path: Path) -> None:
    """--set gives them; one that the kind does not have, or no pair, is an error."""
    made = tmp_path / "t.csv"
    arguments = ("trace", "convert", str(DATA / "small.swf"), str(made), "--kind", "swf")
    assert run(*arguments, "--set", "processors_per_gpu=4").code == 0
    assert load_trace(made).trace.gpus.tolist() == [1, 2]
    wrong = run(*arguments, "--set", "processors-per-gp=4")
    assert (wrong.code, "did you mean 'processors_per_gpu'" in wrong.err) == (2, True)
    assert "is not NAME=VALUE" in run(*arguments, "--set", "x").err


def test_convert__warns_on_stderr_and_strict_stops(run: Callable[..., Any], tmp_path: Path) -> None:
    """Left-out jobs do not disturb what is printed."""
    source = tmp_path / "t.csv"
    source.write_text("job_id,num_gpus,submit_s,duration_s\n1,1,0,5\n2,1,0,5\n3,x,0,5\n")
    said = run("trace", "convert", str(source), str(tmp_path / "o.csv"))
    assert (said.code, said.err.count("1 row cannot be read")) == (0, 1)
    strict = run("trace", "convert", str(source), str(tmp_path / "o.csv"), "--strict")
    assert (strict.code, "t.csv:4: num_gpus is 'x'" in strict.err) == (2, True)


def test_describe__prints_tables_json_and_a_page(run: Callable[..., Any], tmp_path: Path) -> None:
    """The same figures in both; the page is written; published figures come beside."""
    source, page = str(DATA / "pollux" / "workload.csv"), tmp_path / "page.html"
    said = run("trace", "describe", source, "--json", "--beside", "pollux", "--page", str(page))
    made = json.loads(said.out)
    assert (said.code, made["overview"][0]) == (0, {"measure": "jobs", "value": 17.0})
    assert made["published"][0]["verdict"] == "not reproduced: differs"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert made["trace_digest"] == trace_digest(load_trace(Path(source)).trace)
    table = run("trace", "describe", source).out
    assert ("Overview (pollux)" in table, "By run time" in table) == (True, True)


def test_generate__anonymise__round(run: Callable[..., Any], tmp_path: Path) -> None:
    """A made-up trace, one like it, and both without names; the key file makes names alike."""
    first, like, key = tmp_path / "a.parquet", tmp_path / "b.csv", tmp_path / "key"
    assert run("trace", "generate", str(first), "--jobs", "300", "--arrivals", "diurnal", "--time-limits").code == 0
    assert run("trace", "generate", str(like), "--jobs", "100", "--like", str(first)).code == 0
    assert (len(load_trace(first).trace), len(load_trace(like).trace)) == (300, 100)
    assert load_trace(first).trace.limit_known.tolist() == [True] * 300
    hidden = []
    for source in (first, like):
        target = source.with_name(f"hidden-{source.name}")
        assert run("trace", "anonymise", str(source), str(target), "--key-file", str(key)).code == 0
        hidden.append(set(load_trace(target).trace.user.names))
    assert hidden[1] <= hidden[0]
    assert "user01" not in hidden[0]


@pytest.mark.parametrize("command", ["convert", "anonymise"])
def test_trace__is_not_written_over_itself(run: Callable[..., Any], tmp_path: Path, command: str) -> None:
    """Neither by its own name nor by a link to it; it stays as it was."""
    source, link = tmp_path / "a.csv", tmp_path / "b.csv"
    source.write_text("job_id,num_gpus,submit_s,duration_s\n7,2,0,60\n")
    link.symlink_to(source)
    before = source.read_bytes()
    for target in (source, link):
        said = run("trace", command, str(source), str(target))
        assert (said.code, "name another TARGET" in said.err, source.read_bytes()) == (2, True, before)


def test_pull__refuses_a_name_before_it_asks(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after an hour of calls."""
    monkeypatch.setattr(AccountingArchive, "run", lambda _: pytest.fail("asked"))
    said = run("trace", "pull", str(tmp_path / "h.txt"))
    assert (said.code, "must end in .parquet" in said.err, list(tmp_path.glob("h*"))) == (2, True, [])


def test_pull__interrupted_says_how_to_go_on(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 130; nothing is written as TARGET."""

    def stopped(_: AccountingArchive) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(AccountingArchive, "run", stopped)
    said = run("trace", "pull", str(tmp_path / "h.parquet"))
    assert (said.code, "run the same command again to read the missing days" in said.err) == (130, True)
    assert not (tmp_path / "h.parquet").exists()


def test_pull__without_slurm_says_so(run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3, and where the folder of the commands is set."""
    monkeypatch.setenv("PATH", str(tmp_path))
    said = run("trace", "pull", str(tmp_path / "h.parquet"), "--since", "2025-09-26", "--until", "2025-09-27")
    assert (said.code, "set slurm.bin_dir" in said.err) == (3, True)
