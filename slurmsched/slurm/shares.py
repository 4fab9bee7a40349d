"""How good Slurm's own choice of GPUs is on the nodes of a site: `topology check`, for those that are in use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slurmsched.config import Config
from slurmsched.errors import SlurmschedError
from slurmsched.model.snapshot import Snapshot
from slurmsched.model.topology import GpuTopology
from slurmsched.placements.set_ranks import set_ranks
from slurmsched.slurm.finding import Finding
from slurmsched.slurm.picks import known_version, read_shapes
from slurmsched.slurm.reader import open_commands
from slurmsched.slurm.wiring import read_gres
from slurmsched.topology.picker import Version
from slurmsched.topology.reading import NodeClass
from slurmsched.topology.slurm_check import CHECKED, Checked, check, states_of
from slurmsched.topology.slurm_site import Shape, slurm_node


def read_checks(config: Config, snapshot: Snapshot) -> Mapping[str, tuple[Checked, ...]]:
    """Class of node -> how its picks are, by form of request; classes of which that cannot be told are left out."""
    version, why = known_version(snapshot.site)
    found: dict[str, tuple[Checked, ...]] = {}
    rows = {name: row for row, name in enumerate(snapshot.nodes.name)}
    try:
        classes = () if why else read_gres(config.topology, snapshot.site).classes
        for one in classes:
            names = [name for name in one.nodes or rows if name in rows]
            number = int(snapshot.topology.node_class[rows[names[0]]]) if names else -1
            if number < 0 or (wiring := snapshot.topology.classes[number]).name in found:
                continue
            shape = read_shapes(open_commands(config.slurm), names[:1])[names[0]]
            found.update(_checked(wiring, replace(one, nodes=tuple(names)), shape, version))
    except SlurmschedError:
        pass  # what could be told is told
    return found


def _checked(wiring: GpuTopology, one: NodeClass, shape: Shape, version: Version) -> dict[str, tuple[Checked, ...]]:
    """The class's name and checks; nothing where they cannot be made."""
    try:
        node, ranks = slurm_node(one, shape), set_ranks(wiring)
    except SlurmschedError:
        return {}
    return {wiring.name: tuple(check(node, ranks, form, version, states_of(node, ranks, form, 1)) for form in CHECKED)}


def pick_findings(checks: Mapping[str, tuple[Checked, ...]]) -> tuple[Finding, ...]:
    """One line for each class whose picks are not the best."""
    why = "Slurm picks GPUs by its own rule; linked ones that are free may not be the ones it takes."
    return tuple(
        Finding("GPU picks", "warn", f"{name}: " + ", ".join(map(_told, forms)), why,
                "slurmsched topology compile > gres.conf.new")
        for name, forms in checks.items() if any(one.best_states < one.states for one in forms)
    )  # fmt: skip


def _told(one: Checked) -> str:
    states = f"{one.best_share:.0%} of states{' that were drawn' if one.drawn else ''}"
    return f"--{one.form} gets the best set in {states} and loses {one.lost_share:.0%} of the bandwidth"
