from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from slurmsched.config import Config
from slurmsched.config_file import config_path, load_config, load_settings, parse_config
from slurmsched.config_text import default_toml, flat, toml_value
from slurmsched.errors import ConfigError


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    """No variable of the machine bends these tests."""
    monkeypatch.delenv("SLURMSCHED_CONFIG", raising=False)


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(text)
    return path


def test_load_config__without_file_is_all_defaults():
    """Nothing configured is a valid, harmless configuration: dry-run, nothing managed."""
    config = load_config(None)
    assert config == Config()
    assert (config.mode, config.scope.partitions) == ("dry-run", ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modus = 'apply'", "modus: unknown key (did you mean 'mode'?)"),
        (
            "[[topology.classes]]\nname = 'a'\nnodes = 'n1'\nfile = 'f'\nfil = 'x'",
            "topology.classes.0.fil: unknown key (did you mean 'file'?)",
        ),
        ("[scope]\npartition = ['a']", "scope.partition: unknown key (did you mean 'partitions'?)"),
        ("[scope]\nzzz = 1", "scope.zzz: unknown key"),
        ("mode = 'aply'", "mode: must be 'dry-run' or 'apply', got 'aply'"),
        ("[cycle]\ninterval_s = 0", "cycle.interval_s: must be greater than 0, got 0"),
        ("policy = 'las'", "policy: must be a table of keys, got 'las'"),
        ("scope = 3", "scope: must be a table of keys, got 3"),
        ("[soft_caps]\nuser = 4", "soft_caps.user: must be a table of keys, got 4"),
        ("[scope]\npartitions = 'gpu'", "scope.partitions: must be a list in brackets, got 'gpu'"),
        ("[scope]\npartitions = [1]", "scope.partitions.0: must be a text in quotes, got 1"),
        ("[scope]\ngpu_jobs_only = 'perhaps'", "scope.gpu_jobs_only: must be true or false, got 'perhaps'"),
        ("[lever]\ngap = -1", "lever.gap: must be at least 0, got -1"),
        ("[lever]\nfloor = 'low'", "lever.floor: must be a whole number, got 'low'"),
        ("[lever]\nceiling = 3000000000", "lever.ceiling: must be at most 2147000000, got 3000000000"),
        ("[ledger]\nlock = 3", "ledger.lock: must be a path in quotes, got 3"),
        ("[estimator]\nweight = 2", "estimator.name: must be given"),
        ("[lever]\nfloor = 100\nceiling = 50", "lever: floor must be below ceiling, which is 50"),
        ("interval_s = 10", "interval_s: unknown key (did you mean 'cycle.interval_s' or 'past.interval_s'?)"),
        ("[scope]\nlisten = 'a:1'", "scope.listen: unknown key (did you mean 'metrics.listen' or 'web.listen'?)"),
        ("[cycle]\ninterval_s = 1e300", "cycle.interval_s: must be at most 86400, got 1e+300"),
        ("[slurm]\ntimeout_s = 1e300", "slurm.timeout_s: must be at most 3600, got 1e+300"),
        ("[pace]\nwrites_per_s = 1e-300", "pace.writes_per_s: must be at least 0.01, got 1e-300"),
        ("[metrics]\nlisten = 'h:99999'", "metrics.listen: the port must be at most 65535, got 'h:99999'"),
        ("[metrics]\ntextfile = 'a.prom'", "metrics.textfile: must be an absolute path, got 'a.prom'"),
        ("[ledger]\njournal = 'j.jsonl'", "ledger.journal: must be an absolute path, got 'j.jsonl'"),
        ("[ledger]\nlock = 'run/lock'", "ledger.lock: must be an absolute path, got 'run/lock'"),
        ("[cycle]\nstop_file = 'stop'", "cycle.stop_file: must be an absolute path, got 'stop'"),
        ("[daemon]\nsocket = 's'", "daemon.socket: must be an absolute path, got 's'"),
    ],
)
def test_load_config__names_file_key_and_remedy(tmp_path, text, message):
    """What is wrong, where, and the nearest known key."""
    path = _file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value) == f"{path}: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ledger = { lock = '/x/j', journal = '/x/j' }", "ledger.lock and ledger.journal are the same file, /x/j"),
        (
            "ledger = { lock = '/x/../x/j', journal = '/x/j' }",
            "ledger.lock and ledger.journal are the same file, /x/../x/j",
        ),
        ("ledger = { lock = '/x/d', url = 'sqlite:////x/d' }", "ledger.lock and ledger.url are the same file, /x/d"),
        (
            "ledger = { journal = '/x/j.jsonl', lock = '/x/j.operations.jsonl' }",
            "ledger.lock and the operations.jsonl of ledger.journal are the same file, /x/j.operations.jsonl",
        ),
        (
            "cycle = { stop_file = '/x/l' }\nledger = { lock = '/x/l' }",
            "ledger.lock and cycle.stop_file are the same file, /x/l",
        ),
    ],
)
def test_load_config__refuses_two_uses_of_one_file(tmp_path, text, message):
    """Who signs a lock empties it: a journal of that name would be gone, and with it all that `undo` knows."""
    path = _file(tmp_path, text)
    with pytest.raises(ConfigError, match=f"^{re.escape(f'{path}: {message}')}$"):
        load_config(path)


