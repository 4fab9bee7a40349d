"""The configuration: one frozen tree of sections. config_file.py reads it from a file and from variables.

Every field carries its unit and meaning; `slurmsched config defaults` prints them from here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from slurmsched.passwords import holds_password
from slurmsched.paths import absolute_path, check_distinct_files, ledger_url
from slurmsched.tier_spec import checked_gpus, checked_names, checked_tiers

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
AbsoluteFile = Annotated[Path, AfterValidator(absolute_path)]  # a file that slurmsched makes, or looks for
LAST_PORT = 65_535


def _absolute_or_none(path: str) -> str:
    return str(absolute_path(Path(path))) if path else ""


def _port(listen: str) -> str:
    if int(listen.rpartition(":")[2] or 0) > LAST_PORT:
        raise ValueError(f"the port must be at most {LAST_PORT}")
    return listen


Address = Annotated[str, Field(pattern=r"^$|^(\[[0-9A-Fa-f:.]+\]|[^:\s\[\]]+):\d{1,5}$"), AfterValidator(_port)]


class ConfigSection(BaseModel):
    """Base of all sections: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PluginConfig(ConfigSection):
    """A policy, placement or estimator by name; every other key is one of its parameters."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str = Field(description="name of the plug-in; `slurmsched policy list` lists them")

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class PolicyConfig(PluginConfig):
    """The policy; parameters alone are those of the default one."""

    name: str = Field("response-ratio", description="name of the policy; `slurmsched policy list` lists them")
    tiers: Annotated[tuple[str, ...], AfterValidator(checked_tiers)] = Field(
        (), description="keys that go before the policy, the first one most: partition, qos, fair_share:N (bands), "
        "account, priority:W (bands of W points)"
    )  # fmt: skip


class PlacementConfig(ConfigSection):
    """Which nodes and GPUs pending jobs get; off unless `pin` or `types` is set."""

    name: str = Field("linked", description="name of the placement; `slurmsched policy list` lists them")
    parameters: dict[str, Any] = Field(
        {}, description="parameters of the placement; `slurmsched policy show NAME` lists them"
    )
    pin: Literal["off", "hints", "multi-gpu"] = Field(
        "off",
        description="jobs whose nodes slurmsched chooses; off: none, hints: jobs with a topo hint, multi-gpu: "
        "all jobs of two or more GPUs",
    )
    types: bool = Field(
        False,
        description="pin a job of one node to the GPU type that the policy chose, if its request names no type "
        "and such GPUs are free",
    )
    wait_s: float = Field(
        0,
        ge=0,
        description="a job submitted with a begin time at most this far ahead is waiting only for its "
        "placement; it is released once it is placed [s]",
    )
    start_timeout_s: Positive = Field(
        120, description="a pinned job that has not started after this time is given back to Slurm [s]"
    )
    candidates: int = Field(100, ge=1, description="most waiting jobs considered in a cycle, most urgent first")
    retype: bool = Field(
        False,
        description="on nodes whose GPUs have several Types, rewrite the request of a placed job to name the "
        "Types of the best GPU set",
    )

    @property
    def places(self) -> bool:
        """Whether slurmsched chooses the nodes of any job."""
        return self.pin != "off" or self.types


class ScopeConfig(ConfigSection):
    """Which jobs slurmsched manages. A job must match every list that is not empty."""

    partitions: tuple[str, ...] = Field((), description='partitions whose jobs are managed; empty = none, ["*"] = all')
    accounts: tuple[str, ...] = Field((), description="accounts whose jobs are managed; empty = all")
    qos: tuple[str, ...] = Field((), description="QOS whose jobs are managed; empty = all")
    gpu_jobs_only: bool = Field(True, description="manage only jobs that request GPUs")


class LeverConfig(ConfigSection):
    """How the order is written to Slurm."""

    kind: Literal["nice", "site_factor"] = Field("nice", description="the job field that is written")
    gap: Count = Field(
        0,
        description="distance between neighbours in the order [priority points]; 0 = derived from the site's "
        "priority weights",
    )
    floor: int = Field(1000, ge=2, description="lowest priority that slurmsched gives a job")
    ceiling: int = Field(2_000_000_000, le=2_147_000_000, description="highest priority that slurmsched gives a job")
    backoff_s: Positive = Field(
        1800, description="a job whose value somebody else changed is not written again for this time [s]"
    )
    size: bool = Field(
        False,
        description="also write the number of GPUs that the policy chose for pending jobs with min_gpus and "
        "max_gpus hints",
    )
    moldable: bool = Field(
        False,
        description="with size: let pending jobs with the hint moldable=yes start with fewer GPUs where their own "
        "number is not free and they end no later by it",
    )
    shrink: bool = Field(
        False,
        description="take nodes from running jobs of several nodes with the hint shrink=yes, where the policy gives "
        "them fewer GPUs; they go on with the others",
    )
    cpus: bool = Field(
        False,
        description="also write other CPUs for pending jobs, from min_cpus to max_cpus: fewer where they only lack "
        "CPUs beside free GPUs, more where CPUs are free that no free GPU needs",
    )
    memory: bool = Field(
        False,
        description="also write less memory, at least min_mem, for pending jobs that only lack memory beside free GPUs",
    )
    share: bool = Field(
        False,
        description="also let pending jobs of one GPU with the hint share=yes ask for shards or MPS instead, for the "
        "part by gpu_part or measured use, where no whole GPU is free; needs gres/shard or gres/mps in "
        "AccountingStorageTRES",
    )
    share_always: bool = Field(
        False, description="with share: let such jobs ask for their part also where a whole GPU is free"
    )
    share_margin: float = Field(
        0.25,
        ge=0,
        le=10,
        description="what the part of a job without the hint gpu_part has beyond its measured use, as a share of it",
    )
    share_measured_s: Positive = Field(
        3600, description="least time of GPUs in measured_use.profiles by which such a part is chosen [s]"
    )
    gpu_memory_gb: dict[str, Positive] = Field(
        {},
        description="memory of a GPU by type [GB], such as { l40 = 48, gpu = 24 }, gpu = without a type; "
        "others are known by the name of their type",
    )
    start: bool = Field(
        False, description="also write the earliest start that the policy chose for pending jobs (StartTime)"
    )
    start_most_s: Positive = Field(
        3600,
        description="an earliest start is written at most this far ahead and then renewed; if slurmsched stops, "
        "the job may start after this time [s]",
    )

    admin_comment: bool = Field(
        True,
        description="write what slurmsched did to a job (requeue, reservation, node list, GPUs) to its AdminComment; "
        "never over another text",
    )

    @model_validator(mode="after")
    def _ordered(self) -> LeverConfig:
        if self.floor >= self.ceiling:
            raise ValueError(f"floor must be below ceiling, which is {self.ceiling}")
        return self


class PaceConfig(ConfigSection):
    """Limits on the load on slurmctld."""

    writes_per_cycle: int = Field(
        500, ge=1, description="most jobs written in a cycle; the others wait for the next cycle"
    )
    writes_per_s: float = Field(100, ge=0.01, allow_inf_nan=False, description="most jobs written per second")
    busy_threads: int = Field(
        50, ge=1, description="nothing is written while slurmctld has more server threads than this (sdiag)"
    )
    busy_dbd_queue: int = Field(
        5000, ge=1, description="nothing is written while more messages than this wait for slurmdbd (sdiag)"
    )


class TopologyClassConfig(ConfigSection):
    """One class of nodes."""

    name: str = Field(description="name of the class")
    nodes: str = Field(description='its nodes, a hostlist such as "dgx[01-20]"')
    file: Path = Field(
        description="output of `nvidia-smi topo -m` or `rocm-smi --showtopo`, or slurmd's log, of one of these nodes"
    )
    gpu_type: str = Field(
        "", description='GPU model, for the bandwidth of its links, such as "a100"; empty = as in the file or in Slurm'
    )


class TopologyConfig(ConfigSection):
    """How GPUs and nodes are connected."""

    gres_conf: str = Field("", description="path of gres.conf; empty = beside slurm.conf, if it can be read here")
    fabric: str = Field(
        "", description="path of topology.conf, topology.yaml or an ibnetdiscover file; empty = as Slurm reports"
    )
    classes: tuple[TopologyClassConfig, ...] = Field(
        (), description="classes of nodes, each with name, nodes and file; they override gres.conf"
    )


class CycleConfig(ConfigSection):
    """When the daemon runs a cycle."""

    interval_s: float = Field(
        60, gt=0, le=86_400, allow_inf_nan=False, description="time from one cycle of the daemon to the next [s]"
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="seed of policies that use random numbers")
    stop_file: AbsoluteFile = Field(
        Path("/etc/slurmsched/stop"), description="while this file exists, nothing is written to Slurm"
    )


class DaemonConfig(ConfigSection):
    """What starts a cycle before the interval is over."""

    socket: AbsoluteFile | None = Field(
        None,
        description="unix socket on which plugin/event_hook reports that a job ended; none = no cycle before "
        "the interval is over",
        examples=["/run/slurmsched/events"],
    )
    users: tuple[str, ...] = Field(
        ("slurm",),
        description="users who may wake the daemon, besides root and the daemon's own user; normally SlurmUser",
    )
    wake_s: float = Field(
        1, ge=1, description="shortest time from the start of a cycle to a cycle that was asked for [s]"
    )


class PreemptionConfig(ConfigSection):
    """Preemption: taking GPUs from running jobs; off unless `enabled`."""

    enabled: bool = Field(False, description="let more urgent jobs take GPUs from running jobs")
    partitions: tuple[str, ...] = Field(
        (), description="jobs of these partitions may be preempted without a preempt hint"
    )
    accounts: tuple[str, ...] = Field((), description="jobs of these accounts may be preempted without a preempt hint")
    qos: tuple[str, ...] = Field((), description="jobs of these QOS may be preempted without a preempt hint")
    without_checkpoint: bool = Field(False, description="also preempt jobs without a ckpt hint")
    quantum_s: Positive = Field(1800, description="a job runs at least this long before it may be preempted [s]")
    most_per_job: int = Field(3, ge=0, description="most preemptions of one job")
    restart_cost_s: float = Field(
        120,
        ge=0,
        description="time that a restart costs a job, if it has no restart hint and too few restarts were measured [s]",
    )
    least_factor: float = Field(
        0.5,
        ge=0,
        le=1,
        description="a job is preempted only if it has worked at least this share of the time since its submission",
    )
    grace_s: Positive = Field(
        600, description="longest time that a job gets for its checkpoint, whatever its hint asks [s]"
    )
    candidates: int = Field(100, ge=1, description="most waiting jobs considered in a cycle, most urgent first")
    most_in_progress: int = Field(4, ge=1, description="most preemptions in progress at a time")
    most_per_user: int = Field(2, ge=1, description="most preemptions in progress for one user")


class GangsConfig(ConfigSection):
    """Reservations for gangs, jobs of many GPUs; off unless `reserve`."""

    reserve: bool = Field(False, description="reserve nodes for the most urgent gang that cannot start")
    least_gpus: int = Field(8, ge=1, description="a job of at least this many GPUs is a gang")
    promises_per_partition: int = Field(1, ge=1, description="most gang reservations open in a partition at a time")
    ends: Literal["limit", "estimate"] = Field(
        "limit", description="expected end of running jobs; limit: by their time limits, estimate: by the estimator"
    )
    error: float = Field(
        0.5, ge=0, description="an estimated run time is lengthened by this share, up to the time limit"
    )
    least_gain_s: Positive = Field(
        60, description="a reservation is moved only if the start changes by at least this time [s]"
    )
    farthest_s: Positive = Field(604_800, description="no reservation for a start farther ahead than this [s]")


class StarvationConfig(ConfigSection):
    """Jobs that have waited too long go first, whatever the policy."""

    age_cap_s: float = Field(
        0, ge=0, description="a job that could start and has waited longer than this goes first [s]; 0 = off"
    )


GpuCaps = Annotated[dict[str, Count], AfterValidator(checked_gpus)]


class SoftCaps(ConfigSection):
    """GPUs beyond which further jobs go last, whatever the policy says. No job is held."""

    user: GpuCaps = Field(
        {}, description='most GPUs of each user, such as { gpu = 16, "gpu:h100" = 4 }; empty = no cap'
    )
    account: GpuCaps = Field({}, description="most GPUs of each account, likewise")
    qos: GpuCaps = Field({}, description="most GPUs of each QOS, likewise")
    named: Annotated[dict[str, dict[str, Count]], AfterValidator(checked_names)] = Field(
        {}, description='caps of one of them, in place of the above, such as { "account:physics" = { gpu = 128 } }'
    )

    @property
    def any(self) -> bool:
        return bool(self.user or self.account or self.qos or self.named)


class OperationsConfig(ConfigSection):
    """Limits of preemptions and reservations: how many, and how long each may take."""

    per_cycle: int = Field(4, ge=1, description="most preemptions and reservations begun in a cycle")
    per_hour: int = Field(60, ge=1, description="most preemptions and reservations begun in an hour")
    per_user_per_hour: int = Field(
        20, ge=1, description="most preemptions and reservations begun in an hour for one user"
    )
    lease_s: float = Field(1800, ge=0, description="two jobs do not preempt each other in turn within this time [s]")

    start_timeout_s: Positive = Field(
        600,
        description="a job that has not started this long after its nodes should have been free loses its "
        "reservation [s]",
    )
    slack_s: Positive = Field(
        600, description="a reservation lasts this much longer than the time limit of its job [s]"
    )
    look_s: Positive = Field(5, description="while a preemption is in progress, the daemon runs a cycle this often [s]")


class SlurmConfig(ConfigSection):
    """How to talk to Slurm."""

    adapter: Literal["auto", "pyslurm", "cli"] = Field(
        "auto", description="how Slurm is read; auto: pyslurm if it fits this Slurm, else cli"
    )
    bin_dir: str = Field("", description="folder of squeue, scontrol and the other commands; empty = PATH")
    conf: str = Field("", description="path of slurm.conf; empty = SLURM_CONF or Slurm's own default")
    timeout_s: float = Field(
        60, gt=0, le=3600, allow_inf_nan=False, description="longest wait for one answer of Slurm [s]"
    )


class LedgerConfig(ConfigSection):
    """Where slurmsched keeps its records."""

    url: Annotated[str, AfterValidator(ledger_url)] = Field(
        "sqlite:////var/lib/slurmsched/ledger.db", description="SQLAlchemy URL of the database"
    )
    password_file: AbsoluteFile | None = Field(
        None,
        description="file with the database's password on one line, which other users must not be able to read; only "
        'with a url of mysql:// or postgresql://, for example "/etc/slurmsched/password"',
    )
    journal: AbsoluteFile = Field(
        Path("/var/lib/slurmsched/journal.jsonl"),
        description="file with each write; it is synced to disk before the write is sent",
    )
    lock: AbsoluteFile = Field(
        Path("/var/lib/slurmsched/lock"), description="lock file; only one slurmsched works on a cluster"
    )
    keep_days: int = Field(180, ge=1, description="facts older than this are deleted [days]")
    sacct: bool = Field(True, description="ask sacct for earlier runs of jobs that are seen for the first time")

    @model_validator(mode="after")
    def _one_password(self) -> LedgerConfig:
        if self.password_file and self.url.startswith("sqlite"):
            raise ValueError("password_file is set but url names a SQLite file, which has no password; "
                             "set url to mysql://USER@HOST/DATABASE or postgresql://USER@HOST/DATABASE")  # fmt: skip
        of_key = r"(?<=[?&])(ssl_key_password|sslpassword)=[^&@]*(?=&|$)"  # opens the client's key, not the database
        if self.password_file and holds_password(re.sub(of_key, "", self.url)):
            raise ValueError("password_file is set and url holds a password too; take it out of url")
        return self

    @property
    def address(self) -> str:
        """What db/database.py opens: the URL, with the password's file as an option."""
        if not self.password_file:
            return self.url
        return f"{self.url}{'&' if '?' in self.url else '?'}password_file={quote(str(self.password_file))}"


