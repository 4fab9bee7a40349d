"""The configuration that `slurmsched init` writes: what the site needs, why, and what to look at next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slurmsched.config_text import toml_value
from slurmsched.slurm.first_look import FirstLook, GpuPartition
from slurmsched.terminal import harmless
from slurmsched.words import some


def first_config(found: FirstLook, partitions: Sequence[str], *, bin_dir: str = "", conf: str = "") -> str:
    """TOML in dry-run for these partitions. bin_dir, conf: of [slurm], where they are not the usual ones."""
    return "\n".join(_lines(found, partitions, bin_dir, conf)) + "\n"


def _lines(found: FirstLook, partitions: Sequence[str], bin_dir: str, conf: str) -> Iterator[str]:
    yield f"# slurmsched for cluster {harmless(found.cluster)}, Slurm {harmless(found.version)}. Keys that are not here"
    yield "# have the defaults that `slurmsched config defaults` prints."
    yield ""
    yield 'mode = "dry-run"   # "apply" writes to Slurm; before that, look at `slurmsched plan` for some days'
    yield ""
    yield "[scope]"
    yield from (f"# {_told(one)}" for one in found.partitions)
    yield f"partitions = {toml_value(list(partitions))}   # the jobs to order"
    yield ""
    yield "[policy]"
    yield 'name = "discretized-las"   # `slurmsched policy list`; `slurmsched compare` tries them on your own history'
    yield ""
    yield from _slurm(bin_dir, conf)
    yield from _accounting(found)
    if found.slurm_user not in ("", "slurm"):
        yield "[daemon]"
        yield f"users = {toml_value([found.slurm_user])}   # SlurmUser, whose event hook may wake the daemon"
        yield ""
    if not found.multifactor:
        yield "# PriorityType is not priority/multifactor: slurmsched writes nothing until it is. See doctor."


def _slurm(bin_dir: str, conf: str) -> Iterator[str]:
    given = {key: value for key, value in (("bin_dir", bin_dir), ("conf", conf)) if value}
    if given:
        yield "[slurm]"
        yield from (f"{key} = {toml_value(value)}" for key, value in given.items())
        yield ""


def _accounting(found: FirstLook) -> Iterator[str]:
    yield "[ledger]"
    if not found.slurmdbd:
        yield "sacct = false   # no slurmdbd here: earlier runs of jobs are known from now on only"
    yield '# url = "mysql+pymysql://slurmsched@dbhost/slurmsched"   # default: SQLite in /var/lib/slurmsched'
    yield ""


def _told(one: GpuPartition) -> str:
    kinds = f" ({harmless(', '.join(one.types))})" if one.types else ""
    mig = f" and {some(one.mig, 'MIG device')}" if one.mig else ""
    unread = f"; the GPUs of {some(one.unread, 'more node')} cannot be read" if one.unread else ""
    return f"{harmless(one.name)}: {some(one.gpus, 'GPU')}{mig}{kinds} on {some(one.nodes, 'node')}{unread}"