@pytest.mark.parametrize("url", ["sqlite:///ledger.db", "sqlite+pysqlite:///a/ledger.db", "sqlite://ledger.db"])
def test_load_config__refuses_a_sqlite_file_by_a_relative_path(tmp_path, url):
    """Daemon, cron and a shell start in other folders: each would have a ledger of its own."""
    with pytest.raises(ConfigError, match=r"ledger\.url: a SQLite file needs an absolute path, after four slashes"):
        load_config(_file(tmp_path, f"[ledger]\nurl = '{url}'"))


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:////x/y?timeout=3", "mysql://a:b@c/d"])
def test_load_config__takes_other_ledgers(tmp_path, url):
    """A file by an absolute path, memory, and servers."""
    assert load_config(_file(tmp_path, f"[ledger]\nurl = '{url}'")).ledger.url == url


def test_load_config__of_a_missing_or_broken_file(tmp_path):
    """A file that is not there or no TOML is an error, never the defaults."""
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_config(_file(tmp_path, "mode = "))


def test_variable__overrides_the_file(tmp_path, monkeypatch):
    """SLURMSCHED_SECTION__KEY wins; the other keys of the section stay as the file says."""
    path = _file(tmp_path, "[cycle]\ninterval_s = 30\nseed = 1\n")
    monkeypatch.setenv("SLURMSCHED_CYCLE__SEED", "9")
    monkeypatch.setenv("SLURMSCHED_SCOPE__PARTITIONS", '["gpu", "long"]')
    monkeypatch.setenv("SLURMSCHED_MODE", "apply")
    config = load_config(path)
    assert (config.cycle.interval_s, config.cycle.seed) == (30, 9)
    assert (config.mode, config.scope.partitions) == ("apply", ("gpu", "long"))


