"""Limits of QOS and associations: read from the name of a reason, and their value and use from assoc_mgr.

Names of reasons follow one grammar, so that no table of a hundred rows is needed: [QOS|Assoc] Grp|Max|Min, what is
counted, its minutes, and per what. Fields: `scontrol show assoc_mgr` of 24.11.5 and 26.05.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_NAME = re.compile(
    r"(?P<of>QOS|Assoc)?(?P<bound>Grp|Max|Min)"
    r"(?P<what>Cpu|Memory|Mem|Node|GRES|License|BB|Energy|Billing|Unknown|SubmitJobs?|Jobs?|WallDuration|Wall)"
    r"(?P<time>RunMinutes|Minutes|RunMins|Mins)?(?:Per(?P<per>Job|User|Node|Account))?(?:Limit|NotSatisfied)?",
    re.IGNORECASE,
)
_WHAT = {"memory": "mem", "submitjobs": "submitjobs", "submitjob": "submitjobs", "job": "jobs", "wallduration": "wall"}
_TIMES = {"runminutes": "run minutes", "runmins": "run minutes", "minutes": "minutes", "mins": "minutes", "": ""}
_SUFFIX = {"job": "PJ", "node": "PN", "user": "PU", "account": "PA"}
_TRES_WORDS = {"minutes": "Mins", "run minutes": "RunMins", "": ""}
_RECORD = re.compile(r"^\s*(?=ClusterName=|QOS=)", re.MULTILINE)
_NUMBER = re.compile(r"(?P<value>[\d.]+)(?:\((?P<used>[\d.]+)\))?")


@dataclass(frozen=True, slots=True)
class Limit:
    """of: "qos" or "association". bound: "grp" (all jobs together), "max" or "min". what: "cpu", "mem", "node", "gres",
    "license", "bb", "energy", "billing", "unknown", "jobs", "submitjobs" or "wall". time: "", "minutes" or
    "run minutes". per: "", "job", "user", "node" or "account"."""

    of: str
    bound: str
    what: str
    time: str = ""
    per: str = ""

    @property
    def field(self) -> str:
        """Its key in assoc_mgr, such as "MaxTRESPU"."""
        return self._word + (_SUFFIX.get(self.per, "") if self.bound != "grp" else "")

    @property
    def counts_tres(self) -> bool:
        return self.what not in ("jobs", "submitjobs", "wall")

    @property
    def _word(self) -> str:
        bound = self.bound.capitalize()
        if self.counts_tres:
            return f"{bound}TRES{_TRES_WORDS[self.time]}"
        return bound + {"jobs": "Jobs", "submitjobs": "SubmitJobs", "wall": "Wall"}[self.what]

    def counts(self, tres: str) -> bool:
        """Whether a TRES such as "gres/gpu" is of the kind that is limited."""
        plain = tres.partition("/")[0]
        known = ("cpu", "mem", "node", "gres", "license", "bb", "energy", "billing")
        return plain not in known if self.what == "unknown" else plain == self.what


@dataclass(frozen=True, slots=True)
class LimitValue:
    """One limit that is set. owner: "QOS small", "account physics", "user alice in account physics". what: "gres/gpu",
    "jobs", "wall". used: None where Slurm tells none, as for limits of one job. blocks: the job does not fit below it;
    None = cannot be told."""

    owner: str
    field: str
    what: str
    value: float
    used: float | None = None
    needs: float | None = None

    @property
    def blocks(self) -> bool | None:
        if self.needs is None:
            return None
        return (self.used or 0.0) + self.needs > self.value


def limit_named(name: str) -> Limit | None:
    """The limit a reason is named after: "QOSMaxGRESPerUser", "AssocGrpCpuLimit"; None if it is none."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    bound, what = found["bound"].lower(), found["what"].lower()
    per = (found["per"] or "").lower()
    of = "association" if (found["of"] or "").lower() == "assoc" else "qos"
    what = _WHAT.get(what, what)
    per = per or ("job" if bound == "min" or (bound == "max" and what == "wall") else "")
    per = "user" if of == "qos" and bound == "max" and not per else per
    return Limit(of, bound, what, _TIMES[(found["time"] or "").lower()], per)


def limit_values(limit: Limit, text: str, needs: dict[str, float]) -> tuple[LimitValue, ...]:
    """The limits of this kind that are set, in what `scontrol -o show assoc_mgr` prints of one user, account and QOS.

    needs: what the job adds, by TRES ("cpu", "gres/gpu" ...) and "jobs"; not counted for limits over time. What cannot
    be read is left out: Slurm's forms differ by release.
    """
    kind = "QOS=" if limit.of == "qos" else "ClusterName="
    return tuple(
        value for record in _RECORD.split(text) if record.startswith(kind) for value in _values(limit, record, needs)
    )


def parents(text: str) -> tuple[str, ...]:
    """Accounts above those of the records, by their lineage or parent; root is none."""
    found = {name for line in re.findall(r"\bLineage=(\S*)", text) for name in line.split("/") if "-" not in name[:2]}
    found |= set(re.findall(r"\bParentAccount=([^\s(]+)", text))
    return tuple(sorted(found - {"", "root"}))


def _values(limit: Limit, record: str, needs: dict[str, float]) -> Iterator[LimitValue]:
    found = re.search(rf"(?:^|[\s{{]){limit.field}=([^\s}}]*)", record)
    for part in found[1].split(",") if found else ():
        tres, equals, told = part.rpartition("=")
        number = _NUMBER.fullmatch(told)
        if number is None or (limit.counts_tres and not limit.counts(tres)):
            continue
        what = tres if equals else limit.what
        used = None if number["used"] is None else float(number["used"])
        add = needs.get(what) if not limit.time and limit.bound != "min" else None
        yield LimitValue(_owner(record), limit.field, what, float(number["value"]), used, add)


def _owner(record: str) -> str:
    told = dict(re.findall(r"\b(QOS|Account|UserName)=([^\s(]*)", record))
    if record.startswith("QOS="):
        return f"QOS {told.get('QOS', '?')}"
    account = f"account {told.get('Account', '?')}"
    return f"user {told['UserName']} in {account}" if told.get("UserName") else account
