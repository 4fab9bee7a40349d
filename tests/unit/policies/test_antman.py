"""antman: the two classes by hand as on the page, quotas, and what guests get in a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurmsched import registry
from slurmsched.errors import ConfigError
from slurmsched.model.trace import Trace
from slurmsched.policies.antman import AntMan
from slurmsched.sim.experiments.replay_request import ReplayRequest, parse_policy
from slurmsched.sim.experiments.replay_session import ReplaySession
from slurmsched.testing import snapshot
from tests.unit.policies.test_pages import PAGES, measured_pairs_file, table

PAGE = (PAGES / "antman.md").read_text(encoding="utf-8")


def queue(nodes: str = "1x2", **others: dict[str, Any]) -> Any:
    """The jobs of the page. others: columns of job1, job2 and so on."""
    rows = []
    for number, row in enumerate(table(PAGE), 1):
        share = " share=yes" if row["class"] == "opportunistic" else ""
        comment = f"slurmsched: model={row['model']}{share}"
        rows.append({"job_id": number, "gpus": 1, "submit_s": float(number), "gpu_request": "gpu:1",
                     "comment": comment, **others.get(f"job{number}", {})})  # fmt: skip
    return snapshot(rows, nodes, now_s=100.0)


def ranked(policy: AntMan, here: Any) -> tuple[list[int], list[int], list[int]]:
    """Ids in order, hosts by job, and the jobs that may not start."""
    made = policy.rank(here)
    changes = made.changes
    assert changes is not None and changes.beside is not None and changes.start_s is not None
    ids = here.jobs.job_id
    return ids[made.order].tolist(), changes.beside.tolist(), ids[np.isposinf(changes.start_s)].tolist()


def test_antman__the_example_of_the_page() -> None:
    """3 goes beside 2, whose GPU is used least, and 4 beside 1; with GPUs for all nobody shares."""
    assert ranked(AntMan(), queue()) == ([1, 2, 5, 3, 4, 6], [-1, -1, 2, 1, -1, -1], [])
    assert ranked(AntMan(), queue("1x6"))[1] == [-1] * 6


def test_antman__classes_by_qos_and_quotas_by_account() -> None:
    """With a quota of one GPU job 2 waits, so that job 5 of another account gets the second one. Job 1 is opportunistic
    by its QOS, and takes no part of the quota."""
    accounts = {f"job{number}": {"account": "a"} for number in (1, 2)} | {"job5": {"account": "b"}}
    policy = AntMan(quotas=("a=1",))
    assert ranked(policy, queue(**accounts)) == ([1, 2, 5, 3, 4, 6], [-1, -1, 5, 1, -1, -1], [2])
    accounts["job1"] = {"account": "a", "qos": "low"}
    order, _, waits = ranked(AntMan(quotas=("a=1",), opportunistic=("low",)), queue(**accounts))
    assert (order, waits) == ([2, 5, 1, 3, 4, 6], [])


def test_antman__training_beside_inference_as_in_dynamoml() -> None:
    """The configuration of the list of systems: training of a QOS shares the GPUs that inference uses least, and leaves
    GPUs of its own when inference needs them."""
    text = (PAGES / "README.md").read_text(encoding="utf-8")
    words = next(line for line in text.splitlines() if line.startswith("| DynamoML")).split("`")
    name, parameters = parse_policy(next(word for word in words if word.startswith("antman:")))
    policy = registry.make_plugin("policies", name, parameters)
    jobs = [("bert", "inference"), ("resnet18", "inference"), ("gpt2", "training")]
    rows = [{"job_id": at, "gpus": 1, "submit_s": -float(at), "qos": qos, "comment": f"slurmsched: model={model}"}
            for at, (model, qos) in enumerate(jobs, 1)]  # fmt: skip
    assert ranked(policy, snapshot(rows, "1x2"))[:2] == ([2, 1, 3], [-1, -1, 2])
    assert ranked(policy, snapshot(rows, "1x3"))[1] == [-1, -1, -1]


def test_antman__a_guest_stays_where_it_is() -> None:
    """Job 3 shares the GPU of bert, though that of resnet18 is used less; whoever of the two came first."""
    texts = ("model=bert", "model=resnet18", "share=yes model=gpt2")
    for starts in ((10.0, 10.0, 20.0), (20.0, 20.0, 10.0)):
        rows = [{"job_id": number, "gpus": 1, "state": "RUNNING", "start_s": start_s, "comment": f"slurmsched: {text}"}
                for number, (text, start_s) in enumerate(zip(texts, starts, strict=True), 1)]  # fmt: skip
        held = [{"job_id": job, "node": "n1", "gpus": 1, "gpu_mask": mask} for job, mask in ((1, 1), (2, 2), (3, 1))]
        assert ranked(AntMan(), snapshot(rows, "1x2", now_s=100.0, allocations=held))[1] == [-1, -1, 1]


@pytest.mark.parametrize("host", ["model=other", "share=no model=resnet18"])
def test_antman__who_has_no_guest(host: str) -> None:
    """A job of an unknown model, and one that does not share."""
    rows = [{"gpus": 1, "comment": f"slurmsched: {text}"} for text in (host, "share=yes model=a2c")]
    assert ranked(AntMan(), snapshot(rows, "1x1"))[1] == [-1, -1]


def test_antman__measured_pairs_come_before_the_use_of_gpus(tmp_path: Path) -> None:
    """gpt2 goes beside bert, where it was measured to lose less than beside resnet18; unless bert loses too much. A
    model of unknown use has the guests that were measured beside it, and no others."""
    path = measured_pairs_file(tmp_path, gpt2_bert=(0.8, 0.85), gpt2_resnet18=(0.3, 0.95), a2c_mine=(0.7, 0.95))
    assert ranked(AntMan(measured=path), queue())[1] == [-1, -1, 2, 1, -1, -1]
    assert ranked(AntMan(measured=path, keeps=0.8), queue())[1] == [-1, -1, 1, 2, -1, -1]
    for guest, host, hint in (("a2c", 7, ""), ("gpt2", -1, ""), ("a2c", -1, "share=no")):
        rows = [{"job_id": 7, "gpus": 1, "comment": f"slurmsched: model=mine {hint}"},
                {"job_id": 8, "gpus": 1, "comment": f"slurmsched: share=yes model={guest}"}]  # fmt: skip
        assert ranked(AntMan(measured=path), snapshot(rows, "1x1"))[1] == [-1, host]


def test_antman__a_guaranteed_job_keeps_its_speed_in_a_replay() -> None:
    """gpt2 runs in the 10 % of the time that bert leaves, and alone once bert has ended. A guaranteed job that comes
    later takes the GPU of an opportunistic one, which goes on beside it."""
    bert, gpt2 = 160 / 178, 410 / 426
    assert ends(("bert", "", 0), ("gpt2", "share=yes", 0)) == pytest.approx([100, 200 - 100 * (1 - bert) / gpt2])
    share = (1 - 110 / 779) / gpt2
    assert ends(("gpt2", "share=yes", 0), ("resnet18", "", 50)) == pytest.approx([50 + 50 / share, 150])


def ends(*jobs: tuple[str, str, float]) -> list[float]:
    """Ends [s] of jobs of 100 s on one GPU: model, hints, submission."""
    models, hints, submit_s = zip(*jobs, strict=True)
    count = len(jobs)
    comments = [f"slurmsched: {text}" if text else "" for text in hints]
    trace = Trace.of(np.arange(count) + 1, [1] * count, list(submit_s), [100.0] * count, model=list(models),
                     comment=comments)  # fmt: skip
    request = ReplayRequest(cluster="1x1", policy="antman", placement="consolidated", backfill="skip",
                            physics="grouped:guaranteed=true")  # fmt: skip
    return ReplaySession(trace, request).run().cluster.endings()[0].tolist()


def test_antman__says_what_is_wrong() -> None:
    """A quota that is none."""
    with pytest.raises(ConfigError, match="ACCOUNT=GPUS"):
        AntMan(quotas=("a",))
