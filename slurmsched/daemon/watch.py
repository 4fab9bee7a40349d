"""What others see of the daemon: metrics and pages. Nothing that goes wrong here keeps a cycle from its work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmsched.config import Config
from slurmsched.errors import InputError, LedgerError
from slurmsched.logs import get_logger
from slurmsched.model.plan import Plan, Receipt
from slurmsched.model.snapshot import Snapshot
from slurmsched.protocols import Cluster, Planner, Store

if TYPE_CHECKING:
    from slurmsched.metrics.meters import Meters
    from slurmsched.web.pages import Pages
    from slurmsched.web.server import Answer, Asked, Server, Site

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
        self.adopt(config, apply=apply)

    def adopt(self, config: Config, *, apply: bool) -> None:
        """Go on with another configuration; figures stay. Raises ConfigError, and is as before then."""
        if config.metrics.wanted:
            from slurmsched.metrics.meters import Meters, need_client

            need_client()
            self._meters = self._meters or self._taken_up(Meters(config), config)
            self._meters.config = config
        if config.web.listen and self._pages is None:
            from slurmsched.web.pages import Pages

            self._pages = Pages()
        self._config, self._apply = config, apply
        self._open()
        self._publish()

    def parts(self, cluster: Cluster, planner: Planner, store: Store) -> tuple[Cluster, Planner, Store]:
        """The parts of a cycle, timed where that is wanted."""
        if self._meters is None:
            return cluster, planner, store
        from slurmsched.metrics.stopwatch import Timed

        timed = Timed(cluster, planner, store, self._meters.stage)
        return timed, timed, timed

    def done(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        """A cycle worked."""
        self._leads = True
        if self._meters is not None:
            self._guarded(lambda meters: meters.done(snapshot, plan, receipt))
        self.looked(snapshot, plan)
        self._open()
        self._publish()

    def looked(self, snapshot: Snapshot, plan: Plan) -> None:
        """This is what pages show from now on; nothing is made of it until one is asked for."""
        if self._pages is None:
            return
        from slurmsched.web.frame import Frame

        mode = "apply" if self._apply else "dry-run"
        tree = self._config
        self._pages.show(Frame(snapshot, plan, tree.lever.kind, mode, tree.policy.name, waits_s=self._past_waits))

    def _past_waits(self, gpus: int) -> tuple[float, ...]:
        """What the ledger tells of jobs of that size; nothing where it does not answer."""
        from slurmsched.db.job_history import first_waits

        try:
            return first_waits(self._config.ledger.url, gpus)
        except LedgerError:
            return ()

    def ended(self, outcome: str) -> None:
        """A cycle did not: failed, dropped or standby."""
        if self._pages is not None and outcome == "failed":
            self._pages.fail("The last cycle failed; the daemon's log says why. This is what the one before saw.")
        self._leads = outcome not in ("dropped", "standby") and self._leads
        self._guarded(lambda meters: meters.ended(outcome))
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

    def _guarded(self, count: Any) -> None:
        if self._meters is None:
            return
        try:
            count(self._meters)
        except Exception as error:
            log.error("metrics.failed", error=str(error), kind=type(error).__name__, exc_info=True)

    def _publish(self) -> None:
        """Put the figures of now in the place of those before: a scrape sees the one or the other."""
        if self._meters is None:
            return
        from slurmsched.daemon.assemble import paused
        from slurmsched.metrics.exposition import write_textfile
        from slurmsched.metrics.meters import Standing

        standing = Standing(self._apply, self._leads, paused(self._config))
        self._families = self._meters.families(standing)
        if textfile := self._config.metrics.textfile:
            try:
                write_textfile(Path(textfile), self._families)
            except InputError as error:
                self._tell("textfile", str(error))
            else:
                self._failed.pop("textfile", None)

    def _open(self) -> None:
        """Serve what is wanted where it is wanted. An address that cannot be had is tried again after each cycle."""
        wanted = {METRICS: self._config.metrics.listen, WEB: self._config.web.listen}
        for name, listen in wanted.items():
            if name in self._servers and self._servers[name].listen != listen:
                self._servers.pop(name).close()
            if listen and name not in self._servers:
                self._serve(name, listen)

    def _serve(self, name: str, listen: str) -> None:
        from slurmsched.web.server import Server

        try:
            self._servers[name] = Server(listen, self._site(name, listen))
        except InputError as error:
            self._tell(name, str(error))
        else:
            self._failed.pop(name, None)
            log.info("http.opened", what=name, listen=listen)

    def _site(self, name: str, listen: str) -> Site:
        from slurmsched.web.server import Site, allowed_hosts

        if name == WEB and self._pages is not None:
            return Site(self._pages.answer, allowed_hosts(listen, self._config.web.hosts))
        return Site(self._metrics, allowed_hosts(listen))

    def _metrics(self, asked: Asked) -> Answer | None:
        from slurmsched.metrics.exposition import scraped
        from slurmsched.web.server import Answer

        return Answer(*scraped(self._families, asked.accept)) if asked.path == "/metrics" else None

    def _tell(self, name: str, why: str) -> None:
        """Once, until it works again or goes wrong in another way."""
        if self._failed.get(name) != why:
            log.error("watch.failed", what=name, why=why)
        self._failed[name] = why

    @staticmethod
    def _taken_up(meters: Meters, config: Config) -> Meters:
        from slurmsched.metrics.exposition import read_textfile

        if config.metrics.textfile:
            meters.restore(read_textfile(Path(config.metrics.textfile)))
        return meters