class PastConfig(ConfigSection):
    """Jobs that ended, read from accounting; only for policies and estimators that learn from them."""

    days: int = Field(
        30, ge=0, le=3650, description="how far back accounting is read [days]; 0 = accounting is not read"
    )
    rows: int = Field(100_000, ge=1, description="most runs kept, the latest ones")
    interval_s: Positive = Field(3600, description="time between two reads of accounting [s]")
    per_cycle_s: Positive = Field(5, description="longest time that a cycle reads earlier days of accounting [s]")


class LeaderConfig(ConfigSection):
    """Several hosts with slurmsched for one Slurm, of which one writes. Needs MariaDB or PostgreSQL."""

    enabled: bool = Field(False, description="write only while holding the lease in the ledger's database")
    lease_s: float = Field(
        30, ge=2, le=3600, description="a leader that has not renewed its lease for this time is replaced [s]"
    )
    name: str = Field("", max_length=200, description="name of this host in the lease; empty = its host name")


class MetricsConfig(ConfigSection):
    """Metrics for Prometheus (docs/metrics.md). Needs the extra `metrics`."""

    listen: Address = Field(
        "", description='address on which the daemon serves /metrics, such as "127.0.0.1:9810"; empty = none'
    )
    textfile: Annotated[str, AfterValidator(_absolute_or_none)] = Field(
        "", description="file for node_exporter's textfile collector, named *.prom; empty = none"
    )

    @model_validator(mode="after")
    def _named(self) -> MetricsConfig:
        if self.textfile and not self.textfile.endswith(".prom"):
            raise ValueError("textfile must end in .prom; node_exporter reads no other files")
        return self

    @property
    def wanted(self) -> bool:
        return bool(self.listen or self.textfile)


