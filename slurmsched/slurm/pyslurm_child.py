"""Loads the jobs in a process of its own: `python -m slurmsched.slurm.pyslurm_child HEADER`.

pyslurm loads and sets up Slurm's client library. pyslurm's own Jobs.load() makes an object of each job, which takes
longer than squeue. So this process calls slurm_load_jobs itself and reads the array of structs column by column.
HEADER is Slurm's slurm.h, which has the layout of the struct. pyslurm's own values of a few jobs confirm it.

Slurm's client library ends its process on a bad slurm.conf, and may crash if it is older than the cluster. So no other
module imports pyslurm. Each line on standard input asks for one load. Each answer is eight bytes with its length, then
a pickle of (kind, value). The kind is "columns" or "error".
"""

from __future__ import annotations

import ctypes
import os
import pickle
import pwd
import re
import struct
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_STRUCT = re.compile(r"\bstruct\s*(\w*)\s*\{([^{}]*)\}\s*(\w*)\s*;")
_TYPEDEF = re.compile(r"\btypedef\s+(?:struct\s+)?(\w+)\s+(\w+)\s*;")
_FIELD = re.compile(r"\s*(?:const\s+)?(?:struct\s+|enum\s+)?(\w+)\s*(\**)\s*(\w+)\s*")
_NUMBERS: dict[str, type] = {
    "bool": ctypes.c_bool, "int8_t": ctypes.c_int8, "int16_t": ctypes.c_int16, "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64, "uint8_t": ctypes.c_uint8, "uint16_t": ctypes.c_uint16, "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64, "int": ctypes.c_int, "time_t": ctypes.c_long, "double": ctypes.c_double,
}  # fmt: skip


class HeaderStructs:
    """The structs that a header declares.

    text: the header. Pointers are read as addresses (c_void_p).
    """

    def __init__(self, text: str) -> None:
        self._text = _COMMENT.sub("", text)
        self._bodies: dict[str, str] = {}
        for tag, body, name in _STRUCT.findall(self._text):
            self._bodies |= {known: body for known in (tag, name) if known}
        self._aliases = {alias: name for name, alias in _TYPEDEF.findall(self._text)}

    def read(self, name: str) -> type[ctypes.Structure]:
        """The struct with this tag or type name. Raises ValueError if a part of it cannot be read."""
        found = self._type(name)
        if not issubclass(found, ctypes.Structure):
            raise ValueError(f"{name} is not a struct")
        return found

    def bit(self, name: str) -> int:
        """The flag that is defined as SLURM_BIT(n). Raises ValueError if there is none."""
        found = re.search(rf"#define\s+{name}\s+SLURM_BIT\((\d+)\)", self._text)
        if found is None:
            raise ValueError(f"the header defines no flag {name}")
        return 1 << int(found[1])

    def _type(self, name: str) -> type:
        if name in _NUMBERS:
            return _NUMBERS[name]
        if name in self._bodies:
            fields = [self._field(text, name) for text in self._bodies[name].split(";") if text.strip()]
            return type(name, (ctypes.Structure,), {"_fields_": fields})
        if name in self._aliases:
            return self._type(self._aliases[name])
        raise ValueError(f"the header declares no {name}")

    def _field(self, text: str, struct: str) -> tuple[str, type]:
        found = _FIELD.fullmatch(text)
        if found is None:
            raise ValueError(f"{struct} has an unknown field: {' '.join(text.split())[:80]}")
        return found[3], ctypes.c_void_p if found[2] else self._type(found[1])


LENGTH = struct.Struct(">Q")
CHECKED = 10  # jobs whose values are compared with pyslurm's at the first load
ASKED = 50  # so many jobs pyslurm is asked for at most, since some may be gone
LOADS = 3  # a job may change between a load and pyslurm's look at it: then all is loaded again
SHOW_ALL, SHOW_LOCAL = 1 << 0, 1 << 4  # slurm.h: hidden partitions too; no other cluster of a federation
NICE_OFFSET = 0x8000_0000
NO_VAL16, NO_VAL, INFINITE = 0xFFFE, 0xFFFF_FFFE, 0xFFFF_FFFF
PENDING, SUSPENDED, BASE_STATE = 0, 2, 0xFF  # of job_state

