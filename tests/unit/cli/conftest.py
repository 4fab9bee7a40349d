"""Commands run in this process on a cluster of three jobs and two nodes, without a Slurm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from slurmsched.cli.main import main
from slurmsched.model import (
    Allocations,
    Jobs,
    JobState,
    Nodes,
    Outcome,
    Partitions,
    Plan,
    Receipt,
    Rights,
    Site,
    Snapshot,
)  # fmt: skip


@dataclass
class Answer:
    """What a command line left: exit code, stdout and stderr."""

    code: int
    out: str
    err: str


@dataclass
class FakeCluster:
    """A cluster that stands still. sent: what was applied. status, words: what becomes of the jobs in `refuses`.

    stopped: why it ends early, and the exit code of that. lead: what hosts share that may lead.
    """

    snapshot: Snapshot
    applies: bool = False
    refuses: frozenset[int] = frozenset()
    words: str = ""
    status: str = "refused"
    stopped: tuple[str, int] = ("", 0)
    sent: list[Any] = field(default_factory=list)
    lead: Any = None
    closed: bool = False

    def read(self) -> Snapshot:
        return self.snapshot

    def apply(self, plan: Plan) -> Receipt:
        if not self.applies:
            return Receipt(planned=len(plan.actions), dry_run=True)
        self.sent += plan.actions
        said = {True: (self.status, self.words), False: ("written", "")}
        outcomes = [Outcome(a, *said[a.job_id in self.refuses]) for a in plan.actions]
        return Receipt(tuple(outcomes), len(plan.actions), False, *self.stopped)

    def earlier_runs(self, *_: Any) -> Any:
        return ()

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeStore:
    """A ledger that adds nothing. kept: receipts in order."""

    kept: list[Receipt] = field(default_factory=list)

    def recall(self, snapshot: Snapshot) -> Snapshot:
        return snapshot

    def append(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        self.kept.append(receipt)

    def close(self) -> None:
        pass


def make_snapshot(now_s: float = 1_000_000.0) -> Snapshot:
    """Two pending jobs whose order is wrong for least attained service, and one that runs."""
    jobs = Jobs.build(3, {
        "job_id": [11, 12, 13],
        "user": ["ann", "bob", "ann"],
        "account": ["physics", "biology", "physics"],
        "partition": ["gpu", "gpu,long", "gpu"],
        "state": [int(JobState.PENDING), int(JobState.PENDING), int(JobState.RUNNING)],
        "submit_s": [now_s - 900, now_s - 600, now_s - 300],
        "gpus": [4, 1, 8],
        "priority": [2000, 1000, 500],
        "base_priority": [2000.0, 1000.0, 500.0],
        "attained_gpu_s": [90_000.0, 0.0, 2_400.0],
    })  # fmt: skip
    nodes = Nodes.build(2, {"name": ["n1", "n2"], "gpus": [8, 8], "gpus_used": [8, 0]})
    site = Site(cluster="test", version="24.11.5", rights=Rights.OPERATOR, user="slurmsched")
    return Snapshot(now_s, jobs, nodes, Partitions.build(1, {"name": ["gpu"]}), Allocations.build(0, {}), site)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration file that manages every partition, with ledger, lock and stop file in tmp_path."""
    for name in ("SLURMSCHED_CONFIG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "slurmsched.toml"
    path.write_text(
        f'mode = "dry-run"\n[policy]\nname = "discretized-las"\nthresholds_gpu_s = [3600.0]\n'
        f'[scope]\npartitions = ["*"]\n[cycle]\nstop_file = "{tmp_path}/stop"\n'
        f'[ledger]\nurl = "sqlite:///{tmp_path}/ledger.db"\njournal = "{tmp_path}/journal.jsonl"\n'
        f'lock = "{tmp_path}/lock"\n'
    )
    return path


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeCluster, FakeStore]:
    """Puts a FakeCluster and a FakeStore in the place of Slurm and ledger."""
    from slurmsched.daemon import cycle_parts
    from slurmsched.planning.planner import Planner

    cluster, store = FakeCluster(make_snapshot()), FakeStore()

    @contextmanager
    def assembled(config: Any, *, apply: bool, read_only: bool = False, indices: bool = False) -> Iterator[Any]:
        cluster.applies = apply
        yield cycle_parts.CycleParts(cluster, Planner.from_config(config), store, cluster.lead)  # type: ignore[arg-type]

    monkeypatch.setattr(cycle_parts, "open_cycle_parts", assembled)
    return cluster, store


@pytest.fixture
def run(site: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Runs a command line with the site's configuration."""

    def call(*arguments: str, config: Path = site) -> Answer:
        capsys.readouterr()
        code = main(["--config", str(config), *arguments])
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return call


def with_site(snapshot: Snapshot, **values: Any) -> Snapshot:
    """The snapshot at a site that differs in these."""
    return replace(snapshot, site=replace(snapshot.site, **values))
