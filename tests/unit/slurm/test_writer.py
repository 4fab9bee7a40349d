"""Writing through scontrol: what is said, and what the answers mean."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from slurmsched.errors import SlurmUnreachableError
from slurmsched.model import (
    AllowStart,
    DeleteReservation,
    JoinReservation,
    Outcome,
    Requeue,
    Reserve,
    SetCpus,
    SetGpuRequest,
    SetNice,
    SetNodeList,
    SetSiteFactor,
)
from slurmsched.slurm.commands import Commands, scontrol_session
from slurmsched.slurm.writer import CommandWriter, answered, command

# Answers by what a job id asks for; else silence, which is scontrol's success.
SCONTROL = r"""#!/bin/sh
while read -r line; do
    case $line in
    slurmsched-mark-*) echo "invalid keyword: $line" >&2 ;;
    *JobId=2\ *) echo "Access/permission denied for job 2" >&2 ;;
    *JobId=3\ *) echo "Unexpected message received for job 3" >&2 ;;
    *JobId=4\ *) echo "fatal: gone" >&2; exit 1 ;;
    *JobId=5\ *) sleep 60 ;;
    delete\ *) echo "Error deleting reservation ${line#*=}: Requested reservation is in use" >&2 ;;
    *JobId=9\ *) printf 'slurm_update error: Invalid account %s' "slurmsched-mark-1" >&2 ;;
    *) echo "$line" >>"$0.log" ;;
    esac
done
"""


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    program = tmp_path / "scontrol"
    program.write_text(SCONTROL)
    program.chmod(0o755)
    return Commands(str(tmp_path), timeout_s=0.5)


def nice(job_id: int, new: int = -5) -> SetNice:
    return SetNice(job_id, 100.0, "queue 0", 0, new, 0)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (SetNice(7, 1.0, "", 0, -500, 0), "update JobId=7 Nice=-500"),
        (SetNice(7, 1.0, "", -500, 0, 0), "update JobId=7 Nice=0"),
        (SetSiteFactor(7, 1.0, "", 0, 900, 0), "update JobId=7 SiteFactor=900"),
        (SetSiteFactor(7, 1.0, "", 900, 0, 0), "update JobId=7 SiteFactor=0"),
    ],
)
def test_command__names_the_lever_and_its_signed_value(action, expected):
    """Zero is written like any other value; sprio's and squeue's sign is scontrol's."""
    assert command(action) == expected


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Requeue(7, 1.0, "", "a", 0), "requeue incomplete 7"),
        (JoinReservation(7, 1.0, "", "a", "slurmsched-7-1"), "update JobId=7 ReservationName=slurmsched-7-1"),
        (JoinReservation(7, 1.0, "", "a"), "update JobId=7 ReservationName="),
        (AllowStart(7, 1.0, "", "a", 1_795_848_424.9), "update JobId=7 StartTime=uts1795848424"),
        (SetNodeList(7, 1.0, "", "a", "n2"), "update JobId=7 NodeList=n2"),
        (SetNodeList(7, 1.0, "", "a", "", "n2"), "update JobId=7 NodeList="),
        (SetGpuRequest(7, 1.0, "", "a", "gpu:i0:1,gpu:i1:1"), "update JobId=7 Gres=gpu:i0:1,gpu:i1:1"),
        (SetGpuRequest(7, 1.0, "", "a", "gpu:2"), "update JobId=7 Gres=gpu:2"),
        (DeleteReservation(7, 1.0, "", "a", "slurmsched-7-1"), "delete ReservationName=slurmsched-7-1"),
        (
            Reserve(7, 1.0, "", "a", "slurmsched-7-1", "n[1-2,4]", "alice@lab", 10.9, 20.0),
            "create ReservationName=slurmsched-7-1 Nodes=n[1-2,4] Users=alice@lab StartTime=uts10 EndTime=uts20 "
            "Flags=IGNORE_JOBS,NO_HOLD_JOBS_AFTER,PURGE_COMP=00:30:00",
        ),
    ],
    ids=lambda value: value.kind if hasattr(value, "kind") else "",
)
def test_command__steps_of_operations(action, expected):
    """Each step is one command of scontrol."""
    assert command(action) == expected