class MeasuredUseConfig(ConfigSection):
    """Where the use of GPUs is measured (docs/measured-use.md)."""

    source: Literal["none", "slurm", "prometheus", "file"] = Field(
        "none", description="slurm: gres/gpuutil of accounting; prometheus: an exporter of GPUs; file: a CSV file"
    )
    prometheus_url: str = Field("", description='address of Prometheus, such as "http://prometheus:9090"')
    exporter: Literal["dcgm", "jobstats"] = Field(
        "dcgm", description="whose series Prometheus has: dcgm-exporter with job labels, or the exporter of jobstats"
    )
    file: str = Field("", description="a CSV file with the columns job_id, gpu, use_pct, memory_mib")
    window_s: float = Field(
        3600, ge=60, le=30 * 86_400, description="Prometheus: length of time over which use is averaged [s]"
    )
    step_s: float = Field(60, ge=1, le=3600, description="Prometheus: time between two values that are averaged [s]")
    profiles: Annotated[str, AfterValidator(_absolute_or_none)] = Field(
        "",
        description="CSV file in which the daemon records use, memory and throughput of models; empty = none",
    )
    every_s: float = Field(
        0,
        ge=0,
        le=86_400,
        description="cycles read the use this often, for metrics, pages and idle_gpus [s]; 0 = commands alone read it",
    )

    @model_validator(mode="after")
    def _complete(self) -> MeasuredUseConfig:
        if self.source == "prometheus" and not self.prometheus_url.startswith(("http://", "https://")):
            raise ValueError("source = prometheus needs prometheus_url, such as http://prometheus:9090")
        if self.source == "file" and not self.file:
            raise ValueError("source = file needs file, the path of a CSV file")
        return self


