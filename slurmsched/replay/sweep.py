"""Many replays: every point of a grid once, those that are on file left out, one's error no harm to the others."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import orjson

from slurmsched import __version__
from slurmsched.errors import InputError, SlurmschedError, WorkersLostError
from slurmsched.logs import configure
from slurmsched.replay.clusters import cluster_of
from slurmsched.replay.grid import Point
from slurmsched.replay.request import RECORDED, Request, history_of, parse_policy
from slurmsched.replay.results import KEY, Results, Row
from slurmsched.replay.run import Session
from slurmsched.replay.traces import Trace, trace_digest
from slurmsched.replay.workers import Workers

ERROR = "error"
LOOK_S = 2.0  # between two looks at the workers, while nothing is finished
Answers = Future[dict[str, Any]]


@dataclass(slots=True, eq=False)
class Sweep:
    """The points of a grid over their traces, and the file of what is done.

    todo: key -> points that are not on file. A point that is wrong is an entry of `failures`, no error.
    """

    points: Sequence[Point]
    traces: Mapping[str, Trace]
    results: Results
    todo: dict[str, list[Point]] = field(init=False, default_factory=dict)
    _keys: list[str] = field(init=False, default_factory=list)  # of each point
    _errors: dict[str, str] = field(init=False, default_factory=dict)  # by key, or by repr of a point without one

    def __post_init__(self) -> None:
        digests = {name: trace_digest(trace) for name, trace in self.traces.items()}
        for point in self.points:
            try:
                key = point_key(point.request, self.traces[point.trace], digests[point.trace])
            except SlurmschedError as error:
                key = repr(point)
                self._errors[key] = str(error)
            self._keys.append(key)
            if key not in self.results.rows and key not in self._errors:
                self.todo.setdefault(key, []).append(point)

    @property
    def rows(self) -> list[Row]:
        """What is on file of this grid, in the grid's order and words."""
        known = self.results.rows
        found = zip(self._keys, self.points, strict=True)
        return [{**known[key], **point.words} for key, point in found if key in known]

    @property
    def failures(self) -> list[tuple[Point, str]]:
        """Points that failed in this run, in the grid's order, and why."""
        found = zip(self._keys, self.points, strict=True)
        return [(point, self._errors[key]) for key, point in found if key in self._errors]

    def run(self, workers: Workers, on_done: Callable[[], None] = lambda: None) -> None:
        """Play what is to do, and keep each point when it is finished. on_done: told after each.

        Raises InputError when the file cannot be written, WorkersLostError when the workers are lost as a whole.
        KeyboardInterrupt goes through. What was done stays.
        """
        for left in reversed(range(workers.attempts)):
            self._round(workers, on_done, keep_lost=left == 0)
            if not self.todo:
                return
        raise WorkersLostError("the connection to the workers broke several times")

    def _round(self, workers: Workers, on_done: Callable[[], None], *, keep_lost: bool) -> None:
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
            told = f"a process was ended from outside (if memory is short, fewer --workers): {broken}"
            raise WorkersLostError(told, processes=workers.processes)

    def _given_out(self, workers: Workers) -> dict[Answers, str]:
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
        if ERROR in figures:
            self._errors[key] = figures[ERROR]
        else:
            self.results.add({KEY: key, **point.words, **figures})


def play(trace: Trace, request: Request) -> dict[str, Any]:
    """The figures of one replay, or its error as a text: exceptions of plug-ins may not travel between processes."""
    configure("warning")
    try:
        return Session(trace, request).run().figures
    except SlurmschedError as error:
        return {ERROR: str(error)}
    except Exception as error:
        return {ERROR: f"unexpected {type(error).__name__}: {error}"}


def _submitted(executor: Executor, trace: Any, request: Request) -> Answers:
    """What comes of a replay; the executor's own end, if it has ended: what it finished before is not lost."""
    try:
        return executor.submit(play, trace, request)
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
        return {ERROR: f"the worker failed: {type(error).__name__}: {error}"}, error
    theirs = figures.get("version", __version__)
    other = {ERROR: f"the worker has slurmsched {theirs}, here it is {__version__}"}
    return (figures if theirs == __version__ else other), None


def point_key(request: Request, trace: Trace, digest: str) -> str:
    """32 hex digits that differ when anything differs that the figures depend on: version, trace, words, and what the
    files hold that they name. digest: of the trace. Raises ConfigError or InputError as those files do."""
    name, parameters = parse_policy(request.policy)
    parameters = {**parameters, **request.parameters}
    told = {
        "version": __version__, "trace": digest, "policy": name, "parameters": parameters,
        "cluster": repr(cluster_of(request.cluster, trace)), "history": history_of(request.history).tolist(),
        "model": request.model, "placement": request.placement, "backfill": request.backfill,
        "round_s": request.round_s, "restart_cost_s": request.restart_cost_s, "seed": request.seed,
        "requeue": request.requeue,
    }  # fmt: skip
    if request.topology or request.physics != RECORDED:
        told |= {name: _with_files(getattr(request, name)) for name in ("physics", "topology")}
    if files := _files([parameters, parse_policy(request.placement, "placement")[1]]):
        told["files"] = files
    others = {"hints": request.hints, "settings": dict(request.settings), "preempt": request.preempt}
    told |= {name: value for name, value in others.items() if value != getattr(Request(), name)}
    if request.past:
        told["past"] = [request.past, _digest(Path(request.past))]
    text = orjson.dumps(told, option=orjson.OPT_SORT_KEYS, default=str)
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


def read_traces(points: Iterable[Point], read: Callable[[str], Trace]) -> dict[str, Trace]:
    """Each trace of the points once, by name. Raises InputError as `read` does, and for a trace without jobs."""
    found = {name: read(name) for name in dict.fromkeys(point.trace for point in points)}
    for name, trace in found.items():
        if not len(trace):
            raise InputError("holds no job", source=name)
    return found
