"""The file that `slurmsched init` writes: a valid configuration, in dry-run, whatever the site is called."""

from __future__ import annotations

import tomllib

import pytest

from slurmsched.config import Config, parse_config
from slurmsched.first_config import first_config
from slurmsched.slurm.first_look import FirstLook, GpuPartition

PLAIN = FirstLook("26.05.5", "lab", "slurm", True, True, (GpuPartition("gpu", 4, 32, ("a100",)),))
ODD = FirstLook("21.08", 'c"\n[x]\x1b', "schlurm", False, False, (GpuPartition('p"\n', 1, 1, ('t"\n',)),))


def parsed(text: str) -> Config:
    return parse_config(tomllib.loads(text))


def test_first_config__of_a_usual_site_only_names_its_partitions() -> None:
    """All else is the default."""
    expected = parse_config({"scope": {"partitions": ["gpu"]}})
    assert parsed(first_config(PLAIN, ("gpu",))) == expected
    assert "# gpu: 32 GPUs (a100) on 4 nodes" in first_config(PLAIN, ("gpu",))


def test_first_config__of_another_site_says_what_differs() -> None:
    """No slurmdbd, another SlurmUser, Slurm in a folder of its own; names that would break the file do not."""
    text = first_config(ODD, ('p"\n',), bin_dir="/opt/slurm/bin", conf="/opt/slurm/slurm.conf")
    config = parsed(text)
    assert (config.mode, config.scope.partitions) == ("dry-run", ('p"\n',))
    assert (config.ledger.sacct, config.daemon.users) == (False, ("schlurm",))
    assert (config.slurm.bin_dir, config.slurm.conf) == ("/opt/slurm/bin", "/opt/slurm/slurm.conf")
    assert "not priority/multifactor" in text


@pytest.mark.parametrize("partitions", [("gpu",), ("a", "b")])
def test_first_config__is_in_dry_run(partitions: tuple[str, ...]) -> None:
    """Whoever installs it writes nothing by that."""
    assert parsed(first_config(PLAIN, partitions)).mode == "dry-run"
