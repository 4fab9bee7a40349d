"""What others see of a cycle: its log, metrics and web pages. A fault in any of them does not stop the cycle."""

from __future__ import annotations

import re
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmsched.config import Config
from slurmsched.errors import InputError
from slurmsched.logs import get_logger
from slurmsched.model.gpu_selection import PlacedJob
from slurmsched.model.plan import Plan, Receipt, SetAdminComment
from slurmsched.model.snapshot import Snapshot
from slurmsched.planning.admin_comments import says_idle
from slurmsched.protocols import Cluster, DecidingPlanner, Store

if TYPE_CHECKING:
    from slurmsched.observe.gpu_profiles import ProfileStore
    from slurmsched.observe.prometheus import CycleMetrics
    from slurmsched.observe.web.frame import Frame
    from slurmsched.observe.web.web_pages import WebPages
    from slurmsched.observe.web.web_server import HttpRequest, HttpResponse, WebServer
    from slurmsched.slurm.job_queries import PageQueries


MOST_NEW_TEXTS = 20  # most new texts of a kind in one cycle; of more only the number is logged

log = get_logger()


class WarningLog:
    """Logs warnings, notes and the reason to stop that the cycle before did not have.

    placing: whether slurmsched chooses the nodes of jobs. Then a job that missed better GPUs is a warning.
    """

    def __init__(self, *, placing: bool) -> None:
        self.placing = placing
        self._before: dict[str, frozenset[str]] = {}

    def __call__(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        """Log what is new of one cycle."""
        self._tell("snapshot.warned", log.warning, snapshot.warnings)
        self._tell("plan.noted", log.info, plan.notes)
        self._missed([each for each in snapshot.placed if each.missed])
        self._tell("apply.stopped", log.warning, [receipt.stopped] if receipt.stopped else [])

    def _missed(self, missed: Sequence[PlacedJob]) -> None:
        """Log each job if slurmsched chooses nodes; of jobs that Slurm placed only the number."""
        ours = [each for each in missed if self.placing or each.pinned]
        for each in ours[:MOST_NEW_TEXTS]:
            log.warning("placement.missed", job_id=each.job_id, nodes=each.nodes, gpus=each.gpus,
                        ratio=round(each.ratio, 3), pinned=each.pinned, better=each.note)  # fmt: skip
        if more := len(ours[MOST_NEW_TEXTS:]):
            log.warning("placement.missed", text=f"and {more} more; `slurmsched topology quality` shows all")
        if alone := len(missed) - len(ours):
            log.info(
                "placement.missed", jobs=alone, text="placed by Slurm alone; `slurmsched topology quality` shows them"
            )

    def _tell(self, event: str, say: Callable[..., None], texts: Iterable[str]) -> None:
        distinct = {_without_counts(event, text): text for text in texts}
        before = self._before.get(event, frozenset())
        new = [text for same, text in distinct.items() if same not in before]
        for text in new[:MOST_NEW_TEXTS]:
            say(event, text=text)
        if len(new) > MOST_NEW_TEXTS:
            say(event, text=f"and {len(new) - MOST_NEW_TEXTS} more; `slurmsched plan` shows all")
        self._before[event] = frozenset(distinct)


def _without_counts(event: str, text: str) -> str:
    """The text without its counts of jobs and figures: if only those change, it is not new."""
    counts = event == "apply.stopped" or text[:1].isdigit()
    return re.sub(r"\d+(, \d+)*", "#", text) if counts else text


# Mails about idle GPUs.

MOST_MAILS = 50  # of one cycle
MOST_WAITING = 1_000  # mails that wait for a later cycle
MAIL_S = 20.0  # for one mail


class IdleMails:
    """Runs idle_gpus.mail_command once for each job whose AdminComment began to say that its GPUs are idle.

    The journal has that comment, so a daemon that starts again does not mail the same text twice. Mails go out in a
    thread of their own, one after the other: a slow command delays no cycle. What is too much for one cycle waits for
    the next ones; what is dropped beyond MOST_WAITING is logged. Only the cycles of the daemon send mails."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = command
        self._thread: threading.Thread | None = None
        self._waiting = deque[tuple[str, int, str]]()
        self._mailed = set[tuple[int, float]]()  # job and submit time

    def __call__(self, snapshot: Snapshot, receipt: Receipt) -> None:
        if not self.command:
            self._waiting.clear()
            return
        self._queue(snapshot, receipt)
        if self._waiting and (self._thread is None or not self._thread.is_alive()):
            mails = [self._waiting.popleft() for _ in range(min(MOST_MAILS, len(self._waiting)))]
            self._thread = threading.Thread(target=self._send, args=(mails,), daemon=True, name="mails")
            self._thread.start()

    def _queue(self, snapshot: Snapshot, receipt: Receipt) -> None:
        """Let the mails wait that are due by this cycle. Jobs that are gone from the queue are forgotten."""
        jobs = snapshot.jobs
        self._mailed = {job for job in self._mailed if jobs.row_of(job[0]) >= 0}
        due = [action for one in receipt.written if isinstance(action := one.action, SetAdminComment)
               and says_idle(str(action.new)) and not says_idle(str(action.old))
               and (key := (action.job_id, action.submit_s)) not in self._mailed
               and jobs.row_of(key[0]) >= 0]  # fmt: skip
        self._mailed |= {(action.job_id, action.submit_s) for action in due}
        room = MOST_WAITING - len(self._waiting)
        self._waiting += [(jobs.user[jobs.row_of(action.job_id)], action.job_id, str(action.new))
                          for action in due[:room]]  # fmt: skip
        if dropped := [action.job_id for action in due[room:]]:
            log.warning("mail.dropped", jobs=len(dropped), first=dropped[:MOST_NEW_TEXTS], waiting=MOST_WAITING)

    def wait(self) -> None:
        """Wait until what is under way is sent."""
        if self._thread is not None:
            self._thread.join()

    def _send(self, mails: Sequence[tuple[str, int, str]]) -> None:
        for user, job_id, text in mails:
            words = [word.replace("{user}", user).replace("{job}", str(job_id)) for word in self.command]
            try:
                subprocess.run(words, input=f"{text}\n", text=True, timeout=MAIL_S, check=True, capture_output=True)
            except (OSError, subprocess.SubprocessError) as error:
                log.error("mail.failed", job_id=job_id, error=str(error)[:300])


# Metrics and web pages.

METRICS, WEB, MAILS, PROFILES = "metrics", "web", "mails", "profiles"


class Observers:
    """Metrics and web pages of the daemon.

    apply: whether cycles send. Raises ConfigError if a library that the configuration needs is not installed."""

    def __init__(self, config: Config, *, apply: bool) -> None:
        self._config, self._apply = config, apply
        self.mails = IdleMails(config.idle_gpus.mail_command)
        self._store: ProfileStore | None = None
        self._meters: CycleMetrics | None = None
        self._pages: WebPages | None = None
        self._families: tuple[Any, ...] = ()
        self._servers: dict[str, WebServer] = {}
        self._failed: dict[str, str] = {}
        self._leads = True
        self._planner: DecidingPlanner | None = None
        self.adopt(config, apply=apply)

    def adopt(self, config: Config, *, apply: bool) -> None:
        """Adopt another configuration; figures stay. After a ConfigError nothing has changed."""
        meters, pages = self._meters, self._pages
        if config.metrics.wanted:
            from slurmsched.observe.prometheus import CycleMetrics, need_client

            need_client()
            meters = meters or self._taken_up(CycleMetrics(config), config)
        if config.web.listen and pages is None:
            from slurmsched.observe.web.web_pages import WebPages

            pages = WebPages()
        if meters is not None:
            meters.config = config
        self._meters, self._pages, self._config, self._apply = meters, pages, config, apply
        self.mails.command = config.idle_gpus.mail_command
        self._store = None
        self._open()
        self._publish()

    def parts(self, cluster: Cluster, planner: DecidingPlanner, store: Store) -> tuple[Cluster, DecidingPlanner, Store]:
        """The parts of a cycle, timed if metrics are on."""
        self._planner = planner
        if self._meters is None:
            return cluster, planner, store
        from slurmsched.observe.prometheus import TimedCycle

        timed = TimedCycle(cluster, planner, store, self._meters.stage)
        return timed, timed, timed

    def done(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        """Record a cycle that worked."""
        self._leads = True
        self._guarded(MAILS, lambda: self.mails(snapshot, receipt))
        self._guarded(PROFILES, lambda: self._profile(snapshot))
        if (meters := self._meters) is not None:
            self._guarded(METRICS, lambda: meters.done(snapshot, plan, receipt))
        self.looked(snapshot, plan, self._planner)
        self._open()
        self._publish()

    def _profile(self, snapshot: Snapshot) -> None:
        """Keep what runs in the profiles, if they are kept."""
        if path := self._config.measured_use.profiles:
            from slurmsched.observe.gpu_profiles import ProfileStore

            self._store = self._store or ProfileStore(Path(path))
            self._store.add(snapshot)

    def looked(self, snapshot: Snapshot, plan: Plan, planner: DecidingPlanner | None) -> None:
        """Show this on pages from now on. Pages are rendered on request. planner: made the plan."""
        if (pages := self._pages) is not None:
            self._guarded(WEB, lambda: pages.show(self._frame(snapshot, plan, planner)))

    def _frame(self, snapshot: Snapshot, plan: Plan, planner: DecidingPlanner | None) -> Frame:
        from slurmsched.db.job_history import PAGE_S, LedgerPlace, past_of_job
        from slurmsched.observe.explain.explanation import preemption_outlook, run_time_terms
        from slurmsched.observe.web.frame import Frame

        mode = "apply" if self._apply else "dry-run"
        tree, at = self._config, LedgerPlace.of(self._config, PAGE_S)
        return Frame(snapshot, plan, tree.lever.kind, mode, tree.policy.name,
                     past=lambda job_id, gpus: past_of_job(at, job_id, gpus), ask=self._asker(snapshot),
                     move=lambda row: preemption_outlook(snapshot, row, tree.preemption, tree.scope),
                     expected=lambda row: run_time_terms(planner, snapshot, row))  # fmt: skip

    def _asker(self, snapshot: Snapshot) -> PageQueries | None:
        from slurmsched.slurm.job_queries import PageQueries

        most = self._config.web.asked_jobs
        return PageQueries(self._config.slurm, snapshot, most) if most else None

    def ended(self, outcome: str) -> None:
        """Record a cycle that did not work: "failed", "dropped" or "standby"."""
        if (pages := self._pages) is not None and outcome == "failed":
            said = "The last cycle failed; the daemon's log says why. This is what the one before saw."
            self._guarded(WEB, lambda: pages.fail(said))
        self._leads = outcome not in ("dropped", "standby") and self._leads
        if (meters := self._meters) is not None:
            self._guarded(METRICS, lambda: meters.ended(outcome))
        self._open()
        self._publish()

    def close(self) -> None:
        """Close the servers."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    def port(self, name: str) -> int:
        """The port of METRICS or WEB, 0 if it is not served."""
        return self._servers[name].port if name in self._servers else 0

    @staticmethod
    def _guarded(name: str, step: Callable[[], object]) -> None:
        """Run the step. Errors are logged as faults of METRICS or WEB."""
        try:
            step()
        except Exception as error:
            log.error(f"{name}.failed", error=str(error), kind=type(error).__name__, exc_info=True)

    def _publish(self) -> None:
        """Replace the published figures by those of now, at once."""
        if (meters := self._meters) is not None:
            self._guarded(METRICS, lambda: self._published(meters))

    def _published(self, meters: CycleMetrics) -> None:
        from slurmsched.daemon.cycle_parts import paused
        from slurmsched.observe.prometheus import ProcessState, write_textfile

        standing = ProcessState(self._apply, self._leads, paused(self._config))
        self._families = meters.families(standing)
        if textfile := self._config.metrics.textfile:
            try:
                write_textfile(Path(textfile), self._families)
            except InputError as error:
                self._tell("textfile", str(error))
            else:
                self._failed.pop("textfile", None)

    def _open(self) -> None:
        """Serve as configured. An address that is not available is tried again after each cycle."""
        self._guarded(METRICS, lambda: self._served(METRICS, self._config.metrics.listen))
        self._guarded(WEB, lambda: self._served(WEB, self._config.web.listen, self._config.web.hosts))

    def _served(self, name: str, listen: str, names: tuple[str, ...] = ()) -> None:
        """Start one server, or replace it if its address or names have changed."""
        server = self._servers.get(name)
        if server is None and not listen:
            return
        from slurmsched.observe.web.web_server import allowed_hosts

        hosts = allowed_hosts(listen, names) if listen else None
        if server is not None and (server.listen, server.site.hosts) != (listen, hosts):
            self._servers.pop(name).close()
        if listen and name not in self._servers:
            self._serve(name, listen, hosts)

    def _serve(self, name: str, listen: str, hosts: frozenset[str] | None) -> None:
        from slurmsched.observe.web.web_server import ServedSite, WebServer

        try:
            answer = self._pages.answer if name == WEB and self._pages is not None else self._metrics
            self._servers[name] = WebServer(listen, ServedSite(answer, hosts))
        except InputError as error:
            self._tell(name, str(error))
        else:
            self._failed.pop(name, None)
            log.info("http.opened", what=name, listen=listen)

    def _metrics(self, asked: HttpRequest) -> HttpResponse | None:
        from slurmsched.observe.prometheus import scraped
        from slurmsched.observe.web.web_server import HttpResponse

        return HttpResponse(*scraped(self._families, asked.accept)) if asked.path == "/metrics" else None

    def _tell(self, name: str, why: str) -> None:
        """Log a failure once, until it works again or fails in another way."""
        if self._failed.get(name) != why:
            log.error("watch.failed", what=name, why=why)
        self._failed[name] = why

    def _taken_up(self, meters: CycleMetrics, config: Config) -> CycleMetrics:
        from slurmsched.observe.prometheus import read_textfile

        if textfile := config.metrics.textfile:
            self._guarded(METRICS, lambda: meters.restore(read_textfile(Path(textfile))))
        return meters