class IdleGpusConfig(ConfigSection):
    """Measures against running jobs that do not use their GPUs; needs measured_use.every_s."""

    tell: bool = Field(False, description="write to the job's AdminComment how many of its GPUs are idle")
    mail_command: tuple[str, ...] = Field(
        (),
        description="command that gets this text on its stdin, once a job; {user} and {job} in its words are replaced",
    )
    last: bool = Field(False, description="jobs of a user who has such a job go behind all others, until it ends")
    requeue: bool = Field(
        False,
        description="batch jobs with a ckpt hint that are idle go behind all others, so that preemption takes their "
        "GPUs for waiting jobs first; needs preemption.enabled",
    )
    below_pct: float = Field(
        5, ge=0, le=100, description="a job is idle if its GPUs compute less than this share of the time [%]"
    )
    after_s: Positive = Field(7200, description="a job that has run for less than this time is not checked [s]")
    except_users: tuple[str, ...] = Field((), description="users whose jobs are not checked")
    except_accounts: tuple[str, ...] = Field((), description="accounts whose jobs are not checked")
    except_partitions: tuple[str, ...] = Field((), description="partitions whose jobs are not checked")
    except_qos: tuple[str, ...] = Field((), description="QOS whose jobs are not checked")
    interactive: bool = Field(False, description="also check jobs of salloc and srun")

    @property
    def active(self) -> bool:
        """Whether anything is done."""
        return self.tell or self.last or self.requeue


