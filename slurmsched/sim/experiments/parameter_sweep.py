"""A sweep replays each point of a grid once. Its results file only grows, so an interrupted sweep goes on."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

import numpy as np
import orjson

from slurmsched import __version__
from slurmsched.errors import InputError, LockedError, SlurmschedError, WorkersLostError
from slurmsched.logs import configure
from slurmsched.model.trace import RecordedTrace, Trace, trace_digest
from slurmsched.sim.cluster_files import cluster_of
from slurmsched.sim.experiments.back_test import back_test
from slurmsched.sim.experiments.comparison import slurm_alone
from slurmsched.sim.experiments.parameter_grid import GridPoint, GridTree, grid_points, names_axis
from slurmsched.sim.experiments.replay_request import RECORDED_PHYSICS, ReplayRequest, parse_policy, read_history
from slurmsched.sim.experiments.replay_session import ReplaySession, on_its_cluster
from slurmsched.sim.experiments.worker_processes import SweepWorkers
from slurmsched.sim.traces.trace_selection import chosen_by_default

POINT_KEY = "key"
ResultRow = Mapping[str, Any]


class SweepResults:
    """rows: key -> row, in the order of their finishing."""

    def __init__(self, file: BinaryIO, rows: dict[str, ResultRow]) -> None:
        self._file, self.rows = file, rows

    def add(self, row: ResultRow) -> None:
        """Keep a row, on disk when this returns. Raises InputError if it cannot be written."""
        try:
            self._file.write(orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", source=self._file.name) from error
        self.rows[row[POINT_KEY]] = row


@contextmanager
def open_results(path: Path) -> Iterator[SweepResults]:
    """The file, made if there is none, held by this process for the body.

    A last line that was cut off, by a full disk or a power failure, is dropped: that point runs again. Raises
    InputError for a file that is something else or cannot be written, LockedError while another sweep has it.
    """
    try:
        file = path.open("a+b")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(f"{path}: another sweep writes here; name another file with --results") from None
        yield SweepResults(file, _read_results(file, path))


def _read_results(file: BinaryIO, path: Path) -> dict[str, ResultRow]:
    """Rows by key; the file ends after the last whole line then."""
    file.seek(0)
    content = file.read()
    whole = content.rfind(b"\n") + 1
    rows = [_row(line, path, number) for number, line in enumerate(content[:whole].splitlines(), 1)]
    if whole < len(content):
        file.truncate(whole)
    return {row[POINT_KEY]: row for row in rows}


def _row(line: bytes, path: Path, number: int) -> ResultRow:
    try:
        row = orjson.loads(line)
        if isinstance(row, dict) and isinstance(row.get(POINT_KEY), str):
            return row
    except orjson.JSONDecodeError:
        pass
    raise InputError("is no row of a sweep; name another file with --results", source=str(path), line=number)


# Replays of points that are not on file.

ERROR_KEY, BACK_TEST_KEY = "error", "back_test"
LOOK_S = 2.0  # between two looks at the workers, while nothing is finished
Answers = Future[dict[str, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class SweepPlan:
    """What a sweep replays.

    recorded: the traces of the points, by name, with the jobs that are replayed.
    beside: points that are played for the back-test and not ranked.
    warnings: what is left out of a cluster, or of a trace on it.
    """

    points: Sequence[GridPoint]
    recorded: Mapping[str, RecordedTrace]
    beside: Sequence[GridPoint]
    warnings: Sequence[str]


def planned_sweep(
    tree: GridTree, pairs: Sequence[str], traces: Sequence[str], read: Callable[[str], RecordedTrace], *,
    source: str, with_back_test: bool,
) -> SweepPlan:  # fmt: skip
    """The points of a grid on their traces. Where no axis names the model, each trace gets the one that suits it.

    tree, pairs, traces, source: as grid_points. read: reads a trace.
    Raises ConfigError as grid_points does, InputError as `read` does and for a trace without jobs.
    """
    points = grid_points(tree, pairs, traces, source=source)
    known = read_traces(points, read)
    if not names_axis("model", tree, pairs):
        points = suited_points(points, known)
    on_slurm = {name: all(each.request.model == "slurm" for each in points if each.trace == name) for name in known}
    known = {name: chosen_by_default(each, slurm=on_slurm[name]) for name, each in known.items()}
    points = [replace(each, request=replace(each.request, origin_s=known[each.trace].clock_s)) for each in points]
    beside = back_test_points(points, known) if with_back_test else []
    return SweepPlan(points, known, beside, _cluster_warnings(points, known))


def _cluster_warnings(points: Sequence[GridPoint], recorded: Mapping[str, RecordedTrace]) -> list[str]:
    """Each once. A point whose cluster cannot be described has none: it fails when it is replayed."""
    every = {(point.trace, point.request.cluster, point.request.model): point for point in points}
    warnings = dict[str, None]()
    for each in every.values():
        with suppress(SlurmschedError):
            warnings |= dict.fromkeys(on_its_cluster(recorded[each.trace].trace, each.request)[1].warnings)
    return list(warnings)


@dataclass(slots=True, eq=False)
class ParameterSweep:
    """The points of a grid over their traces, and the file of what is done.

    beside: as in SweepPlan.
    todo: key -> points that are not on file. A point that is wrong is an entry of `failures`, no error.
    """

    points: Sequence[GridPoint]
    traces: Mapping[str, Trace]
    results: SweepResults
    beside: Sequence[GridPoint] = ()
    todo: dict[str, list[GridPoint]] = field(init=False, default_factory=dict)
    _keys: list[str] = field(init=False, default_factory=list)  # of each point
    _errors: dict[str, str] = field(init=False, default_factory=dict)  # by key, or by repr of a point without one

    def __post_init__(self) -> None:
        digests = {name: trace_digest(trace) for name, trace in self.traces.items()}
        for point in (*self.points, *self.beside):
            try:
                key = point_key(point.request, self.traces[point.trace], digests[point.trace])
            except SlurmschedError as error:
                key = repr(point)
                self._errors[key] = str(error)
            self._keys.append(key)
            if key not in self.results.rows and key not in self._errors:
                self.todo.setdefault(key, []).append(point)

    @property
    def rows(self) -> list[ResultRow]:
        """What is on file of this grid, in the grid's order and words."""
        return self._rows_of(self._keys[: len(self.points)], self.points)

    @property
    def back_tests(self) -> list[ResultRow]:
        """The rows with the figures of a back-test."""
        rows = self._rows_of(self._keys, [*self.points, *self.beside])
        return [row for row in rows if row.get(BACK_TEST_KEY)]

    def _rows_of(self, keys: Sequence[str], points: Sequence[GridPoint]) -> list[ResultRow]:
        known = self.results.rows
        return [{**known[key], **point.words} for key, point in zip(keys, points, strict=True) if key in known]

    @property
    def failures(self) -> list[tuple[GridPoint, str]]:
        """Points that failed in this run, in the grid's order, and why."""
        found = zip(self._keys[: len(self.points)], self.points, strict=True)
        return [(point, self._errors[key]) for key, point in found if key in self._errors]

    def figures(self, found: int) -> dict[str, Any]:
        """How many points there are, were on file at the start (found), were played, are missing; and what failed."""
        missing = sum(map(len, self.todo.values()))
        return {"points": len(self.points), "found": found, "played": len(self.rows) - found, "missing": missing,
                "failed": [{**point.words, "error": error} for point, error in self.failures]}  # fmt: skip

    def trace_figures(self, name: str, recorded: RecordedTrace) -> dict[str, Any]:
        """A trace: what its figures rest on, each combination once, and how well Slurm alone repeats its record."""
        rows = [row for row in self.rows if row["trace"] == name]
        kinds = {repr(row["assumptions"]): row["assumptions"] for row in rows}
        assumed = [{**kind, "trace": list(recorded.assumed)} for kind in kinds.values()]
        tests = [{"cluster": row["cluster"], **row[BACK_TEST_KEY]} for row in self.back_tests if row["trace"] == name]
        return {"file": name, "jobs": len(recorded.trace), "assumptions": assumed, BACK_TEST_KEY: tests}

    def run(self, workers: SweepWorkers, on_done: Callable[[], None] = lambda: None) -> None:
        """Play what is to do, and keep each point when it is finished. on_done: called after each.

        Raises InputError when the file cannot be written, WorkersLostError when the workers are lost as a whole.
        KeyboardInterrupt goes through. What was done stays.
        """
        for attempts_after in reversed(range(workers.attempts)):
            self._round(workers, on_done, keep_lost=attempts_after == 0)
            if not self.todo:
                return
        raise WorkersLostError("the connection to the workers broke several times")

    def _round(self, workers: SweepWorkers, on_done: Callable[[], None], *, keep_lost: bool) -> None:
        """Give out all that is to do once. keep_lost: points that were lost with a worker have failed now, but not
        those that were only taken back."""
        running = self._given_out(workers)
        broken: BrokenExecutor | None = None
        for future in _finished(running, workers.fault):
            figures, lost = _answer(future)
            if isinstance(lost, BrokenExecutor):
                broken = lost
            elif not lost or (keep_lost and not future.cancelled()):
                self._keep(running[future], figures)
                on_done()
        if broken:
            described = f"a process was ended from outside (if memory is short, fewer --workers): {broken}"
            raise WorkersLostError(described, processes=workers.processes)

    def _given_out(self, workers: SweepWorkers) -> dict[Answers, str]:
        try:
            shared = {name: workers.share(trace) for name, trace in self.traces.items()}
            return {
                _submitted(workers.executor, shared[point.trace], point.request): key
                for key, (point, *_) in self.todo.items()
            }
        except SlurmschedError:
            raise
        except Exception as error:  # Dask has many kinds for a connection that breaks meanwhile
            raise WorkersLostError(f"the workers take no points: {type(error).__name__}: {error}") from error

    def _keep(self, key: str, figures: dict[str, Any]) -> None:
        point, *_ = self.todo.pop(key)
        if ERROR_KEY in figures:
            self._errors[key] = figures[ERROR_KEY]
        else:
            self.results.add({POINT_KEY: key, **point.words, **figures})


