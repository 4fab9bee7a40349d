"""What the shell offers for a value."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from slurmsched.cli.main import cli

PRINTED = {"squeue": "11\n12\n7_[1-3]\nbob;rm\n12\n", "sinfo": "gpu\nlong\n"}


@pytest.fixture
def offered(site: Path):
    """What is offered for the last word of a command line, in a cluster whose commands print PRINTED."""
    folder = site.parent / "bin"
    folder.mkdir()
    for name, text in PRINTED.items():
        (folder / name).write_text(f"#!/bin/sh\nprintf '{text}'\n".replace("\n1", "\\n1").replace("\n'", "'"))
        (folder / name).chmod(0o755)
    site.write_text(f'{site.read_text()}[slurm]\nbin_dir = "{folder}"\n')

    def offer(*words: str) -> list[str]:
        completer = ShellComplete(cli, {}, "slurmsched", "_SLURMSCHED_COMPLETE")
        return [item.value for item in completer.get_completions(["--config", str(site), *words[:-1]], words[-1])]

    return offer


def test_plugins__by_kind(offered):
    """Policies where a policy is asked for, placements likewise."""
    assert offered("replay", "--policy", "discr") == ["discretized-las"]
    assert offered("replay", "--placement", "discr") == []
    assert "time-limit" in offered("policy", "show", "ti")


@pytest.mark.parametrize(
    ("words", "values"),
    [(("explain", "1"), ["11", "12"]), (("explain", "7"), ["7_[1-3]"]), (("history", ""), ["11", "12", "7_[1-3]"]),
     (("queue", "-p", ""), ["gpu", "long"]), (("queue", "-p", "gpu,l"), ["gpu,long"]), (("gpus", "-p", "x"), [])],
)  # fmt: skip
def test_slurm__jobs_and_partitions_as_they_are_now(offered, words, values):
    """Each once; what a shell would not take as it is is left out."""
    assert offered(*words) == values


def test_tables__of_reproduce(offered):
    """Published tables by name."""
    assert offered("reproduce", "") != []


def test_slurm__nothing_where_it_cannot_be_asked(offered, site):
    """No message in the middle of a command line."""
    site.write_text(site.read_text().replace('/bin"', '/nosuch"'))
    assert offered("explain", "1") == []
    site.write_text("mode = 3")
    assert offered("explain", "1") == []
