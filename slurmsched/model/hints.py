"""What users tell about their jobs in `sbatch --comment`: one grammar, one table of keys.

docs/hints.md and `slurmsched hints check` come from KEYS, so nothing else lists them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from slurmsched.model import hint_values as values
from slurmsched.model.columns import Floats, Int64s
from slurmsched.model.durations import FORMS, duration_s, duration_text
from slurmsched.model.hint_values import TOPOLOGIES, Checkpoint, Deadline
from slurmsched.model.jobs import Jobs
from slurmsched.plain_text import pluralize

MARK = "slurmsched:"
MOST_BYTES = 1_024  # of a comment, as Slurm takes it from sbatch
MOST_FAULTS = 3  # told of one comment
MOST_CHARACTERS = 300  # of one text
LONGEST_NAME = 20  # characters of a word for which a near key is looked for
TOO_LONG = f"a comment of more than {MOST_BYTES:,} bytes is left alone: no hint in it counts"


@dataclass(frozen=True, slots=True)
class Hints:
    """The hints of one comment. None: not given, or not understood (then `warnings` says so)."""

    preempt: bool | None = None
    ckpt: Checkpoint | None = None
    restart_s: float | None = None
    dur_s: float | None = None
    deadline: Deadline | None = None
    progress: float | None = None  # share done, 0 to 1
    loss: float | None = None  # share of the last step in all that the loss fell, 0 to 1
    topo: str | None = None
    share: bool | None = None
    gpu_part: float | None = None  # of one GPU, above 0 and below 1
    min_gpus: int | None = None
    max_gpus: int | None = None
    min_cpus: int | None = None
    max_cpus: int | None = None
    min_mem: int | None = None  # GiB on its node
    gpu_mem: int | None = None  # GiB of each GPU
    shrink: bool | None = None
    moldable: bool | None = None
    save: str | None = None
    mixed: bool | None = None
    model: str | None = None
    batch: int | None = None
    batches: tuple[int, ...] | None = None
    throughput: float | None = None  # samples/s
    noise: float | None = None  # gradient noise scale [samples]
    metric: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the grammar. parse: value text -> value; raises ValueError saying what is wrong."""

    name: str
    field: str  # of Hints
    form: str
    parse: Callable[[str], Any]
    meaning: str
    example: str