@pytest.mark.parametrize("text", ["", "al ice", "alice\nshutdown", "a;b", "$(id)", "'a'", "n1 Flags=MAINT"])
def test_command__what_others_named_is_never_more_than_a_word(text):
    """Names of users and nodes cannot bring a second command or option in."""
    with pytest.raises(ValueError, match="not a word"):
        command(Reserve(7, 1.0, "", "a", "slurmsched-7-1", "n1", text, 10.0, 20.0))


@pytest.mark.parametrize(
    "text", ["", "gpu", "gpu:2 Nice=-9", "gpu:a b:2", "shard:2", "gpu:2\nshutdown", "gpu:a:2,", "2"]
)
def test_command__a_request_is_gpus_and_nothing_else(text):
    """Types are named by the site's gres.conf and by Slurm."""
    with pytest.raises(ValueError, match="not a word"):
        command(SetGpuRequest(7, 1.0, "", "a", text))


@pytest.mark.parametrize(
    ("said", "status", "message"),
    [
        ("", "written", ""),
        ("Invalid job id specified for job 7", "refused", "Invalid job id specified"),
        ("Access/permission denied for job 7", "refused", "Access/permission denied"),
        ("Job has already finished for job 7", "refused", "Job has already finished"),
        ("14_0-1,3-5: Access/permission denied", "refused", "14_0-1,3-5: Access/permission denied"),
        ("15_0-2: Invalid user id", "refused", "15_0-2: Invalid user id"),
        ("15_1: Job has already finished", "written", "15_1: Job has already finished"),
        ("3_[1]: Job has already finished", "written", "3_[1]: Job has already finished"),
        (
            "6_1: Job has already finished\n6_4-5: Access/permission denied",
            "refused",
            "6_1: Job has already finished; 6_4-5: Access/permission denied",
        ),
        ("Unexpected message received for job 7", "unknown", "Unexpected message received for job 7"),
        ("Connection reset by peer for job 7", "unknown", "Connection reset by peer for job 7"),
        (
            "Unable to contact slurm controller (connect failure) for job 7",
            "unknown",
            "Unable to contact slurm controller (connect failure) for job 7",
        ),
    ],
)
def test_answered__words_of_24_11_and_26_05(said, status, message):
    """Silence is success; tasks of an array that are over do not count; no answer is neither yes nor no."""
    action = nice(7)
    assert answered(action, said) == Outcome(action, status, message)


def test_send__tells_each_answer_apart(commands):
    """One process, one outcome an action, in their order; a refused one does not stop the others."""
    actions = [nice(1), nice(2), nice(10, 0), SetNodeList(11, 100.0, "", "a", "n1 n2")]
    outcomes = list(CommandWriter(commands).send(actions))
    assert [(o.action.job_id, o.status) for o in outcomes] == [
        (1, "written"),
        (2, "refused"),
        (10, "written"),
        (11, "refused"),
    ]
    assert outcomes[1].message == "Access/permission denied"
    said = Path(commands.bin_dir, "scontrol.log").read_text().splitlines()
    assert said == ["update JobId=1 Nice=-5", "update JobId=10 Nice=0"]


@pytest.mark.parametrize("job_id", [3, 4, 5], ids=["slurmctld-away", "scontrol-ends", "scontrol-hangs"])
def test_send__stops_when_no_answer_comes(commands, job_id):
    """The one in flight is unknown, and the rest is not sent."""
    taken: list[int] = []

    def actions():
        for number in (1, job_id, 20):
            taken.append(number)
            yield nice(number)

    outcomes = list(CommandWriter(commands).send(actions()))
    assert [(o.action.job_id, o.status) for o in outcomes] == [(1, "written"), (job_id, "unknown")]
    assert taken == [1, job_id]


def test_send__takes_an_action_only_when_the_one_before_is_answered(commands):
    """So that pacing and stopping operation between two writes."""
    events: list[str] = []

    def actions():
        for number in (1, 6):
            events.append(f"take {number}")
            yield nice(number)

    for outcome in CommandWriter(commands).send(actions()):
        events.append(f"answer {outcome.action.job_id}")
    assert events == ["take 1", "answer 1", "take 6", "answer 6"]


def test_send__without_scontrol_raises(tmp_path):
    """Nothing was sent then."""
    with pytest.raises(SlurmUnreachableError, match="no scontrol in"):
        list(CommandWriter(Commands(str(tmp_path))).send([nice(1)]))


