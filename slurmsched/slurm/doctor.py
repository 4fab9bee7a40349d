"""Everything `slurmsched doctor` looks at, of the Slurm that a configuration names."""

from __future__ import annotations

from slurmsched.config import Config
from slurmsched.slurm.checklist import checklist
from slurmsched.slurm.finding import Finding
from slurmsched.slurm.probe import probe_job, probe_rights, read_gres_conf, read_qos_thresholds
from slurmsched.slurm.reader import open_commands
from slurmsched.slurm.site import read_site


def findings(config: Config, *, probe: bool = False) -> tuple[Finding, ...]:
    """The checklist, then what reading and writing need. probe: also submit a held job and cancel it.

    Raises SlurmError when slurmctld does not answer.
    """
    commands = open_commands(config.slurm)
    site = read_site(commands)
    settings = checklist(
        site,
        lever=config.lever.kind,
        writes_per_s=config.pace.writes_per_s,
        gres_conf=read_gres_conf(site),
        qos_thresholds=read_qos_thresholds(commands, site),
    )
    return (*settings, *probe_rights(commands, site), *(probe_job(commands) if probe else ()))