_COUNTS = {
    "job_id": "job_id", "priority": "priority", "cpus": "num_cpus", "tasks": "num_tasks", "restarts": "restart_cnt",
    "array_job_id": "array_job_id", "het_job_id": "het_job_id", "het_offset": "het_job_offset",
}  # fmt: skip
_TIMES = {"submit_s": "submit_time", "eligible_s": "eligible_time", "start_s": "start_time", "end_s": "end_time"}
_TEXTS = {
    "account": "account", "partition": "partition", "qos": "qos", "name": "name", "comment": "comment",
    "reservation": "resv_name", "node_list": "nodes", "array_tasks": "array_task_str", "dependency": "dependency",
    "features_asked": "features", "nodes_asked": "req_nodes", "nodes_excluded": "exc_nodes",
    "tres_per_job": "tres_per_job", "tres_per_task": "tres_per_task", "tres_per_socket": "tres_per_socket",
    "tres_per_node": "tres_per_node",
}  # fmt: skip
_OTHERS = (
    "nice", "num_nodes", "sockets_per_node", "ntasks_per_node", "cpus_per_task", "requeue", "batch_flag", "bitflags",
    "suspend_time", "pre_sus_time", "time_limit", "user_id", "user_name", "job_state", "state_reason", "state_desc",
    "tres_alloc_str", "tres_req_str",
)  # fmt: skip
# What pyslurm says of a job, and the field of the struct.
_SAME_NUMBERS = {"user_id": "user_id", "submit_time": "submit_time", "cpus": "num_cpus", "state": "job_state"}
_SAME_TEXTS = {name: name for name in ("name", "account", "partition", "qos", "comment")}

CodedTexts = tuple[Any, list[str]]  # (N,) int32 code of each row, and the text of each code


