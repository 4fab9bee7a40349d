"""Every error slurmsched raises. Each says what is wrong, where, and what to do."""

from __future__ import annotations


class SlurmschedError(Exception):
    """Base of all. exit_code is what the command line ends with when nothing handles it."""

    exit_code = 1


class ConfigError(SlurmschedError):
    """A setting or a policy parameter is wrong. `key` is its dotted name, `source` the file."""

    exit_code = 2

    def __init__(self, message: str, *, key: str = "", source: str = "") -> None:
        where = ": ".join(part for part in (source, key) if part)
        super().__init__(f"{where}: {message}" if where else message)
        self.message, self.key, self.source = message, key, source


class InputError(SlurmschedError):
    """A file or a text given by a person is wrong. `line` counts from 1, 0 when unknown."""

    exit_code = 2

    def __init__(self, message: str, *, source: str = "", line: int = 0) -> None:
        where = f"{source}:{line}" if line else source
        super().__init__(f"{where}: {message}" if where else message)
        self.message, self.source, self.line = message, source, line


class StandstillError(SlurmschedError, RuntimeError):
    """A replay cannot come to its end: nothing will happen any more, and jobs still wait."""

    def __init__(self, now_s: float) -> None:
        super().__init__(
            f"the replay stands still at {now_s:,.0f} s: jobs wait, and nothing will happen any more. The policy keeps "
            "them back for ever, such as those it refuses while `fill` is false; give another policy or parameter"
        )


class SlurmError(SlurmschedError):
    """Slurm did not answer, or answered something that cannot be read."""

    exit_code = 3


class SlurmUnreachableError(SlurmError):
    """slurmctld (or slurmdbd) is down, or the network to it is."""


class SlurmRefusedError(SlurmError):
    """Slurm refused one action. `job_id` is the culprit, `errno` Slurm's number or 0."""

    def __init__(self, message: str, *, job_id: int = 0, errno: int = 0) -> None:
        super().__init__(f"job {job_id}: {message}" if job_id else message)
        self.message, self.job_id, self.errno = message, job_id, errno


class UnreadableError(SlurmError):
    """Text that Slurm printed does not follow its grammar. `text` is that text."""

    def __init__(self, message: str, *, text: str = "") -> None:
        super().__init__(f"{message}: {text!r}" if text else message)
        self.message, self.text = message, text


class LedgerError(SlurmschedError):
    """The ledger or the journal cannot be read or written; no job was touched after that."""

    exit_code = 4


class LockedError(SlurmschedError):
    """Another slurmsched works on this cluster now. `holder` says which, `held_s` for how long it has [s]."""

    exit_code = 5

    def __init__(self, message: str, *, holder: str = "", held_s: float = float("inf")) -> None:
        super().__init__(message)
        self.holder, self.held_s = holder, held_s


class NotLeadingError(LockedError):
    """Another host holds the leader lease, or this one could not renew its own. `holder` names it."""

    def __init__(self, message: str, *, holder: str = "") -> None:
        super().__init__(message, holder=holder, held_s=0.0)


class RightsError(SlurmschedError):
    """The user slurmsched runs as may not do this."""

    exit_code = 6


class PausedError(SlurmschedError):
    """The administrator's stop file is there: nothing is written until it is gone."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h: try again later


class BusyError(SlurmschedError):
    """slurmctld has much to do or answers slowly: what is left is for the next cycle."""

    exit_code = 75


class WorkersLostError(SlurmschedError):
    """Who was to play a sweep's points has gone, or cannot be reached; what is done is on file.

    processes: of this machine, where one of so many was ended from outside; else 0.
    """

    exit_code = 75

    def __init__(self, message: str, *, processes: int = 0) -> None:
        super().__init__(message)
        self.processes = processes
