"""Which nodes take jobs: by every state and flag that Slurm prints, and what the commands say of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from slurmsched.model import NodeState
from slurmsched.model.states import NODE_TAKES, Availability
from tests.cases.conftest import Run
from tests.cases.fake_slurm import FakeSlurm, node

NOW, BOOT, NONE = Availability.NOW, Availability.BOOT, Availability.NONE
STATES = {
    "IDLE": NOW, "IDLE+BLOCKED": NONE, "IDLE+COMPLETING": NOW, "IDLE+PLANNED": NOW, "IDLE+RESERVED": NOW,
    "IDLE+CLOUD+POWERED_DOWN": BOOT, "IDLE+CLOUD+POWERING_UP": BOOT, "IDLE+CLOUD+POWERING_DOWN": NONE,
    "IDLE+POWER_DOWN": NONE, "IDLE+REBOOT_REQUESTED": NOW, "IDLE+REBOOT_ISSUED": NONE, "DOWN+REBOOT_ISSUED": NONE,
    "IDLE+DYNAMIC_NORM": NOW, "FUTURE": NONE, "FUTURE+DYNAMIC_FUTURE": NONE, "IDLE+NOT_RESPONDING": NONE,
    "IDLE+INVALID_REG": NONE, "IDLE+FAIL": NONE, "IDLE+MAINTENANCE": NONE, "IDLE+EXTERNAL": NOW,
    "UNKNOWN+NOT_RESPONDING": NONE, "IDLE+?": NOW, "IDLE+NET": NOW, "ERROR": NONE, "": NONE, "NEWBASE": NONE,
    "IDLE+DRAIN+CLOUD+POWERED_DOWN": NONE, "DOWN+CLOUD+POWERED_DOWN+NOT_RESPONDING": NONE,
    "IDLE+CLOUD+NOT_RESPONDING+POWERED_DOWN": BOOT, "MIXED+CLOUD+NOT_RESPONDING+POWERING_UP": BOOT,
    "IDLE+CLOUD+POWERED_DOWN+POWER_UP": BOOT, "IDLE+CLOUD+POWERED_DOWN+POWER_DOWN": NONE, "DOWN+DYNAMIC_NORM": NONE,
    "IDLE+CLOUD+POWERED_DOWN+POWERING_DOWN": NONE, "IDLE+POWERING_UP+REBOOT_ISSUED": NONE, "IDLE+POWER_DRAIN": NONE,
    "UNKNOWN+CLOUD+POWERED_DOWN": NONE, "FUTURE+POWERED_DOWN": NONE, "IDLE+PLANNED+CLOUD+POWERED_DOWN": BOOT,
    # 20.11
    "IDLE+CLOUD+POWER": BOOT, "IDLE~+CLOUD+POWER": BOOT, "IDLE%+CLOUD+POWERING_DOWN": NONE, "IDLE#+CLOUD": BOOT,
    "IDLE*": NONE, "IDLE*+CLOUD+POWER": BOOT, "IDLE&": NOW,
    # sinfo
    "idle~": BOOT, "idle#": BOOT, "idle%": NONE, "idle!": NONE, "idle$": NONE, "idle@": NOW, "idle^": NONE,
    "mix-": NOW, "plnd": NOW, "resv": NOW, "boot^": NONE, "drain~": NONE, "inval": NONE, "npc": NOW, "pow_dn": NONE,
    "powered_dn": NONE, "maint": NONE, "futr": NONE, "unk*": NONE, "comp": NOW, "drng": NONE, "block": NONE,
}  # fmt: skip
UNKNOWN = {"IDLE+?", "IDLE+NET", "NEWBASE", "IDLE&"}


def test_node_takes__has_every_flag():
    """The table answers for each state and flag there is."""
    assert set(NODE_TAKES) == set(NodeState)


def test_reading_page__has_the_table():
    """docs/reading.md names each state and flag in the row of its answer."""
    page = (Path(__file__).parents[2] / "docs/reading.md").read_text()
    rows = dict(line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| (now|after|not)", line))
    words = {Availability.NOW: "now", Availability.BOOT: "after a boot", Availability.NONE: "not"}
    assert [flag for flag in NodeState if f"`{flag.name}`" not in rows[words[NODE_TAKES[flag]]]] == []


@pytest.mark.parametrize("flag", NodeState)
def test_node_takes__holds_beside_idle(on: Run, flag):
    """A flag beside IDLE gives what the table says of the flag, in `gpus` too."""
    slurm = FakeSlurm(node("n1", State=f"IDLE+{flag.name}"))
    (found,) = json.loads(on(slurm, "gpus", "--json").out)["types"]
    right = {NOW: (8, 0), BOOT: (0, 8), NONE: (0, 0)}[NODE_TAKES[flag]]
    assert (found["free"], found["boot"]) == right


def test_gpus__tells_open_after_a_boot_and_closed(on: Run):
    """Each state counts once: as free now, free after a boot, or closed. Unknown words are named."""
    names = {f"s{at:02}": text for at, text in enumerate(STATES)}
    slurm = FakeSlurm("".join(node(name, State=text) for name, text in names.items()))
    (found,) = json.loads(on(slurm, "gpus", "--json").out)["types"]
    of = [sum(8 for takes in STATES.values() if takes is answer) for answer in Availability]
    assert [found["free"], found["boot"], found["drained"] + found["down"]] == of
    assert found["gpus"] == 8 * len(STATES)
    warned = {
        names[line.split()[2].rstrip(":")] for line in on(slurm, "gpus").out.splitlines() if "unknown state" in line
    }
    assert warned == UNKNOWN
