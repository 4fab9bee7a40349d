"""The configuration as text: a commented file of the defaults, flat rows, and the first file that `init` writes."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from slurmsched.config import Config, PluginConfig
from slurmsched.plain_text import escape_terminal, pluralize
from slurmsched.planning.priorities.priority_weights import KEPT_BY, lost_weights, proposed_tiers, slurm_weights
from slurmsched.tier_spec import read_tiers

if TYPE_CHECKING:
    from slurmsched.sim.experiments.site_history import HistoryProposal
    from slurmsched.slurm.site import DiscoveredSite, GpuPartition

# Chosen by bench/default_policy.py: within tiers, and where a site has none.
FIRST_POLICIES = ("srsf", "response-ratio")
AGE_CAP_S = 604_800
NOT_CHECKED = ("Not checked on the jobs of this site: `slurmsched init --history 30` compares policies on those of "
               "30 days")  # fmt: skip
COMMENT_COLUMNS = 98
_BOUNDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}  # of pydantic, and in words


def default_toml() -> str:
    """A configuration file that changes nothing: every key with its default, and its meaning and values as comments.

    Keys without a default are commented out; each of these lines works when it is uncommented.
    """
    lines = ["# Configuration of slurmsched: every key with its default. Keys left out have these values too.", ""]
    for head, meaning, entries in sections():
        if head.startswith("["):
            lines += [*_comment(meaning), head, *(line for entry in entries for line in _entry(*entry)), ""]
        else:
            lines += [line for entry in entries for line in (*_entry(*entry), "")]
    return "\n".join(lines).rstrip() + "\n"


Entry = tuple[str, FieldInfo, Any]  # key, field, default


def sections() -> Iterator[tuple[str, str, list[Entry]]]:
    """The top level and then each section: heading, meaning, and its keys."""
    config = Config()
    fields = [(name, field, getattr(config, name)) for name, field in Config.model_fields.items()]
    tables = [entry for entry in fields if isinstance(entry[2], BaseModel) and not isinstance(entry[2], PluginConfig)]
    yield "Top level", "", [entry for entry in fields if entry not in tables]
    for name, _, section in tables:
        meaning = (type(section).__doc__ or "").splitlines()[0]
        entries = [(key, field, getattr(section, key)) for key, field in type(section).model_fields.items()]
        yield f"[{name}]", meaning, entries


def flat(config: Config) -> Iterator[tuple[str, Any]]:
    """Each dotted key with its value, in the order of the tree."""
    yield from _flat(config.model_dump(mode="json"), "")


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, PluginConfig):
        return toml_value({name: getattr(value, name) for name in type(value).model_fields} | value.parameters)
    if isinstance(value, dict):
        inner = ", ".join(f"{_toml_key(key)} = {toml_value(part)}" for key, part in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


def allowed(field: FieldInfo) -> str:
    """The values that a field may have, as text: "at least 1", '"nice" or "site_factor"'; "" where any will do."""
    kind = field.annotation
    if get_origin(kind) is Literal:
        *first, last = map(json.dumps, get_args(kind))
        return f"{', '.join(first)} or {last}"
    if kind is bool:
        return "true or false"
    bounds = {name: getattr(each, name) for each in field.metadata for name in _BOUNDS if hasattr(each, name)}
    return ", ".join(f"{words} {bounds[name]:.15g}" for name, words in _BOUNDS.items() if bounds.get(name) is not None)


def described(field: FieldInfo) -> str:
    """What a field means and which values it may have."""
    values = allowed(field)
    return f"{field.description} ({values})" if values else str(field.description)


def _toml_key(key: str) -> str:
    """A key as TOML writes it, in quotes unless it is a bare one."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _entry(key: str, field: FieldInfo, value: Any) -> list[str]:
    """The meaning as a comment, then the default. A key without a default is a comment too, with an example."""
    if value is not None:
        further = _further(value) if isinstance(value, PluginConfig) else []
        return [*_comment(described(field)), *further, f"{key} = {toml_value(value)}"]
    examples = [f"# {key} = {toml_value(example)}" for example in field.examples or ()]
    return [*_comment(described(field) if examples else f"{key}: {described(field)}"), *examples]


def _further(plugin: PluginConfig) -> list[str]:
    """The meaning of each key of a plug-in's own section but its name, as comments."""
    specs = ((name, spec) for name, spec in type(plugin).model_fields.items() if name != "name")
    return [line for name, spec in specs for line in _comment(f"{name}: {described(spec)}")]


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, COMMENT_COLUMNS, break_on_hyphens=False)]


