"""The file that `slurmsched init` writes: a valid configuration, in dry-run, whatever the site is called."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from slurmsched.config import Config
from slurmsched.config_file import parse_config
from slurmsched.config_text import AGE_CAP_S, FIRST_POLICIES, first_config
from slurmsched.slurm.site import DiscoveredSite, GpuPartition

PLAIN = DiscoveredSite("26.05.5", "lab", "slurm", True, True, (GpuPartition("gpu", 4, 32, ("a100",)),))
ODD = DiscoveredSite("21.08", 'c"\n[x]\x1b', "schlurm", False, False, (GpuPartition('p"\n', 1, 1, ('t"\n',)),))


def parsed(text: str) -> Config:
    return parse_config(tomllib.loads(text))


def test_first_config__of_a_usual_site_only_names_its_partitions() -> None:
    """All else is the default."""
    given = {"policy": {"name": FIRST_POLICIES[1]}, "starvation": {"age_cap_s": AGE_CAP_S}}
    expected = parse_config({"scope": {"partitions": ["gpu"]}, **given})
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


def test_first_config__proposes_the_tiers_that_keep_the_weights_and_names_the_lost_ones() -> None:
    """Share by share, so that whoever reads it sees what changes."""
    settings = {"PriorityWeightFairShare": "5000", "PriorityWeightQOS": "4000", "PriorityWeightAge": "1000"}
    text = first_config(replace(PLAIN, settings=settings), ("gpu",))
    assert (parsed(text).policy.name, parsed(text).policy.tiers) == (FIRST_POLICIES[0], ("fair_share:4", "qos"))
    assert "#   fair_share:4: PriorityWeightFairShare=5000 (50% of all weights)" in text
    assert "# No longer counted: PriorityWeightAge=1000 (10% of all weights)" in text
