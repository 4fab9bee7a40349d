"""Reading traces, and the time limits made up for them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from slurmsched.errors import InputError
from slurmsched.model import Labels
from slurmsched.model.trace import COMMON_LIMITS_S, Trace, trace_digest
from slurmsched.sim.traces.trace_io import read_trace, sample_trace, shipped_trace

HEAD = "job_id,num_gpus,submit_s,duration_s\n"


def test_read__sorts_by_submit_then_id(tmp_path: Path) -> None:
    """Whatever the order of the file; limits are the run times unless a column gives them."""
    path = tmp_path / "t.csv"
    path.write_text(HEAD + "3,1,5,10\n2,4,0,20\n1,2,5,30\n")
    trace = read_trace(path)
    assert (trace.job_id.tolist(), trace.gpus.tolist(), trace.time_limit_s.tolist()) == (
        [2, 1, 3],
        [4, 2, 1],
        [20, 30, 10],
    )


def test_read__takes_limits_and_gzip(tmp_path: Path) -> None:
    """A time_limit_s column is used as it stands."""
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"job_id,num_gpus,submit_s,duration_s,time_limit_s\n1,1,0,10,60\n"))
    assert read_trace(path).time_limit_s.tolist() == [60]


def test_read__takes_quoted_names_and_blanks_around_them(tmp_path: Path) -> None:
    """As other programs write CSV."""
    path = tmp_path / "t.csv"
    path.write_text('"job_id", num_gpus ,"submit_s",duration_s\n"1", 2 ,0,10\n')
    assert read_trace(path).gpus.tolist() == [2]


@pytest.mark.parametrize("mark", [";", "\t"])
def test_read__takes_other_delimiters(tmp_path: Path, mark: str) -> None:
    """As spreadsheets write."""
    path = tmp_path / "t.csv"
    path.write_text((HEAD + "1,2,0,10\n").replace(",", mark))
    assert read_trace(path).gpus.tolist() == [2]


def test_read__a_job_may_run_0_s(tmp_path: Path) -> None:
    """Who waited for it tells something; with no time limit of its own, that is 0 s too."""
    path = tmp_path / "t.csv"
    path.write_text(HEAD + "1,1,0,0\n")
    trace = read_trace(path)
    assert (trace.duration_s.tolist(), trace.limit_known.tolist()) == ([0.0], [False])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("job_id,num_gpus,submit_s\n1,1,0\n", "1: has no column duration_s"),
        (HEAD + "1,1,0,10\n2,x,0,10\n", "3: num_gpus is 'x', not a number"),
        (HEAD + "1,1,0\n", "2: duration_s is missing"),
        (HEAD + "1,0,0,10\n", "2: a job cannot have 0 GPUs"),
        (HEAD + "1,1,0,nan\n", "2: a run time cannot be nan s"),
        (HEAD + "1,1,0,-1\n", "2: a run time cannot be -1 s"),
        (HEAD.strip() + ",time_limit_s\n1,1,0,10,0\n", "2: a time limit cannot be 0 s"),
        (HEAD + "1,1,0,10\n1,1,0,10\n", "job id 1 is used twice"),
    ],
)
def test_read__says_what_is_wrong_and_where(tmp_path: Path, text: str, said: str) -> None:
    """File, line where there is one, and what a trace must hold."""
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_trace(path)


def test_read__refuses_a_missing_file(tmp_path: Path) -> None:
    """The file is named."""
    with pytest.raises(InputError, match=r"gone\.csv: cannot be read"):
        read_trace(tmp_path / "gone.csv")


def test_user_limits__are_common_values_above_the_run_time() -> None:
    """Between 1 and 4 times the run time, then up to the next common limit; the same seed gives the same."""
    trace = Trace.of(range(50), [1] * 50, [0] * 50, [100 * (row + 1) for row in range(50)]).with_user_limits(3)
    assert set(trace.time_limit_s) <= set(COMMON_LIMITS_S)
    assert (trace.time_limit_s >= trace.duration_s).all()
    assert trace.time_limit_s.tolist() == trace.with_user_limits(3).time_limit_s.tolist()
    assert trace.time_limit_s.tolist() != trace.with_user_limits(4).time_limit_s.tolist()


def test_user_limits__of_a_run_longer_than_all_are_the_run_time() -> None:
    """Nothing is ever cut by a made-up limit."""
    assert Trace.of([1], [1], [0], [1e8]).with_user_limits().time_limit_s.tolist() == [1e8]


def test_sample__is_the_shipped_slice() -> None:
    """922 jobs of 1 to 16 GPUs over two weeks; a prefix is the jobs submitted first, limits unchanged."""
    trace = sample_trace()
    assert (len(trace), int(trace.gpus.min()), int(trace.gpus.max())) == (922, 1, 16)
    assert trace.submit_s.max() < 14 * 86_400
    assert trace.first(10).time_limit_s.tolist() == trace.time_limit_s[:10].tolist()


def test_digest__differs_by_any_column() -> None:
    """Of two traces that differ in users and models alone, and of a bare one by each word that figures depend on."""
    users, plain = shipped_trace("gavel_96_users"), shipped_trace("gavel_96_v100")
    assert trace_digest(users) != trace_digest(plain) == trace_digest(plain.with_columns(user=plain.user))
    bare = {"job_id": [1, 2], "gpus": [1, 1], "submit_s": [0.0, 1.0], "duration_s": [5.0, 5.0]}
    texts = ("user", "account", "partition", "qos", "name", "model", "gpu_type", "state", "comment")
    more = {name: Labels.of(["x", ""]) for name in texts} | {
        "gpu_share": [0.5, 1.0], "nodes": [1, 0], "cpus": [2, 0], "memory_mib": [3.0, 0.0], "start_s": [0.0, 4.0],
        "time_limit_s": [5.0, 5.0], "requeues": [1, 0],
    }  # fmt: skip
    made = [Trace.of(**bare), *(Trace.of(**bare, **{name: values}) for name, values in more.items())]
    assert len({trace_digest(each) for each in made}) == len(made) == 17