KEYS: tuple[Key, ...] = (
    Key("preempt", "preempt", "`yes` or `no`", values.yes_no,
        "The job may be stopped and requeued to let others run; it goes on from its last checkpoint.", "preempt=yes"),
    Key("ckpt", "ckpt", "`SIGNAL@SECONDS`", values.checkpoint,
        "Before the job is stopped it gets this signal and so much time to save itself. Names with or without SIG, "
        "or numbers.", "ckpt=USR1@120"),
    Key("restart", "restart_s", "duration", duration_s,
        "What a restart costs: from the start of the job until it is again where its checkpoint was.", "restart=90s"),
    Key("dur", "dur_s", "duration", duration_s,
        "Expected run time of the whole job at the GPUs it asks for, without waiting. Not a limit.", "dur=2h"),
    Key("deadline", "deadline", "ISO time or `+` duration", values.deadline,
        "When the job must have ended: a time as 2027-01-31T12:00 (local to the cluster unless a zone follows: Z or "
        "+01:00), or so long after submission.", "deadline=+12h"),
    Key("progress", "progress", "`DONE/TOTAL`", values.progress,
        "How far the job is, in any unit: steps, epochs, samples. A job may tell it while it runs "
        "(`slurmsched-job report progress=30/90`).", "progress=30/90"),
    Key("loss", "loss", "`FIRST:BEFORE:NOW`", values.losses,
        "Loss of the first step, of the step before and of now, each at least 0 (0.8, 9.9e-05). Update it with "
        "`progress`. A job whose loss still falls much has more to learn.", "loss=2.3:0.9:0.8"),
    Key("topo", "topo", ", ".join(f"`{name}`" for name in TOPOLOGIES), values.topology,
        "The widest cell its GPUs may span: one NVLink island, one NUMA node, one network switch, or anything.",
        "topo=nvlink"),
    Key("share", "share", "`yes` or `no`", values.yes_no,
        "The job may share its GPUs with another one.", "share=no"),
    Key("gpu_part", "gpu_part", "number above 0 and below 1", values.part,
        "With `share=yes`, of a job of one GPU: the part of the GPU that it needs. Count its memory and its computing, "
        "and give the larger part.", "gpu_part=0.25"),
    Key("min_gpus", "min_gpus", "whole number", values.count,
        "Fewest GPUs an elastic job can run on.", "min_gpus=2"),
    Key("max_gpus", "max_gpus", "whole number", values.count,
        "Most GPUs an elastic job can make use of.", "max_gpus=16"),
    Key("moldable", "moldable", "`yes` or `no`", values.yes_no,
        "With `min_gpus`, `max_gpus` and `dur`: the job may start with fewer GPUs where its own number is not free "
        "soon.", "moldable=yes"),
    Key("shrink", "shrink", "`yes` or `no`", values.yes_no,
        "While it runs on several nodes the job may lose some of them; it goes on with the others, with at least "
        "`min_gpus`.", "shrink=yes"),
    Key("save", "save", "signal", values.save_signal,
        "At this signal the running job saves itself and goes on, when a checkpoint is wanted of it.", "save=USR1"),
    Key("min_cpus", "min_cpus", "whole number", values.count,
        "Fewest CPUs that a job of one node and one task can run with.", "min_cpus=4"),
    Key("max_cpus", "max_cpus", "whole number", values.count,
        "Most CPUs that a job of one node and one task can make use of.", "max_cpus=24"),
    Key("min_mem", "min_mem", "`32` or `32G`", values.gibibytes,
        "Least memory that a job of one node can run with, in GiB. Not of its GPUs.", "min_mem=32"),
    Key("gpu_mem", "gpu_mem", "`10` or `10G`", values.gibibytes,
        "Memory of each of its GPUs that it needs, in GiB. Jobs that share a GPU must fit into it.", "gpu_mem=10"),
    Key("mixed", "mixed", "`yes` or `no`", values.yes_no,
        "The job may have GPUs of several types at once: it shares out its batch by how fast they are.", "mixed=yes"),
    Key("model", "model", "name", values.name,
        "What is trained: jobs of one model are taken to speed up and to share alike.", "model=resnet50"),
    Key("batch", "batch", "whole number", values.count,
        "Global batch size, for estimators of throughput.", "batch=512"),
    Key("batches", "batches", "whole numbers between colons", values.counts,
        "Batch sizes that the job may change to while it runs; `batch` is the one it has now.", "batches=32:64:128"),
    Key("throughput", "throughput", "number", values.number,
        "Samples that the job trains in a second, as it measured last.", "throughput=512.5"),
    Key("noise", "noise", "number", values.number,
        "Gradient noise scale, as measured last: the batch size [samples] beyond which a larger one gains little.",
        "noise=1800"),
    Key("metric", "metric", "number", values.number,
        "A figure by which the user judges the job, such as its accuracy; for people to see.", "metric=0.76"),
)  # fmt: skip

_BY_NAME = {key.name: key for key in KEYS}
REPORTED = ("progress", "loss", "batch", "throughput", "noise", "metric")  # what a running job may tell
_MARK = re.compile(rf"(?<![\w-]){MARK}", re.IGNORECASE | re.ASCII)
_WORD = re.compile(r"\s*([A-Za-z][\w-]*)=(\S*)", re.ASCII)
_NONE, _LONG = Hints(), Hints(warnings=(TOO_LONG,))


def parse_hints(comment: str) -> Hints:
    """The hints of a comment. Never raises: what is not understood is ignored and told in `warnings`.

    Hints are key=value words after "slurmsched:", up to the first word of another form. All other text is the user's
    own. Of a repeated key the last counts, as with sbatch's own options. Of many faults MOST_FAULTS are told and the
    rest counted. A comment longer than MOST_BYTES has no hints.
    """
    if MARK not in comment.lower():
        return _NONE
    return _LONG if _too_long(comment) else _parse(comment)


@lru_cache(maxsize=131_072)
def _parse(comment: str) -> Hints:
    given: dict[str, Any] = {}
    faults = _Faults()
    for name, value in _words(comment, faults):
        key = _BY_NAME.get(name)
        if key is None:
            faults.add("" if faults.full else f"unknown hint {_shown(name)}{_nearest(name)}")
            continue
        if key.field in given:
            faults.add(f"{name} is given more than once; the last one counts")
        try:
            given[key.field] = key.parse(value)
        except (ValueError, OverflowError, OSError) as error:
            faults.add(f"{name}={_shown(value)} {error}; for example {key.example}")
    low, high = given.get("min_gpus"), given.get("max_gpus")
    if low is not None and high is not None and low > high:
        faults.add(f"min_gpus={low} is more than max_gpus={high}; both are ignored")
        del given["min_gpus"], given["max_gpus"]
    return Hints(**given, warnings=faults.texts())


