"""What others see of the daemon: metrics and pages. Nothing that goes wrong here keeps a cycle from its work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmsched.config import Config
from slurmsched.errors import InputError
from slurmsched.logs import get_logger
from slurmsched.model.plan import Plan, Receipt
from slurmsched.model.snapshot import Snapshot
from slurmsched.protocols import Cluster, Planner, Store

if TYPE_CHECKING:
    from slurmsched.metrics.meters import Meters
    from slurmsched.slurm.page_facts import PageFacts
    from slurmsched.web.frame import Frame
    from slurmsched.web.pages import Pages
    from slurmsched.web.server import Answer, Asked, Server

METRICS, WEB = "metrics", "web"

log = get_logger()


class Watch:
    """Raises ConfigError where what the configuration wants is not installed. apply: cycles send."""

    def __init__(self, config: Config, *, apply: bool) -> None:
        self._config, self._apply = config, apply
        self._meters: Meters | None = None
        self._pages: Pages | None = None
        self._families: tuple[Any, ...] = ()
        self._servers: dict[str, Server] = {}
        self._failed: dict[str, str] = {}
        self._leads = True
        self._planner: Planner | None = None
        self.adopt(config, apply=apply)

    def adopt(self, config: Config, *, apply: bool) -> None:
        """Go on with another configuration; figures stay. Raises ConfigError, and is as before then."""
        meters, pages = self._meters, self._pages
        if config.metrics.wanted:
            from slurmsched.metrics.meters import Meters, need_client

            need_client()
            meters = meters or self._taken_up(Meters(config), config)
        if config.web.listen and pages is None:
            from slurmsched.web.pages import Pages

            pages = Pages()
        if meters is not None:
            meters.config = config
        self._meters, self._pages, self._config, self._apply = meters, pages, config, apply
        self._open()
        self._publish()

    def parts(self, cluster: Cluster, planner: Planner, store: Store) -> tuple[Cluster, Planner, Store]:
        """The parts of a cycle, timed where that is wanted."""
        self._planner = planner
        if self._meters is None:
            return cluster, planner, store
        from slurmsched.metrics.stopwatch import Timed

        timed = Timed(cluster, planner, store, self._meters.stage)
        return timed, timed, timed

    def done(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        """A cycle worked."""
        self._leads = True
        if (meters := self._meters) is not None:
            self._guarded(METRICS, lambda: meters.done(snapshot, plan, receipt))
        self.looked(snapshot, plan, self._planner)
        self._open()
        self._publish()

    def looked(self, snapshot: Snapshot, plan: Plan, planner: Planner | None) -> None:
        """This is what pages show from now on; nothing is made of it until one is asked for. planner: whose plan it
        is."""
        if (pages := self._pages) is not None:
            self._guarded(WEB, lambda: pages.show(self._frame(snapshot, plan, planner)))

    def _frame(self, snapshot: Snapshot, plan: Plan, planner: Planner | None) -> Frame:
        from slurmsched.db.job_history import PAGE_S, Place, past
        from slurmsched.explain.expected import expected
        from slurmsched.explain.moving import moving
        from slurmsched.web.frame import Frame

        mode = "apply" if self._apply else "dry-run"
        tree, at = self._config, Place.of(self._config, PAGE_S)
        return Frame(snapshot, plan, tree.lever.kind, mode, tree.policy.name,
                     past=lambda job_id, gpus: past(at, job_id, gpus), ask=self._asker(snapshot),
                     move=lambda row: moving(snapshot, row, tree.preemption, tree.scope),
                     expected=lambda row: expected(planner, snapshot, row))  # fmt: skip

    def _asker(self, snapshot: Snapshot) -> PageFacts | None:
        from slurmsched.slurm.page_facts import PageFacts

        most = self._config.web.asked_jobs
        return PageFacts(self._config.slurm, snapshot, most) if most else None

    def ended(self, outcome: str) -> None:
        """A cycle did not: failed, dropped or standby."""
        if (pages := self._pages) is not None and outcome == "failed":
            said = "The last cycle failed; the daemon's log says why. This is what the one before saw."
            self._guarded(WEB, lambda: pages.fail(said))
        self._leads = outcome not in ("dropped", "standby") and self._leads
        if (meters := self._meters) is not None:
            self._guarded(METRICS, lambda: meters.ended(outcome))
        self._open()
        self._publish()

    def close(self) -> None:
        """Give the addresses back."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    def port(self, name: str) -> int:
        """Where METRICS or WEB is served, 0 if it is not."""
        return self._servers[name].port if name in self._servers else 0

    @staticmethod
    def _guarded(name: str, step: Callable[[], object]) -> None:
        """Do it; what goes wrong is logged as a fault of METRICS or WEB."""
        try:
            step()
        except Exception as error:
            log.error(f"{name}.failed", error=str(error), kind=type(error).__name__, exc_info=True)

    def _publish(self) -> None:
        """Put the figures of now in the place of those before: a scrape sees the one or the other."""
        if (meters := self._meters) is not None:
            self._guarded(METRICS, lambda: self._published(meters))

    def _published(self, meters: Meters) -> None:
        from slurmsched.daemon.assemble import paused
        from slurmsched.metrics.exposition import write_textfile
        from slurmsched.metrics.meters import Standing

        standing = Standing(self._apply, self._leads, paused(self._config))
        self._families = meters.families(standing)
        if textfile := self._config.metrics.textfile:
            try:
                write_textfile(Path(textfile), self._families)
            except InputError as error:
                self._tell("textfile", str(error))
            else:
                self._failed.pop("textfile", None)

    def _open(self) -> None:
        """Serve what is wanted where it is wanted. An address that cannot be had is tried again after each cycle."""
        self._guarded(METRICS, lambda: self._served(METRICS, self._config.metrics.listen))
        self._guarded(WEB, lambda: self._served(WEB, self._config.web.listen, self._config.web.hosts))

    def _served(self, name: str, listen: str, names: tuple[str, ...] = ()) -> None:
        """One server; another in its place where its address or names have changed."""
        server = self._servers.get(name)
        if server is None and not listen:
            return
        from slurmsched.web.server import allowed_hosts

        hosts = allowed_hosts(listen, names) if listen else None
        if server is not None and (server.listen, server.site.hosts) != (listen, hosts):
            self._servers.pop(name).close()
        if listen and name not in self._servers:
            self._serve(name, listen, hosts)

    def _serve(self, name: str, listen: str, hosts: frozenset[str] | None) -> None:
        from slurmsched.web.server import Server, Site

        try:
            answer = self._pages.answer if name == WEB and self._pages is not None else self._metrics
            self._servers[name] = Server(listen, Site(answer, hosts))
        except InputError as error:
            self._tell(name, str(error))
        else:
            self._failed.pop(name, None)
            log.info("http.opened", what=name, listen=listen)

    def _metrics(self, asked: Asked) -> Answer | None:
        from slurmsched.metrics.exposition import scraped
        from slurmsched.web.server import Answer

        return Answer(*scraped(self._families, asked.accept)) if asked.path == "/metrics" else None

    def _tell(self, name: str, why: str) -> None:
        """Once, until it works again or goes wrong in another way."""
        if self._failed.get(name) != why:
            log.error("watch.failed", what=name, why=why)
        self._failed[name] = why

    def _taken_up(self, meters: Meters, config: Config) -> Meters:
        from slurmsched.metrics.exposition import read_textfile

        if textfile := config.metrics.textfile:
            self._guarded(METRICS, lambda: meters.restore(read_textfile(Path(textfile))))
        return meters
