"""What `advise` judges: jobs, measured use, past run times, and how good Slurm's own choice of GPUs is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slurmsched.config import Config
from slurmsched.errors import SlurmError, SlurmschedError
from slurmsched.model.gpu_topology import GpuTopology
from slurmsched.model.gpu_use import JobGpuUse
from slurmsched.model.snapshot import Snapshot
from slurmsched.observe.gpu_use_sources import read_gpu_use
from slurmsched.observe.survey.advice import AdviceInput, gpus_by_job
from slurmsched.resources.gpu_sets import set_ranks
from slurmsched.slurm.accounting import read_typical_run_times
from slurmsched.slurm.cons_tres import known_version, read_shapes
from slurmsched.slurm.doctor import CheckResult
from slurmsched.slurm.doctor.settings_checks import check_settings
from slurmsched.slurm.doctor.site_checks import gres_conf_text
from slurmsched.slurm.gpu_accounting import running_gpu_jobs
from slurmsched.slurm.job_records import read_gpu_options
from slurmsched.slurm.reader import open_commands, read_cluster_once
from slurmsched.slurm.topology_sources import read_gres
from slurmsched.topology.gres_nodes import NodeShape, slurm_node
from slurmsched.topology.selection_quality import CHECKED, SelectionQuality, rate_selection, states_of
from slurmsched.topology.slurm_selection import SlurmVersion
from slurmsched.topology.topology_files import NodeClass

OF_SITE = ("SelectTypeParameters", "AccountingStorageTRES", "GPU files")  # checks of doctor about GPUs


def read_advice_input(config: Config, *, whole: bool) -> tuple[AdviceInput, Sequence[CheckResult], Sequence[str]]:
    """The case, what of the site costs GPU time (only of a whole look), and warnings.

    Slurm's choice of GPUs is judged only where something depends on it: that may take seconds.
    """
    snapshot = read_cluster_once(config)
    asked = read_gpu_options(open_commands(config.slurm), snapshot.site)
    usual, warnings = _usual(config, snapshot)
    use, unmeasured = read_running_gpu_use(config, snapshot)
    case = AdviceInput(snapshot, asked, usual, preempted=_preempted(config, snapshot), use=use)
    checks = rate_gpu_picks(config, snapshot) if whole or list(gpus_by_job(case)) else {}
    shares = {name: (forms[0].best_share, forms[1].best_share) for name, forms in checks.items()}
    findings = (*_findings(snapshot), *check_gpu_picks(checks)) if whole else ()
    return replace(case, shares=shares), findings, (*snapshot.warnings, *warnings, *unmeasured)


def _usual(config: Config, snapshot: Snapshot) -> tuple[Any, tuple[str, ...]]:
    """How long jobs of those who wait ran, and a warning where that is not known."""
    jobs = snapshot.jobs
    warnings: list[str] = []
    try:
        usual = read_typical_run_times(open_commands(config.slurm), set(jobs.take(jobs.pending).user), warnings)
        return usual, tuple(warnings)
    except SlurmError as error:
        return {}, (f"time limits are not judged: {error}",)


def read_running_gpu_use(config: Config, snapshot: Snapshot) -> tuple[Mapping[int, JobGpuUse], tuple[str, ...]]:
    """How running jobs use their GPUs, nothing where that is not measured, and a warning where it cannot be read."""
    if config.measured_use.source == "none":
        return {}, ()
    jobs = running_gpu_jobs(snapshot)
    gpus = {one.job_id: one.gpus for one in jobs}
    try:
        return read_gpu_use(config.measured_use, open_commands(config.slurm), gpus, list(gpus)).by_job, ()
    except SlurmschedError as error:
        return {}, (f"the use of GPUs is not judged: {error}",)


def _preempted(config: Config, snapshot: Snapshot) -> bool:
    """Whether a running job may be stopped: by slurmsched, or by Slurm's own preemption."""
    return config.preemption.enabled or snapshot.site.preempts


def _findings(snapshot: Snapshot) -> tuple[CheckResult, ...]:
    """Those checks of doctor that are about GPUs and not well."""
    found = check_settings(snapshot.site, gres_conf=gres_conf_text(snapshot.site))
    return tuple(one for one in found if one.name in OF_SITE and not one.ok)


def rate_gpu_picks(config: Config, snapshot: Snapshot) -> Mapping[str, tuple[SelectionQuality, ...]]:
    """Class of node -> quality of Slurm's choice, by form of request. Classes that cannot be rated are left out."""
    version, why = known_version(snapshot.site)
    found: dict[str, tuple[SelectionQuality, ...]] = {}
    rows = snapshot.nodes.name.rows()
    try:
        classes = () if why else read_gres(config.topology, snapshot.site).classes
        for one in classes:
            names = [name for name in one.nodes or rows if name in rows]
            number = int(snapshot.topology.node_class[rows[names[0]]]) if names else -1
            if number < 0 or (wiring := snapshot.topology.classes[number]).name in found:
                continue
            shape = read_shapes(open_commands(config.slurm), names[:1])[names[0]]
            found.update(_rated(wiring, replace(one, nodes=tuple(names)), shape, version))
    except SlurmschedError:
        pass  # the classes before it are rated
    return found


def _rated(
    wiring: GpuTopology, one: NodeClass, shape: NodeShape, version: SlurmVersion
) -> dict[str, tuple[SelectionQuality, ...]]:
    """The name of the class and its ratings; empty if they cannot be made."""
    try:
        node, ranks = slurm_node(one, shape), set_ranks(wiring)
    except SlurmschedError:
        return {}
    return {
        wiring.name: tuple(
            rate_selection(node, ranks, form, version, states_of(node, ranks, form, 1)) for form in CHECKED
        )
    }


def check_gpu_picks(checks: Mapping[str, tuple[SelectionQuality, ...]]) -> tuple[CheckResult, ...]:
    """One result for each class whose picks are not always the best."""
    why = "Slurm picks GPUs by its own rule and may pass over free GPUs that are linked better."
    return tuple(
        CheckResult("GPU picks", "warn", f"{name}: " + ", ".join(map(_quality_text, forms)), why,
                "slurmsched topology compile > gres.conf.new")
        for name, forms in checks.items() if any(one.best_states < one.states for one in forms)
    )  # fmt: skip


def _quality_text(one: SelectionQuality) -> str:
    states = f"{one.best_share:.0%} of states{' that were drawn' if one.drawn else ''}"
    return f"--{one.form} gets the best set in {states} and loses {one.lost_share:.0%} of the bandwidth"
