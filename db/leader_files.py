"""What a host needs where several may lead: the lease, and what they share."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from slurmsched.config import Config
from slurmsched.db import database as engines
from slurmsched.db.leader_lease import LeaderLease
from slurmsched.db.shared_lines import SharedLines
from slurmsched.errors import LedgerError
from slurmsched.logs import get_logger

log = get_logger()

PATIENCE = 4  # an answer of the database that takes longer than this part of the lease does not come in time


@dataclass(frozen=True, slots=True)
class LeaderFiles:
    """What the leader and the other hosts share.

    lease: who may write.
    journal, operations: the lines that all hosts share.
    """

    lease: LeaderLease
    journal: SharedLines
    operations: SharedLines

    def close(self) -> None:
        """Let another lead, and give the connections back. A lease that cannot be given back runs out by itself."""
        try:
            if self.lease.remaining_s:
                self.lease.release()
        except LedgerError as error:
            log.warning("leader.not_released", error=str(error))
        finally:
            self.lease.close()


def open_leader_files(config: Config) -> LeaderFiles:
    """As [leader] says. Nothing is connected yet. Raises LedgerError."""
    leader = config.leader
    patience_s = max(leader.lease_s / PATIENCE, 1.0)
    engine = engines.open_engine(config.ledger.address, patience_s=patience_s, still_s=leader.lease_s)
    lease = LeaderLease(engine, leader.name or socket.gethostname(), leader.lease_s)
    return LeaderFiles(lease, *(SharedLines(engine, lease, file) for file in ("journal", "operations")))