class JobReportsConfig(ConfigSection):
    """Reports of running jobs, and requests to them (docs/talking-jobs.md)."""

    folder: Annotated[str, AfterValidator(_absolute_or_none)] = Field(
        "",
        description="folder that all nodes share, with `reports` (mode 1777) and `wants` (slurmsched's own) in it; "
        "empty: jobs report by their comments",
    )
    sizes: bool = Field(
        False,
        description="ask running jobs with min_gpus and max_gpus hints to change to the number of GPUs that the policy "
        "gives them; the jobs make the change. Needs lever.size",
    )
    least_run_s: Positive = Field(
        600, description="a job that has run for less than this time is not asked for another size [s]"
    )


class WebConfig(ConfigSection):
    """Read-only web pages of the daemon (docs/web.md). Whoever can reach them sees the queue."""

    listen: Address = Field(
        "", description='address on which the daemon serves its pages, such as "127.0.0.1:9811"; empty = none'
    )
    anywhere: bool = Field(
        False, description="allow an address that other hosts can reach; otherwise only loopback is allowed"
    )
    hosts: tuple[str, ...] = Field(
        (), description="host names that browsers may use, such as a proxy's; on loopback, besides localhost"
    )
    asked_jobs: int = Field(
        20,
        ge=0,
        le=1000,
        description="most jobs per cycle for which Slurm is asked about limits and licences; 0 = none",
    )

    @model_validator(mode="after")
    def _near(self) -> WebConfig:
        if self.listen and not self.anywhere and not is_loopback(self.listen):
            raise ValueError("listen is not a loopback address; to let other hosts in, set anywhere = true")
        if self.listen and not self.hosts and not is_loopback(self.listen):
            raise ValueError("hosts is empty; list the host names by which browsers reach the daemon (docs/web.md)")
        return self