def test_variable__sets_parameters_of_the_policy(monkeypatch):
    """Parameters are any JSON; the default policy need not be named again."""
    monkeypatch.setenv("SLURMSCHED_POLICY__GPUS_POWER", "0.5")
    policy = load_config(None).policy
    assert (policy.name, policy.parameters) == ("response-ratio", {"gpus_power": 0.5})


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("SLURMSCHED_CYCLE__SED", "1", "SLURMSCHED_CYCLE__SED: cycle.sed: unknown key (did you mean 'seed'?)"),
        ("SLURMSCHED_CYCEL__SEED", "1", "SLURMSCHED_CYCEL__SEED: cycel: unknown key (did you mean 'cycle'?)"),
        ("SLURMSCHED_CYCLE__INTERVAL_S", "-1", "SLURMSCHED_CYCLE__INTERVAL_S: cycle.interval_s: must be greater "
         "than 0, got -1"),
        ("SLURMSCHED_CYCLE__SEED", "-1", "SLURMSCHED_CYCLE__SEED: cycle.seed: must be at least 0, got -1"),
        ("SLURMSCHED_CYCLE__SEED", "2147483648", "SLURMSCHED_CYCLE__SEED: cycle.seed: must be at most 2147483647, got "
         "2147483648"),
        ("SLURMSCHED_MODEE", "apply", "SLURMSCHED_MODEE: unknown variable (did you mean 'SLURMSCHED_MODE'?)"),
        ("SLURMSCHED_PARTITIONS", "gpu", "SLURMSCHED_PARTITIONS: unknown variable (did you mean "
         "'SLURMSCHED_SCOPE__PARTITIONS'?)"),
    ],
)  # fmt: skip
def test_variable__errors_name_the_variable(monkeypatch, variable, value, message):
    """The person finds where the value comes from."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError) as caught:
        load_config(None)
    assert str(caught.value) == message


@pytest.mark.parametrize("section", ["policy", "estimator"])
def test_variable__another_plugin_comes_without_the_files_parameters(tmp_path, monkeypatch, section):
    """They are those of the one it replaces."""
    path = _file(tmp_path, f'[{section}]\nname = "one"\nweight = 3\n')
    monkeypatch.setenv(f"SLURMSCHED_{section.upper()}__NAME", "two")
    settings = load_settings(path)
    found = getattr(settings.config, section)
    assert (found.name, found.parameters) == ("two", {})
    assert settings.source(section) == f"SLURMSCHED_{section.upper()}__NAME"


def test_variable__the_same_plugin_keeps_the_files_parameters(tmp_path, monkeypatch):
    """Named or not: the default policy is one too."""
    path = _file(tmp_path, "[policy]\ngpus_power = 0.5\n")
    monkeypatch.setenv("SLURMSCHED_POLICY__NAME", "response-ratio")
    assert load_config(path).policy.parameters == {"gpus_power": 0.5}


def test_variable__of_the_lab_is_no_setting(monkeypatch):
    """Nor is the one that names the file."""
    monkeypatch.setenv("SLURMSCHED_LAB_CACHE", "/tmp")
    monkeypatch.setenv("SLURMSCHED_CONFIG", "/tmp/none")
    assert load_config(None) == Config()


def test_source__tells_where_each_value_comes_from(tmp_path, monkeypatch):
    """Variable over file over default."""
    path = _file(tmp_path, "[cycle]\ninterval_s = 30\nseed = 1\n")
    monkeypatch.setenv("SLURMSCHED_CYCLE__SEED", "9")
    settings = load_settings(path)
    sources = [settings.source(key) for key in ("cycle.seed", "cycle.interval_s", "cycle.stop_file")]
    assert sources == ["SLURMSCHED_CYCLE__SEED", str(path), "default"]


def test_config_path__prefers_the_option_then_the_variable(monkeypatch):
    """--config wins over $SLURMSCHED_CONFIG."""
    monkeypatch.setenv("SLURMSCHED_CONFIG", "/a")
    assert [config_path("/b"), config_path(None)] == [Path("/b"), Path("/a")]


def test_default_toml__is_the_defaults_with_every_key():
    """The printed file parses, changes nothing, and has a comment for each key."""
    text = default_toml()
    tree = tomllib.loads(text)
    assert parse_config(tree) == Config()
    keys = {key for key, _ in flat(Config())} - {"estimator"}
    assert {key for key, _ in flat(parse_config(tree))} - {"estimator"} == keys
    lines = text.splitlines()
    bare = [line for above, line in pairwise(lines) if " = " in line and not above.startswith("#")]
    assert [line for line in bare if not line.startswith("#")] == []
    assert "None" not in text


COMMENTED = [line for line in default_toml().splitlines() if re.match(r"# \w+ = ", line)]


@pytest.mark.parametrize("line", COMMENTED)
def test_default_toml__a_commented_line_works_uncommented(line):
    """It shows a value that the key takes."""
    tree = tomllib.loads(default_toml().replace(line, line.removeprefix("# ")))
    assert parse_config(tree) != Config()


def test_default_toml__says_which_values_are_allowed():
    """By the words of the key's type and bounds."""
    text = default_toml()
    for values in ('("nice" or "site_factor")', "(above 0, at most 86400)", "(true or false)", "(at least 1)"):
        assert values in text


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, "true"), (1.5, "1.5"), ('a"b', '"a\\"b"'), ((1, 2), "[1, 2]"), (Path("/x"), '"/x"'),
     ({"name": "las", "gaps": [1]}, '{ name = "las", gaps = [1] }')],
)  # fmt: skip
def test_toml_value__reads_back(value, expected):
    """Values are written as TOML takes them."""
    assert toml_value(value) == expected
    tomllib.loads(f"x = {expected}")