def is_back_test(request: ReplayRequest) -> bool:
    """Whether it is Slurm alone in the slurmctld model: what can be held against recorded starts."""
    return request == slurm_alone(request)


def back_test_points(points: Sequence[GridPoint], recorded: Mapping[str, RecordedTrace]) -> list[GridPoint]:
    """Slurm alone, once for each cluster and trace with recorded starts that the slurmctld model replays.

    Those that the points have already are not among them.
    """
    there = {(point.trace, repr(replace(point.request, seed=0))) for point in points}
    made = dict[tuple[str, str], GridPoint]()
    for point in points:
        if point.request.model == "slurm" and recorded[point.trace].has_starts:
            alone = replace(slurm_alone(point.request), requeue=True)
            made.setdefault((point.trace, repr(replace(alone, seed=0))), GridPoint(point.trace, alone))
    return [point for key, point in made.items() if key not in there]


def suited_points(points: Sequence[GridPoint], recorded: Mapping[str, RecordedTrace]) -> list[GridPoint]:
    """The points on the model that suits their trace, as `replay` chooses it: the slurmctld model for a history."""
    return [replace(point, request=replace(point.request, model=recorded[point.trace].suited_model))
            for point in points]  # fmt: skip


def play_point(trace: Trace, request: ReplayRequest) -> dict[str, Any]:
    """The figures of one replay, or its error as a text: exceptions of plug-ins may not travel between processes."""
    configure("warning")
    try:
        replayed = ReplaySession(trace, request).run()
        if not is_back_test(request) or np.isnan(trace.start_s).all():
            return replayed.figures
        found = back_test(trace, replayed.all_outcomes)
        return replayed.figures | {BACK_TEST_KEY: found.figures() if found else None}
    except SlurmschedError as error:
        return {ERROR_KEY: str(error)}
    except Exception as error:
        return {ERROR_KEY: f"unexpected {type(error).__name__}: {error}"}


