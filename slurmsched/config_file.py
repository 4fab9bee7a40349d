"""Reads the configuration: a TOML file and SLURMSCHED_* variables over the defaults, with all faults and sources."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from slurmsched.config import Config, ConfigSection
from slurmsched.errors import ConfigError
from slurmsched.passwords import HIDDEN, url_without_password, without_passwords

PREFIX = "SLURMSCHED_"
OTHERS = ("SLURMSCHED_CONFIG", "SLURMSCHED_LAB")  # variables (the latter a family) that are no settings
SYSTEM_FILE = Path("/etc/slurmsched/slurmsched.toml")


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The tree, and where its values come from.

    file: dotted keys that the file sets.
    variables: dotted key -> variable that sets it.
    """

    config: Config
    path: Path | None = None
    file: frozenset[str] = frozenset()
    variables: Mapping[str, str] = field(default_factory=dict)

    def source(self, key: str) -> str:
        """Where the value of a dotted key or section comes from: a variable, the file's path or "default"."""
        for known in (key, key.partition(".")[0]):
            if known in self.variables:
                return self.variables[known]
            if known in self.file:
                return str(self.path)
        parts = (name for known, name in self.variables.items() if known.startswith(f"{key}."))
        in_file = any(known.startswith(f"{key}.") for known in self.file)
        return next(parts, str(self.path) if in_file else "default")


def config_path(given: str | None = None) -> Path | None:
    """The file to read: the one given, $SLURMSCHED_CONFIG, or the system's if it exists; else None."""
    named = given or os.environ.get("SLURMSCHED_CONFIG")
    if named:
        return Path(named)
    return SYSTEM_FILE if SYSTEM_FILE.exists() else None


def load_config(path: Path | None) -> Config:
    """The tree: SLURMSCHED_SECTION__KEY over the TOML file over the defaults.

    Raises ConfigError naming file or variable, key and, for an unknown key, the nearest known one.
    """
    return load_settings(path).config


def load_settings(path: Path | None) -> LoadedConfig:
    """As load_config, with the source of each value."""
    settings, faults = examine_settings(path)
    if faults:
        raise faults[0]
    return settings


def examine_settings(path: Path | None) -> tuple[LoadedConfig, list[ConfigError]]:
    """As load_settings, with every fault in place of the first; keys at fault have their defaults in the tree.

    Raises ConfigError for a file that cannot be read or is not TOML, and for variables that cannot be read.
    """
    tree = {} if path is None else read_toml(path)
    environment, variables = _environment()
    tree = _without_replaced(tree, environment)
    config, faults = _parsed_tree(_merged(tree, environment), str(path or ""), variables)
    return LoadedConfig(config, path, frozenset(_keys(tree)), variables), faults


def parse_config(tree: Mapping[str, Any], *, source: str = "", variables: Mapping[str, str] | None = None) -> Config:
    """The tree of the given values over the defaults. Raises ConfigError as load_config does."""
    config, faults = _parsed_tree(tree, source, variables or {})
    if faults:
        raise faults[0] from None
    return config


def _parsed_tree(
    tree: Mapping[str, Any], source: str, variables: Mapping[str, str]
) -> tuple[Config, list[ConfigError]]:
    """The tree without the keys at fault, and a fault for each of them."""
    faults: list[ConfigError] = []
    while True:
        try:
            return Config.model_validate(dict(tree)), faults
        except ValidationError as error:
            errors = error.errors()
        for each in errors:
            key = ".".join(str(part) for part in each["loc"])
            setters = (name for known, name in variables.items() if f"{known}.".startswith(f"{key}."))
            faults.append(ConfigError(_message(each), key=key, source=next(setters, source)))
        tree = _without_faulty(tree, [each["loc"] for each in errors])


def _without_faulty(tree: Mapping[str, Any], places: Sequence[tuple[int | str, ...]]) -> dict[str, Any]:
    """The tree without the keys at these places; of a key that is missing, without its table."""
    kept: dict[str, Any] = json.loads(json.dumps(tree, default=str))
    for place in places:
        tables: list[tuple[dict[str, Any], str]] = []
        inner: Any = kept
        for part in place:
            if not (isinstance(inner, dict) and part in inner):
                break
            tables.append((inner, str(part)))
            inner = inner[part]
        for table, part in tables[-1:]:
            table.pop(part, None)
        if not tables:
            kept.clear()  # a rule that several sections break
    return kept


