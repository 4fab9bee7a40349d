"""The tables of the ledger, for SQLite, MariaDB and PostgreSQL alike.

Facts (cycles, actions, run_*, completions, outside_changes) are appended and never changed; retention drops old ones.
Memory (services, priority_overrides, carries) is the sum of the facts for the jobs now in the queue: it makes a cold
start as cheap as the queue is, whatever the length of the history.

Times are Unix seconds [s], attained service is [GPU s]. A job is known by job_id and first_submit_s.
"""

from __future__ import annotations

import sqlalchemy as sa

HEAD = "0001"  # revision of the newest migration

Key = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts up only INTEGER keys
LongText = sa.Text().with_variant(sa.Text(4_294_967_295), "mysql", "mariadb")  # LONGTEXT; loads no dialect
REASON_CHARACTERS = 500

metadata = sa.MetaData(
    naming_convention={"ix": "ix_%(table_name)s_%(column_0_name)s", "pk": "pk_%(table_name)s"},
)


def _table(name: str, *columns: sa.Column | sa.Index) -> sa.Table:
    # Charset and engine are in the migrations, which make the tables: named here they would load MariaDB's dialect.
    return sa.Table(name, metadata, *columns)


def _count() -> sa.Column:
    return sa.Column("id", Key, primary_key=True, autoincrement=True)


def _job() -> tuple[sa.Column, sa.Column]:
    return sa.Column("job_id", sa.BigInteger, nullable=False, index=True), _real("first_submit_s")


def _whole(name: str, nullable: bool = False) -> sa.Column:
    return sa.Column(name, sa.BigInteger, nullable=nullable)


def _real(name: str, nullable: bool = False) -> sa.Column:
    return sa.Column(name, sa.Double, nullable=nullable)


def _time(name: str) -> sa.Column:
    """The time by which retention finds a row."""
    return sa.Column(name, sa.Double, nullable=False, index=True)


def _flag(name: str) -> sa.Column:
    return sa.Column(name, sa.Boolean, nullable=False)


def _word(name: str, characters: int = 32) -> sa.Column:
    return sa.Column(name, sa.String(characters), nullable=False)


cycles = _table(
    "cycles",
    _count(),
    _time("now_s"),  # clock of the snapshot
    _real("recorded_s"),  # clock when this row was written, after the last write to Slurm
    _real("duration_s"),
    _word("digest"),
    _word("policy", 100),
    _whole("jobs"),
    _whole("planned"),
    _whole("written"),
    _whole("refused"),
    _whole("deferred"),
    _flag("dry_run"),
    _word("stopped", REASON_CHARACTERS),
)
actions = _table(
    "actions",
    _count(),
    sa.Column("cycle_id", Key, nullable=False, index=True),
    *_job(),
    _word("kind"),
    _whole("old", nullable=True),
    _whole("new", nullable=True),
    _whole("base", nullable=True),
    _word("reason", REASON_CHARACTERS),
    _word("outcome"),  # written, refused, unknown; journal = found in the journal after a crash
    _word("message", REASON_CHARACTERS),
)
run_starts = _table(
    "run_starts",
    _count(),
    *_job(),
    _whole("run"),  # 0 = first run, counts up with Slurm's restarts
    _time("start_s"),
    _real("gpus"),  # a part of a GPU is a fraction
)
run_marks = _table(  # a run was resized, suspended or resumed
    "run_marks",
    _count(),
    *_job(),
    _whole("run"),
    _time("seen_s"),
    _real("executed_s"),  # of this run, up to the mark
    _real("gpu_s"),
    _real("gpus"),  # from the mark on
    _real("suspended_s"),
    _flag("paused"),
)
run_ends = _table(
    "run_ends",
    _count(),
    *_job(),
    _whole("run"),
    _real("start_s"),
    _time("end_s"),
    _real("executed_s"),
    _real("gpu_s"),
    _word("source"),  # how the end is known, see attained_service.SOURCES
)
completions = _table(  # jobs that ended well: what policies learn run times from
    "completions",
    _count(),
    *_job(),
    _time("end_s"),
    _real("executed_s"),
    _real("gpu_s"),
)
outside_changes = _table(  # somebody else changed a nice or site factor
    "outside_changes",
    _count(),
    *_job(),
    _word("field"),
    _whole("expected"),
    _whole("found"),
    _whole("base"),  # from now on
    _time("seen_s"),
    _real("backoff_until_s"),
    _word("cause", REASON_CHARACTERS),
)
placements = _table(  # what a job of several GPUs got at its start, beside the best it could have had
    "placements",
    _count(),
    *_job(),
    _time("start_s"),
    _word("nodes", REASON_CHARACTERS),
    _whole("gpus"),
    _real("got_gb_per_s", nullable=True),
    _real("best_gb_per_s", nullable=True),
    _real("ratio"),
    _flag("pinned"),
    _word("note", REASON_CHARACTERS),
)
services = _table(
    "services",
    sa.Column("job_id", sa.BigInteger, primary_key=True, autoincrement=False),
    _real("first_submit_s"),
    _real("submit_s"),
    _whole("restarts"),
    _real("executed_s"),
    _real("gpu_s"),
    _whole("runs"),
    _real("last_end_s", nullable=True),
    _whole("run"),
    _real("run_start_s", nullable=True),
    _real("run_gpus"),
    _real("mark_executed_s"),
    _real("mark_gpu_s"),
    _real("suspended_s"),
    _flag("paused"),
    _whole("missing"),
    _whole("asks"),
    _real("gone_s", nullable=True),
)
priority_overrides = _table(  # see priority_overrides.PriorityOverride
    "priority_overrides",
    sa.Column("job_id", sa.BigInteger, primary_key=True, autoincrement=False),
    _word("field"),
    _real("submit_s"),
    _whole("restarts"),
    _whole("base"),
    _whole("earlier"),
    _whole("sent"),
    _flag("sure"),
    _flag("abandoned"),
    _real("backoff_until_s"),
    _whole("backoffs"),
)
carries = _table(
    "carries",
    sa.Column("cycle_id", Key, primary_key=True, autoincrement=False),
    _word("policy", 100),
    sa.Column("carry", LongText, nullable=False),
)
operations = _table(  # preemptions and gang reservations: a row whenever one begins, moves on or takes GPUs
    "operations",
    _count(),
    _time("seen_s"),
    _word("operation", 64),
    _word("purpose"),
    *_job(),  # that it is for
    _word("user", 100),
    _whole("gpus"),
    sa.Column("nodes", LongText, nullable=False),
    _word("stage"),
    _word("note", REASON_CHARACTERS),
    _whole("victims"),
    _real("lost_gpu_s"),  # work lost by the requeues of this row
    _real("idle_gpu_s"),  # idle on its nodes up to this row
    _flag("dry_run"),  # it would have begun
)
chores = _table(  # what is done now and then, and when it was last
    "chores",
    sa.Column("name", sa.String(32), primary_key=True),
    _real("done_s"),
)
leader = _table(  # one row: who may write, see leader_lease.LeaderLease
    "leader",
    sa.Column("name", sa.String(32), primary_key=True),
    _word("holder", 200),
    _whole("term"),
    _real("ends_s"),  # by this database's clock
    _real("lease_s"),  # of the leader, from each renewal on
)
shared_lines = (
    _table(  # for all hosts that may lead the journal and the operations, what was put on record in one go; and
        # what moves of jobs cost, one row
        "shared_lines",
        _count(),
        sa.Column("file", sa.String(32), nullable=False, index=True),
        _whole("term"),
        _real("time_s"),  # clock of the host that wrote it
        sa.Column("text", LongText, nullable=False),
    )
)