class _Faults:
    """What is wrong with one comment: MOST_FAULTS texts, and how many more there are."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._more = 0

    @property
    def full(self) -> bool:
        """Whether the next one is counted only."""
        return len(self._texts) == MOST_FAULTS

    def add(self, text: str) -> None:
        if self.full:
            self._more += 1
        else:
            self._texts.append(shortened(text))

    def texts(self) -> tuple[str, ...]:
        return (*self._texts, pluralize(self._more, "more fault")) if self._more else tuple(self._texts)


def shortened(text: str) -> str:
    """The text, cut to MOST_CHARACTERS."""
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 3] + "..."


def _too_long(comment: str) -> bool:
    return len(comment) > MOST_BYTES or len(comment.encode("utf-8", "surrogatepass")) > MOST_BYTES


def _words(comment: str, faults: _Faults | None = None) -> Iterator[tuple[str, str]]:
    at = 0
    if _too_long(comment):
        return
    while mark := _MARK.search(comment, at):
        at = mark.end()
        if faults and not _WORD.match(comment, at):
            faults.add(f"no key=value follows {MARK}")
        while word := _WORD.match(comment, at):
            at = word.end()
            yield word[1].lower().replace("-", "_"), word[2].rstrip(",;")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, _BY_NAME, n=1) if len(name) <= LONGEST_NAME else ()
    return f" (did you mean {near[0]}?)" if near else f"; known are {', '.join(_BY_NAME)}"


def understood(hints: Hints) -> tuple[tuple[Key, Any], ...]:
    """The keys a comment gave and the values understood, in the order of KEYS."""
    return tuple((key, value) for key in KEYS if (value := getattr(hints, key.field)) is not None)


def value_text(key: Key, value: Any) -> str:
    """A value as it is understood: "yes", "1h30m", "32:64"."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ":".join(map(str, value))
    if isinstance(value, float):
        return duration_text(value) if key.field.endswith("_s") else f"{value:g}"
    return str(value)


def written(comment: str) -> tuple[str, ...]:
    """The hints that are understood in the comment's own words, of a key given twice the last: "dur=90m"."""
    kept = {key.name for key, _ in understood(parse_hints(comment))}
    last = {name: value for name, value in _words(comment) if name in kept and _reads(name, value)}
    return tuple(f"{name}={value}" for name, value in last.items())


def hints_alone(comment: str) -> str:
    """A comment of the hints that are understood, as written, and nothing else of this one; "" if there are none."""
    words = [f"{name}={value}" for name, value in _words(comment) if _reads(name, value)]
    return f"{MARK} {' '.join(words)}" if words else ""


def reported_hints(text: str) -> tuple[str, ...]:
    """The words of a job's report that are understood, in the order of REPORTED: "progress=30/90". Of a key given twice
    the last counts. Other keys are for the comment alone, so that a report cannot ask for anything."""
    last = {name: value for name, value in _words(f"{MARK} {text}") if name in REPORTED and _reads(name, value)}
    return tuple(f"{name}={last[name]}" for name in REPORTED if name in last)


def with_reported_hints(comment: str, words: Sequence[str]) -> str:
    """A comment of the hints of this one, and of these words in place of its own of the same keys. Its other text is
    left out: no policy reads it."""
    given = {word.partition("=")[0] for word in words}
    own = [f"{name}={value}" for name, value in _words(comment) if name not in given]
    made = f"{MARK} {' '.join((*own, *words))}"
    return comment if not words or _too_long(made) else made


def _reads(name: str, value: str) -> bool:
    """Whether there is such a key, and its value is understood."""
    try:
        return name in _BY_NAME and _BY_NAME[name].parse(value) is not None
    except (ValueError, OverflowError, OSError):
        return False


def hint_column(jobs: Jobs, field: str) -> Floats:
    """A number or yes/no of Hints by job, e.g. "dur_s". (N,) float64, yes 1 and no 0, NaN where not given.

    Raises ValueError for a field that holds no number.
    """

    def number(comment: str) -> float:
        value = getattr(parse_hints(comment), field)
        if not isinstance(value, int | float | None):
            raise ValueError(f"hint {field} is no number")
        return np.nan if value is None else float(value)

    return jobs.comment.map(number, np.float64)