def _submitted(executor: Executor, trace: Any, request: ReplayRequest) -> Answers:
    """What comes of a replay; the executor's own end, if it has ended: what it finished before is not lost."""
    try:
        return executor.submit(play_point, trace, request)
    except BrokenExecutor as error:
        ended: Answers = Future()
        ended.set_exception(error)
        return ended


def _finished(running: Collection[Answers], fault: Callable[[], str]) -> Iterator[Answers]:
    """Each when it has finished. Raises WorkersLostError when nothing more is to be expected of the workers."""
    done, waiting = SimpleQueue[Answers](), set(running)
    for future in running:
        future.add_done_callback(done.put)
    while waiting:
        try:
            future = done.get(timeout=LOOK_S)
            waiting.remove(future)
            yield future
        except Empty:
            if reason := fault():
                raise WorkersLostError(reason) from None


def _answer(future: Answers) -> tuple[dict[str, Any], Exception | None]:
    """The figures, or why there are none, and the error with which they were lost."""
    try:
        figures = future.result()
    except Exception as error:
        return {ERROR_KEY: f"the worker failed: {type(error).__name__}: {error}"}, error
    theirs = figures.get("version", __version__)
    other = {ERROR_KEY: f"the worker has slurmsched {theirs}, here it is {__version__}"}
    return (figures if theirs == __version__ else other), None