def _flat(tree: dict[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, value


# The first configuration, written by `slurmsched init`


def first_config(
    found: DiscoveredSite, partitions: Sequence[str], *, bin_dir: str = "", conf: str = "",
    proposal: HistoryProposal | None = None, unchecked: str = "",
) -> str:  # fmt: skip
    """TOML in dry-run for these partitions.

    bin_dir, conf: of [slurm], where they are not the usual ones.
    proposal: what the site's own history speaks for.
    unchecked: without one, why there is none.
    """
    slurm = _slurm(bin_dir, conf)
    policy = [*_policy(proposal, unchecked, tiered=bool(proposed_tiers(found.settings)))]
    return "\n".join(_first_lines(found, partitions, policy, slurm)) + "\n"


def _first_lines(
    found: DiscoveredSite, partitions: Sequence[str], policy: Sequence[str], slurm: Iterator[str]
) -> Iterator[str]:
    yield (
        f"# slurmsched for cluster {escape_terminal(found.cluster)}, Slurm "
        f"{escape_terminal(found.version)}. Keys that are not here"
    )
    yield "# have the defaults that `slurmsched config defaults` prints."
    yield ""
    yield 'mode = "dry-run"   # "apply" writes to Slurm; before that, look at `slurmsched plan` for some days'
    yield ""
    yield "[scope]"
    yield from (f"# {_commented_facts(one)}" for one in found.partitions)
    yield f"partitions = {toml_value(list(partitions))}   # the jobs to order"
    yield ""
    yield "[policy]"
    yield from policy
    yield from _tiers(found)
    yield ""
    yield "[starvation]"
    yield f"age_cap_s = {AGE_CAP_S}   # a job that could have started a week ago goes before all others"
    yield ""
    yield from slurm
    yield from _accounting(found)
    if found.slurm_user not in ("", "slurm"):
        yield "[daemon]"
        yield f"users = {toml_value([found.slurm_user])}   # SlurmUser, whose event hook may wake the daemon"
        yield ""
    if not found.multifactor:
        yield "# PriorityType is not priority/multifactor: slurmsched writes nothing until it is. See doctor."


def _policy(proposal: HistoryProposal | None, unchecked: str, *, tiered: bool) -> Iterator[str]:
    """The policy, and what speaks for it."""
    if proposal is None:
        yield f"# {unchecked or NOT_CHECKED}"
        yield f'name = "{FIRST_POLICIES[not tiered]}"   # `slurmsched policy list` shows all'
        return
    yield from (f"# {escape_terminal(line)}" for line in proposal.lines())
    name, parameters = proposal.choice
    yield f"name = {toml_value(name)}"
    yield from (f"{key} = {toml_value(value)}" for key, value in parameters.items())


def _tiers(found: DiscoveredSite) -> Iterator[str]:
    """The tiers that keep what the site's weights promise, and the weights that no longer count."""
    tiers = proposed_tiers(found.settings)
    yield "# Within these tiers the policy orders jobs (docs/tiers.md). They keep what your priority weights promise:"
    kept = {weight.name: weight for weight in slurm_weights(found.settings)}
    yield from (f"#   {tier}: {kept[KEPT_BY[tier.partition(':')[0]]]}" for tier in tiers)
    if not tiers:
        yield "#   none, as slurm.conf sets no weight for partitions, QOS, fair share or associations"
    yield f"tiers = {toml_value(list(tiers))}"
    for weight in lost_weights(found.settings, read_tiers(tiers)):
        yield f"# No longer counted: {weight}"


def _slurm(bin_dir: str, conf: str) -> Iterator[str]:
    given = {key: value for key, value in (("bin_dir", bin_dir), ("conf", conf)) if value}
    if given:
        yield "[slurm]"
        yield from (f"{key} = {toml_value(value)}" for key, value in given.items())
        yield ""


def _accounting(found: DiscoveredSite) -> Iterator[str]:
    yield "[ledger]"
    if not found.slurmdbd:
        yield "sacct = false   # no slurmdbd here: earlier runs of jobs are known from now on only"
    yield '# url = "mysql+pymysql://slurmsched@dbhost/slurmsched"   # default: SQLite in /var/lib/slurmsched'
    yield ""


def _commented_facts(one: GpuPartition) -> str:
    kinds = f" ({escape_terminal(', '.join(one.types))})" if one.types else ""
    mig = f" and {pluralize(one.mig, 'MIG device')}" if one.mig else ""
    unread = f"; the GPUs of {pluralize(one.unread, 'more node')} cannot be read" if one.unread else ""
    return (
        f"{escape_terminal(one.name)}: {pluralize(one.gpus, 'GPU')}{mig}{kinds} on "
        f"{pluralize(one.nodes, 'node')}{unread}"
    )
