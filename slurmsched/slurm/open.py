"""Builds the live cluster that a configuration describes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import TYPE_CHECKING

from slurmsched import registry
from slurmsched.config import Config
from slurmsched.db.acts import HOUR_S, ActLog
from slurmsched.db.deferrals import DeferralLog
from slurmsched.db.journal import Journal
from slurmsched.db.pins import PinLog
from slurmsched.model import Input, Snapshot
from slurmsched.slurm.acting import Acting
from slurmsched.slurm.commands import Commands
from slurmsched.slurm.deferring import Deferring
from slurmsched.slurm.exclusive import Exclusive
from slurmsched.slurm.live_cluster import LiveCluster
from slurmsched.slurm.pace import Pace
from slurmsched.slurm.pinning import Pinning
from slurmsched.slurm.reader import open_commands, open_reader
from slurmsched.slurm.recheck import Recheck
from slurmsched.slurm.reservations import read_reservations
from slurmsched.slurm.sacct import earlier_runs
from slurmsched.slurm.site import read_load
from slurmsched.slurm.spreads import Spreads
from slurmsched.slurm.tag import tag_of
from slurmsched.slurm.wiring import Wiring
from slurmsched.slurm.writer import CommandWriter

if TYPE_CHECKING:
    from slurmsched.db.lead import Lead


def open_live(
    config: Config, *, apply: bool, heed_stop: bool = True, indices: bool = False, lead: Lead | None = None
) -> LiveCluster:
    """The Slurm of the configuration, its first read under way. apply: whether it may be written to, lock held.

    heed_stop: False for `undo`, which nothing must keep from giving values back: neither a stop file nor records that
    cannot be read or written, nor a policy or topology that cannot be had.
    indices: as open_reader; where jobs are placed by them they are read anyway. lead: where several hosts may write.

    Raises SlurmUnreachableError when Slurm's commands are not found.
    """
    commands = open_commands(config.slurm)
    reader = open_reader(config.slurm, indices=indices or config.placement.pin != "off")
    reader.begin()
    keep_s, lenient = max(HOUR_S, config.acts.lease_s), not heed_stop
    return LiveCluster(
        reader,
        CommandWriter(commands),
        Journal(config.ledger.journal, shared=lead.journal if lead else None, lenient=lenient),
        Pace(config.pace, partial(read_load, commands)),
        apply=apply,
        recheck=(recheck := Recheck(commands)),
        again=recheck.again,
        reservations=partial(read_reservations, commands),
        tag=tag_of(config),
        acts_on=config.preemption.enabled or config.gangs.reserve or not heed_stop,
        reserved=config.placement.places,
        exclusive=Exclusive(commands),
        spreads=Spreads(commands),
        acting=Acting(
            ActLog(config.ledger.journal, keep_s=keep_s, shared=lead.acts if lead else None, lenient=lenient)
        ),
        pinning=Pinning(PinLog(config.ledger.journal, shared=lead.pins if lead else None, lenient=lenient)),
        deferring=Deferring(
            DeferralLog(config.ledger.journal, shared=lead.deferrals if lead else None, lenient=lenient)
        ),
        lease=lead.lease if lead else None,
        earlier_runs=partial(earlier_runs, commands),
        stop_file=config.cycle.stop_file if heed_stop else None,
        wiring=_tables(config, commands) if heed_stop else lambda snapshot: snapshot,
    )


def _tables(config: Config, commands: Commands) -> Callable[[Snapshot], Snapshot]:
    """What gives snapshots their topology and, where they are looked at, the shares of accounts and what Slurm picks
    GPUs by."""
    makers: list[Callable[[Snapshot], Snapshot]] = [Wiring(config.topology, commands)]
    card = getattr(registry.load("policies", config.policy.name), "card", None)
    if card is not None and Input.SHARES in card.needed(config.policy.parameters):
        from slurmsched.slurm.account_shares import Shares

        makers.append(Shares(commands))
    if config.placement.pin != "off":
        from slurmsched.slurm.picking import Pickers

        makers.append(Pickers(config.topology, commands, retype=config.placement.retype))
    elif config.placement.types:
        from slurmsched.slurm.gang_requests import GangRequests

        makers.append(GangRequests(commands))
    return lambda snapshot: reduce(lambda made, maker: maker(made), makers, snapshot)