class JobLoader:
    """Loads all jobs as columns.

    library: Slurm's client library.
    header: the text of its slurm.h.
    load_one: gives pyslurm's object of a job id, to confirm the layout at the first load that has jobs.
    Raises ValueError if the header cannot be read or lacks a field, AttributeError if the library lacks a function.
    """

    def __init__(self, library: Any, header: str, load_one: Callable[[int], Any]) -> None:
        structs = HeaderStructs(header)
        self._library, self._load_one, self._confirmed = library, load_one, False
        self._user_names: dict[int, str] = {}
        self._job, self._message = structs.read("slurm_job_info_t"), structs.read("job_info_msg_t")
        self._cron = structs.bit("CRON_JOB")
        self._state_word, self._reason_word = library.slurm_job_state_string, library.slurm_job_state_reason_string
        for words in (self._state_word, self._reason_word):
            words.argtypes, words.restype = (ctypes.c_uint32,), ctypes.c_char_p
        library.slurm_load_jobs.argtypes = (ctypes.c_long, ctypes.c_void_p, ctypes.c_uint16)
        library.slurm_free_job_info_msg.argtypes = (ctypes.c_void_p,)
        self._record = np.dtype(self._job)
        if lacking := {*_COUNTS.values(), *_TIMES.values(), *_TEXTS.values(), *_OTHERS} - set(self._record.names or ()):
            raise ValueError(f"a job of this slurm.h has no {', '.join(sorted(lacking))}")

    def load(self) -> dict[str, Any]:
        """All jobs as columns: int64 and float64 arrays (unset times are NaN) and coded texts.

        Raises OSError if slurmctld does not answer, ValueError if the layout is not that of the library.
        """
        fault = ""
        for _ in range(LOADS):
            columns, fault = self._load_once()
            if columns is not None:
                return columns
        raise ValueError(f"slurm.h is not of this library: {fault}")

    def _load_once(self) -> tuple[dict[str, Any] | None, str]:
        """All jobs as columns; None, and why, if the layout is not confirmed. Raises OSError."""
        message = ctypes.c_void_p()
        if self._library.slurm_load_jobs(0, ctypes.byref(message), SHOW_ALL | SHOW_LOCAL):
            raise OSError("slurm_load_jobs failed; is slurmctld up?")
        try:
            found: Any = self._message.from_address(message.value or 0)
            records = np.zeros(0, self._record)
            if found.record_count:
                array = (self._job * found.record_count).from_address(found.job_array)
                records = np.ndarray(found.record_count, self._record, array)
            if len(records) and not self._confirmed and (fault := self._fault(records)):
                return None, fault
            return self._columns(records), ""
        finally:
            self._library.slurm_free_job_info_msg(message)

    def _columns(self, records: Any) -> dict[str, Any]:
        columns: dict[str, Any] = {name: _counts(records[field]) for name, field in _COUNTS.items()}
        columns |= {name: _times(records[field]) for name, field in _TIMES.items()}
        columns |= {name: coded_texts(records[field]) for name, field in _TEXTS.items()}
        limit = records["time_limit"].astype(np.float64) * 60.0
        limit[records["time_limit"] == INFINITE] = np.inf
        limit[records["time_limit"] == NO_VAL] = np.nan
        tres = np.where(records["tres_alloc_str"] != 0, records["tres_alloc_str"], records["tres_req_str"])
        return columns | {
            "nice": np.where(records["nice"] == NO_VAL, 0, records["nice"].astype(np.int64) - NICE_OFFSET),
            "nodes": _nodes(records),
            "sockets": _counts(records["sockets_per_node"], NO_VAL16),
            "requeueable": (records["requeue"] == 1).astype(np.int64),
            "batch": (records["batch_flag"] != 0).astype(np.int64),
            "cron": ((records["bitflags"] & np.uint64(self._cron)) != 0).astype(np.int64),
            "time_limit_s": limit,
            "run_s": run_times(records, int(time.time())),
            "tres_alloc": coded_texts(tres),
            "user": self._users(records),
            "state": _coded_numbers(records["job_state"], self._state),
            "reason": _first(coded_texts(records["state_desc"]), _coded_numbers(records["state_reason"], self._reason)),
        }

    def _users(self, records: Any) -> CodedTexts:
        """User names; only those that Slurm did not send are looked up."""
        named = coded_texts(records["user_name"])
        unnamed = np.array([not text for text in named[1]], np.bool_)[named[0]]
        codes, texts = _coded_numbers(records["user_id"][unnamed], self._user_name)
        users = named[0].astype(np.int32)
        users[unnamed] = codes + len(named[1])
        return users, [*named[1], *texts]

    def _state(self, code: int) -> str:
        return str((self._state_word(code) or b"").decode())

    def _reason(self, code: int) -> str:
        return str((self._reason_word(code) or b"").decode())

    def _fault(self, records: Any) -> str:
        """Why the layout is not that of the library, as far as pyslurm's values of a few jobs show; "" if they agree.

        The first record says nothing of the struct's length, so the layout stays unconfirmed while it is the only one.
        """
        ids, compared, last = records["job_id"], set[int](), len(records) - 1
        for row in (last, *range(0, last, max(last // ASKED, 1))):
            if len(compared) >= CHECKED:
                break
            try:
                job = self._load_one(int(ids[row]))
                shown = {name: getattr(job, name) for name in ("id", *_SAME_NUMBERS, *_SAME_TEXTS)}
            except Exception:  # it ended meanwhile, there is no such job, or pyslurm cannot decode its text
                continue
            for at in np.flatnonzero(ids == shown["id"]).tolist():  # of an array pyslurm may show another task
                if differing := self._differing(records[at], shown):
                    return f"job {shown['id']} has another {', '.join(differing)}"
                compared.add(at)
        if not compared or (last and compared == {0}):
            return "pyslurm finds none of the jobs"
        self._confirmed = last > 0
        return ""

    def _differing(self, record: Any, shown: Mapping[str, Any]) -> list[str]:
        """What pyslurm shows otherwise. Texts are read only where all numbers agree: otherwise no address is sure."""
        differing = [name for name, field in _SAME_NUMBERS.items() if self._number(record, field) != shown[name]]
        return differing or [name for name, field in _SAME_TEXTS.items() if not _same(record[field], shown[name])]

    def _number(self, record: Any, field: str) -> Any:
        return self._state(int(record[field])) if field == "job_state" else int(record[field])

    def _user_name(self, uid: int) -> str:
        """Asked once for each user, since a directory may be slow; again while the user is unknown."""
        if uid not in self._user_names:
            try:
                self._user_names[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:
                return str(uid)
        return self._user_names[uid]


def _same(address: Any, shown: str | None) -> bool:
    """Whether the C string at this address is the text that pyslurm shows.

    pyslurm shows None for no text, an empty text and the text "None". Texts beyond ASCII are not compared.
    """
    raw = ctypes.string_at(int(address)) if address else b""
    return not raw.isascii() or raw.decode().replace("None", "") == (shown or "").replace("None", "")


def _counts(values: Any, unset: int = NO_VAL) -> Any:
    """int64; 0 where Slurm has no value."""
    return np.where(values >= unset, 0, values).astype(np.int64)


def _times(values: Any) -> Any:
    """Unix seconds; NaN where Slurm has no value."""
    return np.where((values <= 0) | (values >= NO_VAL), np.nan, values.astype(np.float64))


def _nodes(records: Any) -> Any:
    """The number of nodes that squeue shows. A pending job on one node may need more for its tasks a node."""
    nodes, cpus = _counts(records["num_nodes"]), _counts(records["num_cpus"])
    per_node, per_task = _counts(records["ntasks_per_node"], NO_VAL16), _counts(records["cpus_per_task"], NO_VAL16)
    waits = (records["job_state"] & BASE_STATE) == PENDING
    rows = np.flatnonzero(waits & (nodes == 1) & (cpus > 1) & (per_node > 0))
    tasks = cpus[rows] // np.maximum(per_task[rows], 1)
    nodes[rows] = np.clip((tasks + 1) // per_node[rows], 1, np.maximum(tasks, 1))
    return nodes


def run_times(records: Any, now_s: int) -> Any:
    """Seconds that each job has run, without the time that it was suspended; 0 before its start. (N,) float64."""
    base, ended = records["job_state"] & BASE_STATE, records["end_time"]
    over = (base > SUSPENDED) & (ended > 0)
    until = np.where(over, ended, now_s)
    resumed = records["suspend_time"]
    ran = np.where(resumed > 0, until - resumed + records["pre_sus_time"], until - records["start_time"])
    ran = np.where(base == SUSPENDED, records["pre_sus_time"], ran)
    return np.where((base == PENDING) | (records["start_time"] <= 0), 0, np.maximum(ran, 0)).astype(np.float64)


def coded_texts(addresses: Any) -> CodedTexts:
    """The C strings at these addresses; "" for none. Each distinct text is decoded once."""
    addresses = np.ascontiguousarray(addresses)
    if not addresses.any():
        return np.zeros(len(addresses), np.int32), [""]
    texts = (ctypes.c_char_p * len(addresses)).from_buffer(addresses)[:]
    return _coded(texts, lambda text: "" if text is None else text.decode("utf-8", "replace"))


def _coded(values: Iterable[Any], word: Callable[[Any], str]) -> CodedTexts:
    values = list(values)
    code = {value: i for i, value in enumerate(dict.fromkeys(values))}
    return np.fromiter(map(code.__getitem__, values), np.int32, len(values)), [word(value) for value in code]


def _coded_numbers(values: Any, word: Callable[[int], str]) -> CodedTexts:
    distinct, codes = np.unique(values, return_inverse=True)
    return codes.astype(np.int32), [word(int(value)) for value in distinct]


def _first(one: CodedTexts, other: CodedTexts) -> CodedTexts:
    """The first texts, or the other ones where the first are empty."""
    empty = np.array([not text for text in one[1]], np.bool_)
    return np.where(empty[one[0]], other[0] + len(one[1]), one[0]).astype(np.int32), [*one[1], *other[1]]


def answer(load: Callable[[], Mapping[str, Any]]) -> tuple[str, Any]:
    """The answer to one request."""
    try:
        return "columns", load()
    except Exception as error:  # the parent falls back to Slurm's commands
        return "error", f"{type(error).__name__}: {error}"


def send(pipe: BinaryIO, message: tuple[str, Any]) -> None:
    """Write one answer."""
    body = pickle.dumps(message, protocol=5)
    pipe.write(LENGTH.pack(len(body)))
    pipe.write(body)
    pipe.flush()


def main() -> None:
    """Answer requests until standard input ends."""
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the library may print, which must not mix with the answers
    try:
        import pyslurm

        library = ctypes.CDLL(None)  # of this whole process: pyslurm has loaded Slurm's library
        loader = JobLoader(library, Path(sys.argv[1]).read_text("utf-8", "replace"), pyslurm.Job.load)
        send(pipe, ("hello", str(pyslurm.__version__)))
    except Exception as error:
        send(pipe, ("error", f"{type(error).__name__}: {error}"))
        return
    for _ in sys.stdin:
        send(pipe, answer(loader.load))


if __name__ == "__main__":
    main()
