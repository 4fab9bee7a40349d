from __future__ import annotations

from pathlib import Path

import pytest

from slurmsched.cli.config import plugin_faults, warned
from slurmsched.cli.main import COMMANDS
from slurmsched.config_file import load_config, load_settings

FOLDER = Path(__file__).parents[2] / "site-configs"
SITES = sorted(FOLDER.glob("*.toml"))
UNITS = sorted([*FOLDER.glob("*.service"), *FOLDER.glob("*.timer")])


def _unit(path: Path) -> dict[str, list[tuple[str, str]]]:
    """The sections of a unit, each with its settings in order (keys may come more than once)."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            current = sections.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals, f"{path.name}: {line!r} is no setting"
            current.append((key, value))
    return sections


@pytest.mark.parametrize("path", SITES, ids=lambda path: path.stem)
def test_site__loads_and_its_policy_can_be_made(path, monkeypatch, tmp_path):
    """Each is a configuration that runs as it stands: it manages something, and starts in dry-run."""
    monkeypatch.delenv("SLURMSCHED_CONFIG", raising=False)
    if load_config(path).ledger.password_file:
        (file := tmp_path / "password").write_text("secret")
        file.chmod(0o600)
        monkeypatch.setenv("SLURMSCHED_LEDGER__PASSWORD_FILE", str(file))
    config = load_config(path)
    assert plugin_faults(load_settings(path)) == []
    assert [text for text in warned(config) if "no job is managed" in text] == []
    assert (config.mode, bool(config.scope.partitions)) == ("dry-run", True)


def test_sites__are_those_promised():
    """DGX A100, V100 hybrid mesh, PCIe only, mixed generations; usual QOS, contracts, a class-room, and none of it."""
    machines = {"dgx-a100", "v100-hybrid-mesh", "pcie-only", "mixed-generation"}
    assert {path.stem for path in SITES} == machines | {"qos-tiers", "contract-qos", "class-room", "no-qos"}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_units__have_no_empty_section(path):
    """Sections and settings only, no section empty."""
    sections = _unit(path)
    assert "Unit" in sections
    assert [name for name, settings in sections.items() if not settings] == []


@pytest.mark.parametrize("name", ["slurmsched.service", "slurmsched-tick.service", "slurmsched.cron"])
def test_service__runs_a_command_there_is(name):
    """The command line of units and crontab exists, and runs as slurmsched's own user."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    (words,) = [line.split("/slurmsched ")[1].split() for line in text.splitlines() if "/bin/slurmsched " in line]
    assert words[0] in COMMANDS
    assert "User=slurmsched" in text or "* slurmsched " in text


def test_daemon_unit__is_told_and_watched():
    """Type=notify with a watchdog, reload by SIGHUP, no restart where it is in vain."""
    settings = dict(_unit(FOLDER / "slurmsched.service")["Service"])
    assert (settings["Type"], settings["ExecReload"]) == ("notify", "/bin/kill -HUP $MAINPID")
    assert settings["WatchdogSec"] == "15min"
    assert {"2", "5", "6"} <= set(settings["RestartPreventExitStatus"].split())
    assert "MemoryDenyWriteExecute" not in settings


def test_tick_unit__takes_a_pause_as_success():
    """The stop file is no failure of the unit."""
    settings = dict(_unit(FOLDER / "slurmsched-tick.service")["Service"])
    assert (settings["Type"], settings["SuccessExitStatus"]) == ("oneshot", "5 75")


def test_readme__names_every_file():
    """No file without a line that says where it goes."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    files = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()} - {"README.md"}
    assert {name for name in files if f"`{name}`" not in text} == set()


def test_units__that_of_a_single_cycle_is_as_confined_as_the_daemons() -> None:
    """The same lines, from the comment on what is left out."""
    folder = Path(__file__).parents[2] / "site-configs"
    daemon, tick = ((folder / f"{name}.service").read_text() for name in ("slurmsched", "slurmsched-tick"))
    begin = "# MemoryDenyWriteExecute"
    assert tick[tick.index(begin) :].strip() == daemon[daemon.index(begin) : daemon.index("[Install]")].strip()
