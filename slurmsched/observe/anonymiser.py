"""Traces and snapshots that can be shown to others: no name, host, path or free text of the site, and the same plan.

Of a trace names are hashed with a key, ids are renumbered, and dates are moved by whole weeks. Of a snapshot whatever
is not known to be Slurm's own word is hidden: a new field of text is a hash until it has a line in _RULES.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model import Partitions, Snapshot
from slurmsched.model.columns import Int64s, Labels, Table
from slurmsched.model.durations import WEEK_S
from slurmsched.model.hints import hints_alone
from slurmsched.model.hostlists import expand_hostlist
from slurmsched.model.operations import RESERVATION_PREFIX
from slurmsched.model.trace import RecordedTrace
from slurmsched.observe.snapshot_file import SETTINGS, SavedSnapshot
from slurmsched.plain_text import pluralize
from slurmsched.planning.admin_comments import hidden_admin_comments

# Traces

# Column -> first letter of its new names.
HIDDEN = {
    "user": "u",
    "account": "a",
    "name": "n",
    "partition": "p",
    "qos": "q",
    "constraint": "c",
}
# Free text, names of nodes and of software, and ids, which change.
DROPPED = ("comment", "node_list", "partitions", "dependency", "licenses")
# Models that makers sell, with MIG profiles; any other Type of GPU is a name that the site gave.
PUBLIC_GPU_TYPES = re.compile(
    r"(?i)(?:(?:nvidia|amd|intel|tesla|geforce|quadro|instinct|radeon)[_-])*"
    r"(?:a|h|v|p|l|t|k|b|gh|gb|mi|rtx|gtx|titan|max)(?:_?\d{1,4}[a-z]{0,3})"
    r"(?:[_-](?:\d{1,3}gb?|\d+g[._]?\d+gb|sxm\d?|pcie|nvl|super|ti|ada))*"
)
# Architectures and data sets that are published, with a size; any other model may be a name of the site's own.
PUBLISHED = re.compile(
    r"(?i)(?:bert|roberta|vgg|resnets?|resnet|resnext|gpt|llama|mistral|mixtral|qwen|falcon|opt|bloom|t5|vit|swin|clip|"
    r"whisper|transformer|lstm|nmt|cyclegan|dcgan|deepspeech|inception|mobilenet|alexnet|googlenet|squeezenet|densenet|"
    r"efficientnet|yolov?|unet|a3c|recommendation|autoencoder|ncf|neumf|cifar|imagenet|librispeech|wikitext|language|translation)"
    r"(?:[-_. ]?v?\d{1,4}[bmk]?|[-_. ](?:base|large|small|tiny|xl|medium))*(?: \(batch size \d{1,6}\))?"
)
STATES = re.compile(r"[A-Z][A-Z_]*")  # of sacct, without "by UID"
KINDS = re.compile(r"[a-z][a-z0-9_-]{0,20}")
DIGEST_BYTES = 6  # 48 bits: two of a million names meet with a chance of 0.2 %


@dataclass(frozen=True, slots=True)
class TraceAnonymiser:
    """What to hide and how. The same key gives the same names, in every trace.

    key: up to 64 bytes, kept by whoever shares.
    models: hide the models' names too.
    calendar: keep hour and weekday; else no date at all.
    shift_s: added to the calendar.
    """

    key: bytes
    models: bool = False
    calendar: bool = True
    shift_s: float = 0.0

    def apply(self, recorded: RecordedTrace) -> RecordedTrace:
        """The trace without names. Sizes, times between events and states stay: they are its use. So do GPUs that are
        sold, and models that are published."""
        trace = recorded.trace
        columns = HIDDEN | ({"model": "m"} if self.models else {})
        hidden = {name: self.hide(getattr(trace, name), letter) for name, letter in columns.items()}
        hidden["gpu_type"] = self._but(trace.gpu_type, "t", PUBLIC_GPU_TYPES)
        states = Labels.of([name.partition(" ")[0] for name in trace.state.names])
        hidden["state"] = self._but(states.take(trace.state.codes) if len(trace) else trace.state, "x", STATES)
        if not self.models:
            hidden["model"] = self._but(trace.model, "m", PUBLISHED)
        ids = np.arange(1, len(trace) + 1)
        origin_s = recorded.origin_s % WEEK_S + self.shift_s if self.calendar else math.nan
        for name in DROPPED:
            hidden[name] = Labels.constant("", len(trace))
        return replace(
            recorded,
            trace=trace.with_columns(job_id=ids, array_id=_renumbered(trace.array_id), **hidden),
            beside=None,
            origin_s=origin_s,
            warnings=(),
            kind=recorded.kind if KINDS.fullmatch(recorded.kind) else "other",
        )

    def hide(self, labels: Labels, letter: str) -> Labels:
        """The column with each name as letter and hash; the same name of another column gets another."""
        made = Labels.of([self.name(name, letter) for name in labels.names])
        return made.take(labels.codes) if len(labels) else labels

    def _but(self, labels: Labels, letter: str, plain: re.Pattern[str]) -> Labels:
        """As hide, but for names of this form."""
        made = Labels.of([name if plain.fullmatch(name) else self.name(name, letter) for name in labels.names])
        return made.take(labels.codes) if len(labels) else labels

    def name(self, name: str, letter: str) -> str:
        """The hash of a name; "" stays."""
        if not name:
            return ""
        digest = hashlib.blake2b(
            name.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES, key=self.key, person=letter.encode()
        )
        return letter + digest.hexdigest()


def _renumbered(array_id: Int64s) -> Int64s:
    """Arrays by numbers from 1 on in the order of their ids, 0 = none. (J,)."""
    arrays, place = np.unique(array_id, return_inverse=True)
    numbers: Int64s = place.reshape(-1) + (0 if len(arrays) and arrays[0] == 0 else 1)
    return numbers


def new_key() -> bytes:
    """A random key that is not saved: names cannot be made equal to those of another trace."""
    return secrets.token_bytes(32)


def read_key(path: Path) -> bytes:
    """The key of a file, in hexadecimal, made for its owner alone if there is none. Raises InputError."""
    try:
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(new_key().hex(), encoding="ascii")
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be used as a key file: {error}", source=str(path)) from error
    if not 16 <= len(key) <= 64:
        raise InputError("must hold 16 to 64 bytes in hexadecimal", source=str(path))
    return key


# Snapshots

# What a name is -> first letter of its new name; those of anonymised traces among them.
LETTERS = HIDDEN | {"reservation": "r", "feature": "f", "group": "g", "cluster": "c", "type": "t", "other": "x"}
_GRES = ("gpu", "shard", "mps")
_OURS = re.compile(rf"{RESERVATION_PREFIX}[0-9a-f-]*")  # named after a job's id, which stays
_IDENTIFIER = re.compile(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*")
_NUMBER = re.compile(
    r"[+-]?[\d.:-]+(?: ?(?:sec|min|hours|days|usec|[KMG]B?|%))?|\(null\)|N/A|YES|NO|ALL|ANY|UNLIMITED|INFINITE"
)
_OPTION = re.compile(r"[a-z][a-z0-9_]*(?:/[a-z0-9_]+)?(?:=[\d.:+-]+)?|[A-Z][A-Z_]*|[\d.]+|")  # a word of Slurm's
# Of slurm.conf: values that are words of Slurm's and no numbers.
_WORDY = re.compile("SLURM_VERSION|.*(Type|Types|Flags|Mode|Parameters|Plugin|Enforce|TRES|PartLimits)")


def anonymised_snapshot(saved: SavedSnapshot, anonymiser: TraceAnonymiser) -> SavedSnapshot:
    """The same without any name of the site.

    Users, accounts, jobs, partitions, QOS, reservations, features, groups, models and the cluster become letter and
    hash. Nodes are numbered in their order. Of comments the hints stay, of notes and of nodes' reasons nothing.
    Job ids, times, sizes, states and GPU models that are sold stay.
    """
    hider = _SnapshotAnonymiser(saved.snapshot, anonymiser)
    snapshot = saved.snapshot
    left_out = pluralize(len(snapshot.warnings), "warning was", "warnings were")
    made = replace(
        hider.value(snapshot, "Snapshot"),
        warnings=(f"{left_out} left out",) if snapshot.warnings else (),
        carry={hider.key(name): hider.memory(value) for name, value in snapshot.carry.items()},
        shares={hider.known(name, "account"): share for name, share in snapshot.shares.items()},
        site=replace(
            snapshot.site, cluster=hider.name(snapshot.site.cluster, "cluster"),
            user=hider.name(snapshot.site.user, "user"), version=hider.words(snapshot.site.version, _WORDS["version"]),
            settings=hider.slurm_conf(snapshot.site.settings),
        ),
        tag=snapshot.tag if re.fullmatch("[0-9a-f]*", snapshot.tag) else hider.name(snapshot.tag, "other"),
    )  # fmt: skip
    made = replace(made, overrides=hidden_admin_comments(snapshot, made))
    return replace(saved, snapshot=made, settings=hider.settings(saved.settings), anonymised=True)


class _SnapshotAnonymiser:
    """The names of one snapshot, and the hash of each."""

    def __init__(self, snapshot: Snapshot, anonymiser: TraceAnonymiser) -> None:
        self._anonymiser = anonymiser
        hosts = sorted({*snapshot.nodes.name})
        width = len(str(len(hosts)))
        self._hosts = {name: f"n{place:0{width}}" for place, name in enumerate(hosts, 1)}
        jobs, past = snapshot.jobs, snapshot.past
        site = snapshot.site
        people = {
            "account": {*jobs.account, *past.account},
            "user": {*jobs.user, *past.user, site.user},
            "cluster": {site.cluster},
        }
        self._people = {
            name: self.name(name, kind) for kind, names in people.items() for name in names if name
        } | self._hosts
        types = {
            word
            for text in snapshot.nodes.gpu_types.names
            for part in text.split(",")
            for word in part.split(":")[1:-1]
        }
        self._people |= {word: self.name(word, "type") for word in types if not PUBLIC_GPU_TYPES.fullmatch(word)}
        others = {"partition": snapshot.partitions.name, "qos": jobs.qos, "name": jobs.name}
        self._known = {
            name: self.name(name, kind) for kind, names in others.items() for name in {*names} if name
        } | self._people
        self._held = re.compile("|".join(
            re.escape(name) if len(name) > 3 else rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])"
            for name in sorted(self._people, key=len, reverse=True) if len(name) > 2
        ) or r"(?!)")  # fmt: skip

    def name(self, name: str, kind: str) -> str:
        """The hash of a name; "" stays."""
        return self._anonymiser.name(name, LETTERS[kind])

    def known(self, text: str, kind: str = "other") -> str:
        """A name of any kind as that kind becomes, another as this one."""
        return self._known.get(text) or self.name(text, kind)

    def words(self, text: str, form: str) -> str:
        """A text of Slurm's own words; a hash where it has another form, or holds a name of the site."""
        fits = re.fullmatch(form, text) and text not in self._people and not self._held.search(text)
        return text if fits or not text else self.name(text, "other")

    def names(self, kind: str) -> Callable[[str], str]:
        """The hashes of a comma list of names of a kind; "ALL" and "" stay."""
        return lambda text: ",".join(name if name == "ALL" else self.name(name, kind) for name in text.split(","))

    def hosts(self, text: str) -> str:
        """The hashed form of a hostlist."""
        if text in ("", "ALL", "(null)"):
            return text
        try:
            return ",".join(self._hosts.get(name) or self.name(name, "other") for name in expand_hostlist(text))
        except ValueError:
            return self.name(text, "other")

    def constraint(self, text: str) -> str:
        """The hashed form of features joined by operators and counts."""
        return re.sub(r"[^&|,\[\]()*\s]+", lambda m: m[0] if m[0].isdigit() else self.name(m[0], "feature"), text)

    def gpu_type(self, text: str) -> str:
        """A model that is sold stays."""
        return (
            text
            if not text or (PUBLIC_GPU_TYPES.fullmatch(text) and text not in self._known)
            else self.name(text, "type")
        )

    def gres(self, text: str) -> str:
        """The hashed form of a GRES text such as "gpu:a100:2,shard:1"."""

        def entry(part: str) -> str:
            kind, *rest = part.split(":")
            words = [word if word.isdigit() else self.gpu_type(word) for word in rest]
            return ":".join((kind if kind in _GRES or not kind else self.name(kind, "type"), *words))

        return ",".join(map(entry, text.split(",")))

    def override(self, text: str) -> str:
        """The hashed form of a hostlist or a GPU request."""
        return self.gres(text) if ":" in text else self.hosts(text)

    def reason(self, text: str) -> str:
        """Slurm's word for why a job waits, without what follows it."""
        word = re.match(r"[A-Za-z_]*", text)[0]  # type: ignore[index]  # it matches any text
        return self.words(word, "[A-Z][A-Za-z]*(?:_[A-Za-z_]*)?")

    def dependency(self, text: str) -> str:
        """Kinds, ids and states."""
        return (
            text if re.fullmatch(r"(?:[a-z]+(?::[\d_+*]+(?:\([a-z]+\))?)*[,?]?)*", text) else self.name(text, "other")
        )

    def reservations(self, text: str) -> str:
        """Ours stay."""
        return ",".join(name if _OURS.fullmatch(name) else self.name(name, "reservation") for name in text.split(","))

    def cores(self, text: str) -> str:
        """The hashed form of a text such as "n1=4,n2=4"."""
        pairs = (part.partition("=") for part in text.split(",") if part)
        return ",".join(f"{self.hosts(node)}={count if count.isdigit() else 0}" for node, _, count in pairs)

    def comment(self, text: str) -> str:
        """The hints in it, a model's name as a hash."""
        words = (word.partition("=") for word in hints_alone(text).split(" "))
        return " ".join(
            f"{key}={self.name(value, 'name')}" if key == "model" else f"{key}{equals}{value}"
            for key, equals, value in words
        )

    def value(self, value: Any, kind: str, field: str = "") -> Any:
        """A part of a snapshot with each text hidden by the rule of its field."""
        if isinstance(value, str):
            return self._rule(kind, field)(value)
        if isinstance(value, Labels):
            rule = self._rule(kind, field)
            made = Labels.of([rule(name) for name in value.names])
            return made.take(value.codes) if len(value) else value
        if isinstance(value, tuple):
            return tuple(self.value(part, kind, field) for part in value)
        if isinstance(value, Table):
            return self._table(value)
        if is_dataclass(value) and not isinstance(value, type):
            parts = ((spec, getattr(value, spec.name)) for spec in fields(value) if spec.init)
            return replace(
                value, **{spec.name: self.value(part, type(value).__name__, spec.name) for spec, part in parts}
            )
        return value

    def _table(self, table: Any) -> Any:
        texts = {spec.name: column for spec in fields(table) if isinstance(column := getattr(table, spec.name), Labels)}
        made = table.with_columns(
            **{name: self.value(each, type(table).__name__, name) for name, each in texts.items()}
        )
        return made.take(np.argsort(np.array([*made.name]), kind="stable")) if isinstance(table, Partitions) else made

    def _rule(self, kind: str, field: str) -> Callable[[str], str]:
        rules: dict[str, Callable[[str], str]] = {
            "hosts": self.hosts, "gres": self.gres, "type": self.gpu_type, "reason": self.reason, "cores": self.cores,
            "dependency": self.dependency, "reservations": self.reservations, "features": self.constraint,
            "comment": self.comment, "override": self.override, "nothing": lambda _: "",
        }  # fmt: skip
        if field in _WORDS:
            return lambda text: self.words(text, _WORDS[field])
        rule = _RULES.get(f"{kind}.{field}", _RULES.get(f"*.{field}", "other"))
        return rules[rule] if rule in rules else self.names(rule)

    def key(self, text: str) -> str:
        """What a policy keeps something under, such as "share a100" or "57@1800": our own words and numbers stay."""
        return re.sub(r"[^\s@:/|,]+", lambda found: self._key_word(found[0]), text)

    def _key_word(self, word: str) -> str:
        plain = re.fullmatch(r"[\d_+.-]*", word) or (PUBLIC_GPU_TYPES.fullmatch(word) and word not in self._known)
        return self._people.get(word) or (word if plain or word in _OWN_KEYS else self.known(word))

    def memory(self, value: Any) -> Any:
        """A policy's memory: numbers stay, texts become names, keys of mappings too."""
        if isinstance(value, str):
            return value if re.fullmatch(r"[\d_+.-]*", value) else self.known(value)
        if isinstance(value, Mapping):
            return {self.key(key) if isinstance(key, str) else key: self.memory(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.memory(part) for part in value)
        return value

    def settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration: keys of sections stay, names of the site and paths do not."""
        made = {section: self._setting(value) for section, value in settings.items()}
        for section, part in settings.items():
            if section in ("policy", "estimator") and isinstance(part, Mapping) and "name" in part:
                made[section]["name"] = part["name"]  # by which it is found
            if section == "policy" and isinstance(part, Mapping) and "tiers" in part:
                made[section]["tiers"] = list(part["tiers"])  # such as "fair_share:4": words of ours, and numbers
            lists = {key: kind for key, kind in _SCOPE.items() if isinstance(part, Mapping) and key in part}
            made[section] |= {
                key: [name if name == "*" else self.name(name, kind) for name in part[key]]
                for key, kind in lists.items()
            }
        return made

    def _setting(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, str):
            plain = _IDENTIFIER.fullmatch(value) or _NUMBER.fullmatch(value)
            if PUBLIC_GPU_TYPES.fullmatch(value) or value in ("", "*"):
                return self._known.get(value, value)
            return value if plain and value not in self._known and not self._held.search(value) else self.known(value)
        if isinstance(value, Mapping):
            return {
                key if depth == 0 else self._setting(key, depth): self._setting(part, depth + 1)
                for key, part in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._setting(part, depth + 1) for part in value]
        return value

    def slurm_conf(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Numbers, and words of Slurm's where a setting has such; anything else is left out."""
        kept = {key: value for key, value in settings.items() if key != "ClusterName" and SETTINGS.fullmatch(key)}
        return {key: hidden for key, value in kept.items() if (hidden := self._conf_value(key, value))}

    def _conf_value(self, key: str, value: str) -> str:
        if self._held.search(value) or value in self._people:
            return ""
        if _NUMBER.fullmatch(value):
            return value
        parts = value.split(",")
        if key.endswith("TRES"):  # "gres/gpu:a100=5": a type that is no model that is sold is left out
            parts = [
                part for part in parts if PUBLIC_GPU_TYPES.fullmatch(part.partition(":")[2].partition("=")[0] or "a100")
            ]
            parts = [part for part in parts if _OPTION.fullmatch(part.partition(":")[0].partition("=")[0])]
            return ",".join(part for part in parts if _NUMBER.fullmatch(part.partition("=")[2] or "0"))
        return value if _WORDY.fullmatch(key) and all(map(_OPTION.fullmatch, parts)) else ""


# What our policies keep their memory under. Any other word may be a name of the site, and so may a site's own policy's.
_OWN_TEXT = (
    "admitted apps arrival_s at_s batch batch_gpus begin_s begins_s begun_s columns count deficit_s deserved_gpu_s "
    "deserved_gpus done done_s drawn due elastic_round end_s executed_s fair first first_arrival_s forgiven_gpu_s "
    "forgiven_s given_gpus gpus has heet ids isolated isolated_s job_id jobs last_s lease_plan left length_s "
    "made oasis on origin_s others pace pairs parts passed passes place queue ran_here ran_s rate received_s "
    "regimes remaining_s reset_s round round_at_s rounds rows run_s runs second second_arrival_s several share shared "
    "since_s slot speed_first speed_second stale started_s step_s stretch sum tenants times took trades until_s waited "
    "window worker_s "
)
_OWN_KEYS = frozenset(_OWN_TEXT.split())
_SCOPE = {"accounts": "account", "partitions": "partition", "qos": "qos"}
# Texts of Slurm's or our own words, whatever they are part of, and what they can look like.
_WORDS = {
    "version": r"[\d.]+[a-z0-9.~-]*", "form": "tree|block|gpus(?:-per-[a-z]+)?", "gpus_by": "node|job|task|socket",
    "id": "[0-9a-f-]+", "state": "[A-Z_+,]+|active|abandoned", "field": "[a-z_]+",
    "state_text": "[A-Z_+,]+", "flags": r"[A-Z_,:+\d]+", "over_subscribe": r"[A-Z]+(?::\d+)?",
    "exclusive": "node|user|topo|mcs", "defaults": r"(?:Def\w+=\d+,?)+", "signal": r"(?:SIG)?[A-Z]{2,6}\d?|\d+",
}  # fmt: skip
# How a text is hidden (a rule of _Hider, or what it names) -> kind and field of such texts, "*": of any kind.
_FIELDS = {
    "hosts": "Nodes.name *.node_list *.nodes_asked *.nodes_excluded *.nodes *.base *.node *.alloc_nodes",
    "user": "*.user *.users", "account": "*.account *.accounts *.allow_accounts *.deny_accounts",
    "partition": "Partitions.name *.partition *.partitions", "qos": "*.qos *.allow_qos *.deny_qos",
    "group": "*.groups *.allow_groups", "name": "Jobs.name Past.name Past.model",
    "reservations": "Reservations.name *.reservation", "features": "Jobs.features_asked Nodes.features",
    "gres": "*.gpu_request *.gpu_types *.gpus *.asks", "override": "Override.base Override.sent Override.values",
    "type": "*.gpu_type *.types GpuTopology.name",
    "comment": "Jobs.comment", "reason": "Jobs.reason", "dependency": "*.dependency", "cores": "*.cores",
    "nothing": "Nodes.reason *.note *.tres *.bars *.cost_by *.warnings",
}  # fmt: skip
_RULES = {place: rule for rule, places in _FIELDS.items() for place in places.split()}
