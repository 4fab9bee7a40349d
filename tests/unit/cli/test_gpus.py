"""`gpus`, `fit` and `advise` as they are typed."""

from __future__ import annotations

import json

import pytest

from slurmsched.cli.fit import _time
from slurmsched.model.jobs import GpuOptions
from tests.unit.observe.survey.survey_site import node, site

NODES = (node("n1", mask=0b11, cpus_used=2), node("n2", mask=0b1, cpus_used=64), node("n3", state="DOWN", reason="fan"))
JOBS = ({"job_id": 5, "user": "ann", "state": "R", "node_list": "n2", "cpus": 64, "gpus": 1, "time_limit_s": 7200.0},)


@pytest.fixture
def cluster(monkeypatch):
    """A small site in the place of Slurm, whose choice of GPUs is not known."""
    from slurmsched.observe import advice_input
    from slurmsched.slurm import reader

    found = site(NODES, JOBS, defaults="DefMemPerCPU=1000", settings={"AccountingStorageTRES": "gres/gpu"})
    monkeypatch.setattr(reader, "read_cluster_once", lambda *_, **__: found)
    monkeypatch.setattr(advice_input, "read_cluster_once", lambda *_, **__: found)
    monkeypatch.setattr(
        advice_input, "read_gpu_options", lambda *_: GpuOptions.build(1, {"job_id": [5], "per_job": ["gres/gpu:1"]})
    )
    monkeypatch.setattr(advice_input, "read_typical_run_times", lambda *_: {})
    monkeypatch.setattr(advice_input, "rate_gpu_picks", lambda *_: {})
    monkeypatch.setattr(advice_input, "gres_conf_text", lambda *_: "Name=gpu Count=8")
    return found


def test_gpus__fits_80_columns(run, cluster):
    """Types, nodes with their reason, and stranded GPUs with the job that holds the CPUs."""
    said = run("gpus")
    assert max(map(len, said.out.splitlines())) <= 80
    assert "v100    24    13         7          3         0     8  1x6" in said.out
    assert "stranded: 7 free GPUs of n2, whose CPUs are taken\n  job 5 of ann: 64 CPUs" in said.out
    assert "2-7" in run("gpus", "--nodelist", "n[1-2]").out


def test_gpus__json_and_filters(run, cluster):
    """The same in figures; a node, partition or type that is not there ends with 2."""
    told = json.loads(run("gpus", "--json", "--nodelist", "n1").out)
    assert [told["types"][0]["free"], told["nodes"][0]["free_gpus"], told["fabric"][0]["name"]] == [
        6, [2, 3, 4, 5, 6, 7], "spine"]  # fmt: skip
    for wrong in (("--nodelist", "n9"), ("--node", "n["), ("--partition", "nosuch"), ("--type", "nosuch")):
        assert run("gpus", *wrong).code == 2
    assert run("gpus", "--json", "--type", "a100").err == "slurmsched: --type a100: there is v100\n"


def test_fit__starts_waits_and_wrong_options(run, cluster):
    """Exit code 0, 3 and 2; each with what to do."""
    starts, waits = run("fit", "--gpus-per-node=v100:4"), run("fit", "-N2", "--gpus-per-node=4")
    assert (starts.code, waits.code) == (0, 10)
    assert "starts now on 1 of these nodes" in starts.out
    assert "n3: down" in waits.out
    assert "what Slurm picks: shown only for jobs of one node, such as by --nodes=1\n" in run("fit", "--gpus=2").out
    assert "--nodes=1" in waits.out
    for same in (("--gres=gpu:v100:4",), ("--gres=gpu:4",)):
        assert run("fit", *same).out.splitlines()[0].endswith("starts now on 1 of these nodes; Slurm chooses")
    odd = (
        *((f"--gpus={count}",) for count in ("²", "٣", "9" * 5000)),
        ("--gpus=1", "-t", "²"),
        ("--gpus=1", "-t", "9" * 5000),
    )
    for wrong in (*odd, ("--gpus=x",), ("--gpus=1", "--gpus-per-node=1"), ("--gres=gpu:1", "--gpus=1"),
                  ("--gres=craynetwork:1",), ("--gres=gpu",), ("--gres=gpu:",), ("--gres=gpu:a100:",),
                  ("--gpus=1", "--mem=much"),
                  ("--gpus=1", "-t", "long"), ("--gpus=1", "-w", "n["), ("--gpus=1", "-p", "nosuch"),
                  ("-w", "n9"), ("-w", "n1 n2"), ("-w", "@all"), ("--gpus=1", "-x", "n[1-9]")):  # fmt: skip
        assert run("fit", *wrong).code == 2


