"""All errors that slurmsched raises. Each says what is wrong, where, and what to do."""

from __future__ import annotations


class SlurmschedError(Exception):
    """Base of all errors. exit_code: of a command that ends with this error."""

    exit_code = 1


class ConfigError(SlurmschedError):
    """The configuration or a parameter of a plug-in is wrong. `key`: its dotted name. `source`: the file."""

    exit_code = 2

    def __init__(self, message: str, *, key: str = "", source: str = "") -> None:
        where = ": ".join(part for part in (source, key) if part)
        super().__init__(f"{where}: {message}" if where else message)
        self.message, self.key, self.source = message, key, source


class MissingPackageError(ConfigError):
    """A Python package is not installed. `package`: its name. `extra`: that installs it. user: what needs it."""

    def __init__(self, package: str, extra: str, user: str = "", *, key: str = "") -> None:
        needs = f"{user} needs {package}, which" if user else f"the package {package}"
        super().__init__(f"{needs} is not installed: pip install 'slurmsched[{extra}]'", key=key)
        self.package, self.extra = package, extra


class InputError(SlurmschedError):
    """A file or an argument is wrong. `line`: counted from 1, 0 when unknown."""

    exit_code = 2

    def __init__(self, message: str, *, source: str = "", line: int = 0) -> None:
        where = f"{source}:{line}" if line else source
        super().__init__(f"{where}: {message}" if where else message)
        self.message, self.source, self.line = message, source, line


class StandstillError(SlurmschedError, RuntimeError):
    """A replay cannot end: jobs wait, and no event is left."""

    def __init__(self, now_s: float) -> None:
        super().__init__(
            f"the replay cannot go on after {now_s:,.0f} s: jobs wait, and no event is left that could start them. The "
            "policy never starts them; with `fill = false` it does so for jobs that it refuses. Change the policy or "
            "its parameters"
        )


class SlurmError(SlurmschedError):
    """Slurm did not answer, or its answer cannot be read."""

    exit_code = 3


class SlurmUnreachableError(SlurmError):
    """slurmctld or slurmdbd cannot be reached."""


class SlurmRefusedError(SlurmError):
    """Slurm refused an action. `job_id`: the job. `errno`: Slurm's number, or 0."""

    def __init__(self, message: str, *, job_id: int = 0, errno: int = 0) -> None:
        super().__init__(f"job {job_id}: {message}" if job_id else message)
        self.message, self.job_id, self.errno = message, job_id, errno


class UnreadableError(SlurmError):
    """Slurm printed text of an unknown form. `text`: that text."""

    def __init__(self, message: str, *, text: str = "") -> None:
        super().__init__(f"{message}: {text!r}" if text else message)
        self.message, self.text = message, text


class MeasurementError(SlurmschedError):
    """The source of measured GPU use does not answer, or answers something else."""

    exit_code = 3


class LedgerError(SlurmschedError):
    """The ledger or the journal cannot be read or written. No job was changed after that."""

    exit_code = 4


class LockedError(SlurmschedError):
    """Another slurmsched works on this cluster. `holder`: which one. `held_s`: for how long [s]."""

    exit_code = 5

    def __init__(self, message: str, *, holder: str = "", held_s: float = float("inf")) -> None:
        super().__init__(message)
        self.holder, self.held_s = holder, held_s


class NotLeadingError(LockedError):
    """Another host holds the leader lease, or this host could not renew its own. `holder`: the leader."""

    def __init__(self, message: str, *, holder: str = "") -> None:
        super().__init__(message, holder=holder, held_s=0.0)


class RightsError(SlurmschedError):
    """The user that slurmsched runs as has no permission for this."""

    exit_code = 6


class PausedError(SlurmschedError):
    """The stop file exists. Nothing is written until it is removed."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h: try again later


class BusyError(SlurmschedError):
    """slurmctld is busy. The remaining writes wait for the next cycle."""

    exit_code = 75


class WorkersLostError(SlurmschedError):
    """The workers of a sweep have gone or cannot be reached. Finished points are on file.

    processes: number of processes of this machine, if one of them was ended from outside; else 0.
    """

    exit_code = 75

    def __init__(self, message: str, *, processes: int = 0) -> None:
        super().__init__(message)
        self.processes = processes
