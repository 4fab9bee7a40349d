"""Whether this daemon leads: asked before each cycle, kept up between cycles, told when it changes."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from slurmsched.errors import LedgerError, NotLeadingError
from slurmsched.logs import get_logger

if TYPE_CHECKING:
    from slurmsched.db.lead import Lead

SOON_S = 0.5  # a lease that somebody lets run out is looked at so long after its end

log = get_logger()


class Leading:
    """lead: None where this host is the only one, which then always leads."""

    def __init__(self, lead: Lead | None) -> None:
        self._lease = lead.lease if lead else None
        self._leads: bool | None = None
        self.standby = ""  # who leads in our place, in words

    def __call__(self) -> bool:
        """Whether a cycle may write and remember. Raises LedgerError when the database does not answer."""
        if self._lease is None:
            return True
        leads = self._lease.take()
        self.standby = "" if leads else str(self._lease.leader())
        self._tell(leads)
        return leads

    def keep(self) -> None:
        """Renew the lease between cycles, when it is due. What goes wrong is told; the next cycle asks again."""
        if self._lease is None or not self._leads:
            return
        try:
            self._lease.keep()
        except NotLeadingError as error:
            self._tell(False, str(error))
        except LedgerError as error:
            log.warning("leader.not_renewed", error=str(error), left_s=round(self._lease.left_s, 1))

    @property
    def step_s(self) -> float:
        """How long a sleep between cycles may be before `keep` must be called again [s]."""
        return self._lease.lease_s / 8 if self._lease and self._leads else inf

    def look_s(self) -> float:
        """When somebody who stands by should look again [s from now]: after the end of the leader's lease.

        Raises LedgerError.
        """
        return inf if self._lease is None or self._leads else max(self._lease.leader().left_s, 0.0) + SOON_S

    def _tell(self, leads: bool, why: str = "") -> None:
        if leads != self._leads and self._lease is not None:
            if leads:
                log.info("leader.taken", name=self._lease.name, term=self._lease.term)
            elif self._leads:
                log.warning("leader.lost", name=self._lease.name, term=self._lease.term, why=why or self.standby)
            else:
                log.info("leader.standby", name=self._lease.name, why=self.standby)
        self._leads = leads