@pytest.mark.parametrize("text", ["0", "0:00", "00:00:00", "0-00:00:00", "0s", "-1", "UNLIMITED", "infinite"])
def test_time__of_zero_is_no_limit(text):
    """As in Slurm: it fits no partition with a limit, rather than any."""
    assert _time(text) == float("inf")
    assert (_time("1"), _time("0-1"), _time("")) == (60.0, 3600.0, None)


def test_fit__largest_by_type(run, cluster):
    """Without a request: what is the most that starts."""
    assert run("fit").out.splitlines()[1].split() == ["v100", "6", "6", "1x6,", "1x4,", "1x2,", "1x1"]
    assert json.loads(run("fit", "--json").out)["largest"][0]["one_node"] == 6


def test_fit__several_partitions(run, cluster, monkeypatch):
    """The one that it starts in is told, or of each why not; the largest request of each."""
    from slurmsched.slurm import reader

    both = [node(name, partitions="gpu,short", **columns) for name, columns in (("n1", {"mask": 0b11}), ("n2", {}))]
    short = {"name": "short", "max_time_s": 3600.0, "default_time_s": 3600.0}
    found = site(both, defaults="DefMemPerCPU=1000", partitions=[{"name": "gpu", "default": True}, short])
    monkeypatch.setattr(reader, "read_cluster_once", lambda *_, **__: found)
    starts = run("fit", "-p", "short,gpu", "--gpus-per-node=8", "-N1", "-t", "2h")
    assert (starts.code, "starts now on 1 of these nodes of gpu; Slurm" in starts.out) == (0, True)
    told = json.loads(run("fit", "-p", "short,gpu", "--gpus-per-node=8", "-N1", "-t", "2h", "--json").out)
    assert (told["fit"]["partition"], list(told["waits_in"])) == ("gpu", ["short"])
    waits = run("fit", "-p", "short,gpu", "--gpus-per-node=8", "-N2", "-t", "2h")
    assert waits.code == 10
    assert "\n  short: partition short has MaxTime=1 h" in waits.out
    assert "\n  gpu: 1 of 2 nodes can give 8 GPUs\n" in waits.out
    assert [line.split()[0] for line in run("fit", "-p", "short,gpu").out.splitlines()] == ["partition", "short", "gpu"]
    assert run("fit", "-p", "gpu,nosuch", "--gpus=1").code == 2


def test_advise__jobs_and_site(run, cluster):
    """The job that takes all CPUs, then what doctor says of GPUs; filters leave others out."""
    said = run("advise")
    assert max(map(len, said.out.splitlines())) <= 80
    assert said.out.splitlines()[1].split() == ["14", "cpus", "ann", "5", "--cpus-per-gpu=8"]
    assert "site: GPU files" in said.out
    assert "no job request wastes GPU time" in run("advise", "--user", "bob").out
    told = json.loads(run("advise", "--job", "5", "--json").out)
    assert [(one["rule"], one["gpu_h"]) for one in told["jobs"]] == [("cpus", 14.0)]
    gone = run("advise", "--job", "999")
    assert (gone.code, "job 999 is not in the queue" in gone.err) == (2, True)


def _small_jobs():
    """Three jobs of one A100: one by its hint, one as measured, one of which nothing is known; and an idle node."""
    row = {"user": "ann", "gpus": 1, "partition": "gpu"}
    jobs = (row | {"job_id": 5, "state": "R", "node_list": "n1"},
            row | {"job_id": 6, "comment": "slurmsched: share=yes gpu_part=0.25 gpu_mem=9"},
            row | {"job_id": 7, "user": "bob"})  # fmt: skip
    held = [{"job_id": 5, "node": "n1", "gpu_type": "a100", "gpus": 1}]
    nodes = [node("n1", mask=1, gpu_types="gpu:a100:8"), node("n2", gpu_types="gpu:a100:8")]
    return site(nodes, jobs, allocations=held)