def test_session__ends_its_process(commands):
    """Nothing is left running, whatever happened inside."""
    with pytest.raises(ZeroDivisionError), scontrol_session(commands) as scontrol:
        process = scontrol._process
        1 / 0  # noqa: B018
    assert process.poll() is not None


def test_session__says_why_scontrol_ended(commands):
    """The last words of a scontrol that ends are in the error."""
    with scontrol_session(commands) as scontrol, pytest.raises(SlurmUnreachableError, match="fatal: gone"):
        scontrol.tell("update JobId=4 Nice=1")


TORN = r"""#!/bin/sh
while read -r line; do
    case $line in
    slurmsched-mark-*) printf 'invalid keyword: %s' "$line" >&2; sleep 0.1; printf ' (not known)\n' >&2 ;;
    esac
done
"""


def test_session__hears_the_line_of_a_mark_to_its_end(tmp_path):
    """What comes late of it is no answer to the next command."""
    program = tmp_path / "scontrol"
    program.write_text(TORN)
    program.chmod(0o755)
    with scontrol_session(Commands(str(tmp_path), timeout_s=5.0)) as scontrol:
        assert [scontrol.tell(f"update JobId={job}") for job in (1, 2, 3)] == ["", "", ""]


@pytest.mark.parametrize("tag", ["1f3a2b", "1", "mark-1", "123456"])
def test_send__a_refusal_that_names_a_reservation_of_any_tag_is_one(commands, tag):
    """What ends an answer is in no name: a reservation's may begin like any number, and be in the text of a refusal."""
    actions = [
        DeleteReservation(7, 1.0, "", "a", f"slurmsched-{tag}-7-1"),
        nice(8),
        DeleteReservation(7, 1.0, "", "a", "slurmsched-2"),
    ]
    outcomes = list(CommandWriter(commands).send(actions))
    assert [outcome.status for outcome in outcomes] == ["refused", "written", "refused"]
    assert outcomes[0].message == f"Error deleting reservation slurmsched-{tag}-7-1: Requested reservation is in use"


def test_send__a_refusal_without_a_line_end_is_one(commands):
    """The line about the mark then begins with it."""
    assert [outcome.status for outcome in CommandWriter(commands).send([nice(9), nice(8)])] == ["refused", "written"]


class Talk:
    """A scontrol that answers what it is given, in turn; the commands are kept."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.told = list(answers), []

    def tell(self, words: str) -> str:
        self.told.append(words)
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("answers", "status", "text"),
    [
        (("", ), "written", ""),
        (("Invalid TRES for job 7", ""), "refused", "Invalid TRES; it has its own request again"),
        (("Invalid TRES for job 7", "Invalid TRES for job 7"), "refused", "its own request was refused too"),
        (("Invalid TRES for job 7", "Unable to contact slurm controller (connect failure)"), "unknown", "own request"),
    ],
)  # fmt: skip
def test_send__a_refused_request_is_followed_by_the_jobs_own(monkeypatch, answers, status, text):
    """Else the job would start without GPUs: Slurm drops the request in force when it refuses another."""
    talk = Talk(*answers)
    monkeypatch.setattr("slurmsched.slurm.writer.scontrol_session", lambda commands: nullcontext(talk))
    (outcome,) = CommandWriter(None).send([SetGpuRequest(7, 1.0, "", "pin-7", "gpu:i0:2", "gpu:2", "gpu:2")])
    assert outcome.status == status
    assert text in outcome.message
    assert talk.told == ["update JobId=7 Gres=gpu:i0:2", "update JobId=7 Gres=gpu:2"][: len(answers)]


def test_send__refused_cpus_are_followed_by_the_jobs_own(monkeypatch):
    """Slurm sets them, and checks the job's limits only then."""
    talk = Talk("Job violates accounting/QOS policy for job 7", "")
    monkeypatch.setattr("slurmsched.slurm.writer.scontrol_session", lambda commands: nullcontext(talk))
    (outcome,) = CommandWriter(None).send([SetCpus(7, 1.0, "", "cpus-7", 4, 16, 16)])
    assert (outcome.status, talk.told[1]) == ("refused", "update JobId=7 CPUsPerTask=16 NumCPUs=16 MinCPUsNode=16")