def point_key(request: ReplayRequest, trace: Trace, digest: str) -> str:
    """32 hex digits that differ when anything differs that the figures depend on: version, trace, words, and what the
    files hold that they name. digest: of the trace. Raises ConfigError or InputError as those files do."""
    name, parameters = parse_policy(request.policy)
    parameters = {**parameters, **request.parameters}
    described = {
        "version": __version__, "trace": digest, "policy": name, "parameters": parameters,
        "cluster": repr(cluster_of(request.cluster, trace)), "history": read_history(request.history).tolist(),
        "model": request.model, "placement": request.placement, "backfill": request.backfill,
        "round_s": request.round_s, "restart_cost_s": request.restart_cost_s, "seed": request.seed,
        "requeue": request.requeue,
    }  # fmt: skip
    if request.topology or request.physics != RECORDED_PHYSICS:
        described |= {name: _with_files(getattr(request, name)) for name in ("physics", "topology")}
    if files := _files([parameters, parse_policy(request.placement, "placement")[1]]):
        described["files"] = files
    others = {"hints": request.hints, "settings": dict(request.settings), "preempt": request.preempt,
              "tiers": request.tiers, "age_cap_s": request.age_cap_s, "origin_s": request.origin_s,
              "moldable": request.moldable}  # fmt: skip
    described |= {name: value for name, value in others.items() if value != getattr(ReplayRequest(), name)}
    if request.past:
        described["past"] = [request.past, _digest(Path(request.past))]
    text = orjson.dumps(described, option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _with_files(text: str) -> list[str]:
    """The words of a setting, and a digest of each file among them."""
    words = [text, *map(str, parse_policy(text)[1].values())] if text else []
    return words + _files(words)


def _files(value: Any) -> list[str]:
    """A digest of each file that a value names, or one in a table or list."""
    if isinstance(value, str):
        return [_digest(Path(value))] if os.path.isfile(value) else []  # noqa: PTH113  # no error for a long text
    within = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [digest for each in within for digest in _files(each)]


def _digest(file: Path) -> str:
    """Of the content. Raises InputError where it cannot be read."""
    try:
        return hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(file)) from error


def read_traces(points: Iterable[GridPoint], read: Callable[[str], RecordedTrace]) -> dict[str, RecordedTrace]:
    """Each trace of the points once, by name. Raises InputError as `read` does, and for a trace without jobs."""
    found = {name: read(name) for name in dict.fromkeys(point.trace for point in points)}
    for name, recorded in found.items():
        if not len(recorded.trace):
            raise InputError("holds no job", source=name)
    return found


# A restart without the lost workers.

ATTEMPTS = 5
PAUSE_S = 2.0  # doubled after each attempt in a row that played nothing

Opened = Callable[[int], AbstractContextManager[SweepWorkers]]


def play_despite_losses(
    sweep: ParameterSweep, opened: Opened, on_done: Callable[[], None], tell: Callable[[str], None]
) -> None:
    """Play what is to do, with new workers whenever they are lost.

    opened: new workers, given how many processes of this machine they may be, 0 = any number: half as many after one of
    them was ended from outside, as it may have been for memory.
    tell: given a line before each new attempt. Raises WorkersLostError after ATTEMPTS in a row that finished no point,
    and what `opened` and Sweep.run raise besides; what was done stays.
    """
    idle, begun, most = 0, False, 0
    while sweep.todo:
        before = len(sweep.todo)
        try:
            _attempt(sweep, partial(opened, most), on_done, begun=begun)
        except WorkersLostError as error:
            sweep.todo = dict(reversed(sweep.todo.items()))  # one that ends its process is to come last
            idle, begun = 0 if len(sweep.todo) < before else idle + 1, True
            most = max(1, error.processes // 2) if error.processes else most
            _pause_or_raise(idle, len(sweep.todo), error, tell, most)


def _attempt(
    sweep: ParameterSweep,
    opened: Callable[[], AbstractContextManager[SweepWorkers]],
    on_done: Callable[[], None],
    *,
    begun: bool,
) -> None:
    """begun: there were workers before, so that it is no mistake of the user's when there are none now."""
    with ExitStack() as stack:
        try:
            workers = stack.enter_context(opened())
        except SlurmschedError as error:
            if not begun:
                raise
            raise WorkersLostError(str(error)) from error
        sweep.run(workers, on_done)


def _pause_or_raise(idle: int, missing: int, error: WorkersLostError, tell: Callable[[str], None], most: int) -> None:
    points = f"{missing} {'point is' if missing == 1 else 'points are'} missing"
    if idle >= ATTEMPTS:
        raise WorkersLostError(
            f"{error}; {points}, and {ATTEMPTS} attempts in a row finished none; "
            "the same command replays the missing points"
        ) from error
    to = f"{most} {'process' if most == 1 else 'processes'} at most" if most else "new workers"
    tell(f"workers lost: {error}; {points} and given out to {to}")
    time.sleep(PAUSE_S * 2**idle)