def loss_columns(jobs: Jobs) -> Floats:
    """Loss of the first step, of the step before and of now, by the hint `loss`. (N, 3), NaN where not given."""
    named = np.array([_losses(name) for name in jobs.comment.names]).reshape(-1, 3)
    return np.asarray(named[jobs.comment.codes])


@lru_cache(maxsize=131_072)
def _losses(comment: str) -> tuple[float, float, float]:
    if MARK not in comment.lower() or parse_hints(comment).loss is None:
        return (np.nan,) * 3
    return values.loss_steps([value for name, value in _words(comment) if name == "loss" and _reads(name, value)][-1])


def hint_warnings(jobs: Jobs, *, most: int = 20) -> tuple[str, ...]:
    """What is wrong with the hints of these jobs, as text: each fault once, at most `most` and a count of the rest.

    Each names the first job that has it, and how many others do. Jobs that ended are past advice.
    """
    faults: dict[str, list[int]] = {}
    for code, name in enumerate(jobs.comment.names):
        if MARK in name.lower() and (found := parse_hints(name).warnings):  # few among 100,000 comments
            faults.setdefault(shortened("; ".join(found)), []).append(code)
    stay = ~jobs.finished if faults else np.zeros(len(jobs), np.bool_)
    having = {fault: np.flatnonzero(stay & np.isin(jobs.comment.codes, codes)) for fault, codes in faults.items()}
    having = {fault: rows for fault, rows in having.items() if len(rows)}
    texts = [f"{_first_of(jobs, rows)}: {fault}" for fault, rows in list(having.items())[:most]]
    rest = len(having) - len(texts)
    return (*texts, f"{pluralize(rest, 'more fault')} in hints of other jobs") if rest else tuple(texts)


def _first_of(jobs: Jobs, rows: Int64s) -> str:
    """The first job of these rows, and how many more there are."""
    more = f" and {len(rows) - 1:,} more" if len(rows) > 1 else ""
    return f"job {jobs.job_id[rows[0]]}{more}"


# Over 30 lines: the text of a page.
def reference() -> str:
    """The page docs/hints.md, from the table of keys."""
    rows = "\n".join(f"| `{key.name}` | {key.form} | {key.meaning} | `{key.example}` |" for key in KEYS)
    return f"""# Hints

With this page you can:

- describe your job to slurmsched, in its comment;
- check a comment before you use it;
- look up each hint.

Slurm has no fields for this, so hints are part of the comment:

```
sbatch --gpus=4 --comment="run 17 slurmsched: dur=2h preempt=yes ckpt=USR1@120" train.sh
```

`slurmsched hints check 'TEXT'` shows how a comment is understood. For `slurmsched: dur=2h deadline=soon` it prints

    hint  value  meaning
    dur   2h     Expected run time of the whole job at the GPUs it asks for, without waiting. Not a limit.
    warning: deadline='soon' is neither an ISO time nor +DURATION; for example deadline=+12h

Rules:

- Hints follow `{MARK}`. They are `key=value` words with blanks between them.
- They end with the text, or at the first word of another form. slurmsched ignores everything else in the comment.
- If a key is given twice, the last one counts.
- A comment of more than {MOST_BYTES:,} bytes has no hints. `sbatch` accepts no longer comment.
- Hints help the job that gives them. An unknown or wrong hint is ignored. The job is never rejected for it.
- `slurmsched plan` reports unknown and wrong hints, at most three of one comment.

| key | value | meaning | example |
| --- | --- | --- | --- |
{rows}

**Durations** are {FORMS}.
The last form is MM:SS, as in `sbatch --time`. A bare number is refused, since Slurm reads minutes where most people
mean seconds. Only the seconds of `ckpt` may be a bare number.

**While it runs** a job can report `progress`, `loss`, `batch`, `throughput`, `noise` and `metric` by
[slurmsched-job](talking-jobs.md). The last reported value replaces the one in the comment.

**Which hints matter** depends on the policy and the estimator in use. Their pages list what they read. The estimator
`hint` reads `dur`; the policies `sjf`, `srtf` and `srsf` use this estimator by default.

This page is written from the grammar: `python -m slurmsched.model.hints > docs/hints.md`.
"""


if __name__ == "__main__":
    print(reference(), end="")