def read_toml(path: Path) -> dict[str, Any]:
    """The tree of a TOML file. Raises ConfigError for a file that cannot be read or is no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"is not TOML: {error}", source=str(path)) from error


def _environment() -> tuple[dict[str, Any], dict[str, str]]:
    """The tree that variables give, and dotted key -> variable. pydantic-settings is loaded only where one is set."""
    ours = [name for name in os.environ if name.startswith(PREFIX) and not name.startswith(OTHERS)]
    paths = {name: name.removeprefix(PREFIX).lower().split("__") for name in ours}
    if not paths:
        return {}, {}
    for name, path in paths.items():
        if len(path) == 1 and path[0] not in Config.model_fields:
            raise ConfigError(f"unknown variable{_nearest_name(name, _variables())}", source=name)
    from pydantic_settings import EnvSettingsSource, SettingsError

    settings_cls: Any = Config
    try:
        tree = EnvSettingsSource(settings_cls, env_prefix=PREFIX, env_nested_delimiter="__")()
    except SettingsError as error:
        named = [name for name, path in paths.items() if f'"{path[0]}"' in str(error)]
        raise ConfigError("""a list or a table is written as JSON: '["gpu"]'""", source=", ".join(named)) from error
    for name, path in paths.items():
        _complete(tree, path, os.environ[name])
    return tree, {".".join(path): name for name, path in paths.items()}


def _complete(tree: dict[str, Any], path: list[str], text: str) -> None:
    """Add what the settings source left out (a key it does not know, refused later) and read a plug-in's parameters."""
    for part in path[:-1]:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            return
    if isinstance(tree.get(path[-1], text), str):
        try:
            tree[path[-1]] = json.loads(text)
        except ValueError:
            tree[path[-1]] = text


def _variables() -> list[str]:
    """Every variable that sets something, parameters of plug-ins left out."""
    names = []
    for name, field_of in Config.model_fields.items():
        section: Any = field_of.annotation
        keys = section.model_fields if isinstance(section, type) and issubclass(section, ConfigSection) else ()
        names += [f"{PREFIX}{name}__{key}".upper() for key in keys] or [f"{PREFIX}{name}".upper()]
    return names


def _without_replaced(tree: dict[str, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """The file's tree without the parameters of a plug-in in whose place a variable names another one."""
    kept = dict(tree)
    for section in ("policy", "estimator"):
        above, below = environment.get(section), tree.get(section)
        if not (isinstance(above, Mapping) and isinstance(below, Mapping) and "name" in above):
            continue
        default = Config.model_fields[section].default
        if above["name"] != below.get("name", default.name if default else None):
            del kept[section]
    return kept


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: _merged(below[key], value) for key, value in above.items()
            if isinstance(value, Mapping) and isinstance(below.get(key), Mapping)}  # fmt: skip
    return {**below, **above, **both}


def _keys(tree: Mapping[str, Any], before: str = "") -> list[str]:
    keys: list[str] = []
    for key, value in tree.items():
        keys += _keys(value, f"{before}{key}.") if isinstance(value, Mapping) else [before + key]
    return keys


_WORDS = {
    "tuple_type": "must be a list in brackets",
    "list_type": "must be a list in brackets",
    "string_type": "must be a text in quotes",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "path_type": "must be a path in quotes",
    "dict_type": "must be a table of keys",
    "model_type": "must be a table of keys",
    "model_attributes_type": "must be a table of keys",
    "literal_error": "must be {expected}",
    "string_pattern_mismatch": "must be HOST:PORT",
    "missing": "must be given",
    "greater_than": "must be greater than {gt:.15g}",
    "greater_than_equal": "must be at least {ge:.15g}",
    "less_than_equal": "must be at most {le:.15g}",
}


def _message(error: Any) -> str:
    """What is wrong, in the words of a person who edits a TOML file."""
    if error["type"] == "extra_forbidden":
        return f"unknown key{_nearest_key(error['loc'])}"
    text = error["msg"].removeprefix("Value error, ")
    if error["type"] in _WORDS:
        text = _WORDS[error["type"]].format(**error.get("ctx", {}))
    return text if isinstance(error["input"], Mapping) else f"{text}, got {_input(error)}"


def _input(error: Any) -> str:
    """What stood there, without a password."""
    if tuple(error["loc"]) == ("ledger", "password_file"):  # in which somebody wrote the password itself
        return HIDDEN
    if tuple(error["loc"]) in (("ledger",), ("ledger", "url")):
        text = isinstance(error["input"], str)
        return repr(url_without_password(error["input"])) if text else f"a {type(error['input']).__name__}"
    return without_passwords(repr(error["input"]))


def _nearest_key(loc: tuple[int | str, ...]) -> str:
    section: Any = Config
    for part in loc[:-1]:
        section = get_args(section)[0] if isinstance(part, int) else section.model_fields[part].annotation
    name = str(loc[-1])
    return _nearest_name(name, list(section.model_fields)) or _near_elsewhere(name)


def _near_elsewhere(name: str) -> str:
    """The section that has a key of this name: its [header] was forgotten, or another stands above the key."""
    sections = ((above, field_of.annotation) for above, field_of in Config.model_fields.items())
    found = [f"{above}.{name}" for above, of in sections if name in getattr(of, "model_fields", ())]
    return f" (did you mean {' or '.join(map(repr, found))}?)" if found else ""


def _nearest_name(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def digest(config: Config) -> str:
    """Twelve hex digits that tell one configuration from another; no password of a URL is in it."""
    url = url_without_password(config.ledger.url)
    shown = config.model_copy(update={"ledger": config.ledger.model_copy(update={"url": url})})
    return hashlib.blake2b(shown.model_dump_json().encode(), digest_size=6).hexdigest()