def test_mig__jobs_layouts_and_commands(run, cluster, monkeypatch):
    """What each job fits into, and the commands for the idle node; memory by the type's name, or as told."""
    from slurmsched.model.gpu_use import JobGpuUse
    from slurmsched.observe import advice_input
    from slurmsched.slurm import reader

    monkeypatch.setattr(reader, "read_cluster_once", lambda *_, **__: _small_jobs())
    monkeypatch.setattr(advice_input, "read_running_gpu_use",
                        lambda *_: ({5: JobGpuUse(5, 1, 0, 0.10, 3.5 * 1024)}, ("slow",)))  # fmt: skip
    said = run("mig")
    lines = said.out.splitlines()
    assert (said.code, max(map(len, lines)) <= 100) == (0, True)
    assert lines[0] == "a100: 40 GB by its name; --memory a100=GB says otherwise"
    assert lines[1] == "3 jobs of one GPU: 2 would fit into a MIG device, 0 need the whole GPU, of 1 it is not known"
    assert [line.split()[:5] for line in lines[3:5]] == [
        ["1g.5gb", "5", "ann", "runs", "12"], ["2g.10gb", "6", "ann", "waits", "25"]]  # fmt: skip
    assert "  n2 (idle)" in lines
    assert "    nvidia-smi -i 0 -mig 1" in lines
    assert lines[-1] == "warning: slow"
    (found,) = json.loads(run("mig", "--memory", "a100=80", "--json").out)["types"]
    assert (found["guessed"], [job["profile"] for job in found["jobs"]]) == (False, ["1g.10gb", "2g.20gb"])
    assert found["commands"]["n2"][1].startswith("nvidia-smi mig -i 0 -cgi 4g.40gb,2g.20gb,1g.10gb")
    assert "no job of one GPU" not in run("mig", "--user", "bob").out
    assert "no job of one GPU is known" in run("mig", "--user", "eve").out


@pytest.mark.parametrize("types", ["gpu:a100:4,gpu:v100:4", "gpu:a100:4,gpu:a100_1g.5gb:7"])
def test_mig__no_command_where_gpus_have_unknown_numbers(run, cluster, monkeypatch, types):
    """GPU 0 of a node with several types, or with GPUs that are cut already, may be another one."""
    from slurmsched.observe import advice_input
    from slurmsched.slurm import reader

    jobs = [{"job_id": 6, "gpus": 1, "partition": "gpu", "gpu_request": "gpu:a100:1",
             "comment": "slurmsched: gpu_part=0.25 gpu_mem=9"}]  # fmt: skip
    monkeypatch.setattr(advice_input, "read_running_gpu_use", lambda *_: ({}, ()))
    for names in (("n1",), ("n1", "n2")):
        nodes = [node(name, gpu_types=types if name == "n1" else "gpu:a100:8") for name in names]
        found = site(nodes, jobs)
        monkeypatch.setattr(reader, "read_cluster_once", lambda *_, found=found, **__: found)
        said = run("mig").out
        assert "1 GPU in place of 1:" in said and ("n1 (" not in said, "n2 (idle)" in said) == (True, len(names) > 1)
    assert "No node that is up" not in said


@pytest.mark.parametrize("words", [("--memory", "a100"), ("--memory", "a100=41"), ("--margin", "-1")])
def test_mig__refuses_wrong_options(run, cluster, words):
    """Before anything is read."""
    assert run("mig", *words).code == 2


def test_mig__waiting_jobs_are_as_jobs_alike_were(run, cluster, tmp_path, monkeypatch):
    """By the daemon's profiles, if measured for long enough; the memory of the type by the configuration."""
    from slurmsched.observe import advice_input
    from slurmsched.observe.gpu_profiles import GpuProfile, ProfileKey, write_profiles
    from slurmsched.slurm import reader

    jobs = [{"job_id": job, "user": "bob", "gpus": 1, "partition": "gpu", "comment": f"slurmsched: model={model}"}
            for job, model in ((7, "vit"), (8, "gpt"))]  # fmt: skip
    found = site([node("n1", gpu_types="gpu:l9:8")], jobs)
    monkeypatch.setattr(reader, "read_cluster_once", lambda *_, **__: found)
    monkeypatch.setattr(advice_input, "read_running_gpu_use", lambda *_: ({}, ()))
    file = tmp_path / "profiles.csv"
    kept = {"used_s": 400.0, "memory_mib": 3.0 * 1024, "peak_use": 0.2, "jobs": 1}
    write_profiles(file, {ProfileKey("vit", 0, 1, "l9", "eve"): GpuProfile(use_s=4_000.0, **kept),
                          ProfileKey("gpt", 0, 1, "l9", "eve"): GpuProfile(use_s=3_000.0, **kept)})  # fmt: skip
    config = tmp_path / "site.toml"
    config.write_text(f'[measured_use]\nprofiles = "{file}"\n[lever]\ngpu_memory_gb = {{ l9 = 40 }}\n')
    (plan,) = json.loads(run("--config", str(config), "mig", "--json").out)["types"]
    assert (plan["memory_gb"], plan["not_known"]) == (40, 1)
    assert [(job["job_id"], job["part"], job["profile"], job["known_by"]) for job in plan["jobs"]] == [
        (7, 0.2, "2g.10gb", "jobs alike")]  # fmt: skip