def is_loopback(listen: str) -> bool:
    """Whether an address HOST:PORT is reached from this host only."""
    host = listen.rpartition(":")[0].strip("[]")
    return host in ("localhost", "::1") or bool(re.fullmatch(r"127(\.\d{1,3}){3}", host))


class LogConfig(ConfigSection):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="lowest level that is logged")
    format: Literal["auto", "json", "text"] = Field("auto", description="auto: text on a terminal, else JSON lines")


class Config(ConfigSection):
    """The whole tree."""

    mode: Literal["dry-run", "apply"] = Field(
        "dry-run", description="apply: write to Slurm; dry-run: only show what would be written"
    )
    policy: PolicyConfig = Field(PolicyConfig(), description="the policy, which orders the jobs, and its parameters")
    estimator: PluginConfig | None = Field(
        None,
        description="how long jobs run; default: the job's hint, else its time limit",
        examples=[{"name": "time-limit"}],
    )
    scope: ScopeConfig = ScopeConfig()
    placement: PlacementConfig = PlacementConfig()
    lever: LeverConfig = LeverConfig()
    pace: PaceConfig = PaceConfig()
    cycle: CycleConfig = CycleConfig()
    daemon: DaemonConfig = DaemonConfig()
    preemption: PreemptionConfig = PreemptionConfig()
    gangs: GangsConfig = GangsConfig()
    starvation: StarvationConfig = StarvationConfig()
    soft_caps: SoftCaps = SoftCaps()
    operations: OperationsConfig = OperationsConfig()
    slurm: SlurmConfig = SlurmConfig()
    topology: TopologyConfig = TopologyConfig()
    ledger: LedgerConfig = LedgerConfig()
    past: PastConfig = PastConfig()
    leader: LeaderConfig = LeaderConfig()
    metrics: MetricsConfig = MetricsConfig()
    web: WebConfig = WebConfig()
    measured_use: MeasuredUseConfig = MeasuredUseConfig()
    idle_gpus: IdleGpusConfig = IdleGpusConfig()
    job_reports: JobReportsConfig = JobReportsConfig()
    log: LogConfig = LogConfig()

    @model_validator(mode="after")
    def _shareable(self) -> Config:
        if self.leader.enabled and self.ledger.url.startswith("sqlite"):
            raise ValueError("leader.enabled needs a ledger.url that all hosts share: mysql:// or postgresql://")
        self._check_idle()
        if self.job_reports.sizes and not (self.job_reports.folder and self.lever.size):
            raise ValueError("job_reports.sizes needs job_reports.folder, where jobs read the size, and lever.size")
        check_distinct_files(self)
        return self

    def _check_idle(self) -> None:
        """Raises ValueError where the use of GPUs is not measured as idle_gpus needs it."""
        idle, use = self.idle_gpus, self.measured_use
        if idle.active and (use.source == "none" or not use.every_s):
            raise ValueError("idle_gpus needs measured_use.source and measured_use.every_s")
        if idle.active and use.source == "prometheus" and use.window_s < idle.after_s:
            raise ValueError("measured_use.window_s must be at least idle_gpus.after_s: what is idle was idle so long")
        if idle.requeue and not self.preemption.enabled:
            raise ValueError("idle_gpus.requeue needs preemption.enabled, which takes the GPUs")
        if idle.mail_command and not (idle.tell and self.lever.admin_comment):
            wanted = "idle_gpus.tell and lever.admin_comment, which show whose job was found idle before"
            raise ValueError(f"idle_gpus.mail_command needs {wanted}")
