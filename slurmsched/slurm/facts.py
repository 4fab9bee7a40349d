"""The facts about a site that the checklist judges, as words and numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from slurmsched.model.snapshot import Site

UNSET = frozenset({"", "(null)", "none", "n/a"})


@dataclass(frozen=True, slots=True)
class Facts:
    """What the checks look at: the site, and what slurm.conf does not tell.

    gres_conf: text of gres.conf, None if unreadable. qos_thresholds: MinPrioThres of each QOS that has one.
    job_submit: text of job_submit.lua, and of the site's own script that it calls, as far as they can be read.
    """

    site: Site
    lever: str = "nice"
    writes_per_s: float = 100.0
    preemption: bool = False
    gres_conf: str | None = None
    qos_thresholds: Mapping[str, int] = field(default_factory=dict)
    job_submit: tuple[str, ...] = ()
    node_lists: bool = False

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor of slurmctld; (0, 0) if unknown."""
        found = re.match(r"(\d+)\.(\d+)", self.site.version)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    @property
    def exempt(self) -> bool:
        """Whether the user is root or SlurmUser, whom the rate limiter lets pass."""
        return self.site.user in ("root", self.text("SlurmUser").partition("(")[0])

    def text(self, key: str) -> str:
        """A setting; "" if it is not set."""
        text = self.site.settings.get(key, "").strip()
        return "" if text.lower() in UNSET else text

    def words(self, key: str) -> dict[str, str]:
        """A comma list of words and word=value, words in small letters."""
        pairs = (word.partition("=") for word in self.text(key).split(",") if word)
        return {name.strip().lower(): value for name, _, value in pairs}

    def number(self, key: str) -> float:
        """The first number of a setting such as "300 sec"; NaN if there is none."""
        found = re.match(r"-?\d+", self.text(key))
        return float(found[0]) if found else float("nan")

    def added(self, key: str, word: str) -> str:
        """The line that gives a comma list one more word, in place of what it says of that word now."""
        name = word.partition("=")[0]
        rest = [old for old in self.text(key).split(",") if old and old.partition("=")[0].lower() != name]
        return f"{key}={','.join([*rest, word])}"

    def without(self, key: str, *names: str) -> str:
        """The line that takes words from a comma list."""
        rest = [old for old in self.text(key).split(",") if old and old.partition("=")[0].lower() not in names]
        return f"{key}={','.join(rest)}"

    @property
    def gpu_lines(self) -> list[str]:
        """The lines of gres.conf that are about GPUs, comments left out."""
        lines = (line.partition("#")[0].strip() for line in (self.gres_conf or "").splitlines())
        return [line for line in lines if re.search(r"\bName=gpu\b", line, re.I)]


def seconds(text: str) -> float:
    """Seconds of "00:05:00", "1-00:00:00" or "300 sec"; NaN if it is neither."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if not found:
        plain = re.match(r"\d+", text)
        return float(plain[0]) if plain else float("nan")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds
