"""A real Prometheus beside the daemon's endpoint: it scrapes, takes the rules, and answers the dashboard's queries."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurmsched.config import MeasuredUseConfig
from slurmsched.config_file import parse_config
from slurmsched.daemon.observers import METRICS, Observers
from slurmsched.errors import MeasurementError
from slurmsched.model import Receipt
from slurmsched.model.gpu_use import JobGpuUse
from slurmsched.observe.gpu_use_sources import EXPORTERS, prometheus_gpu_use
from slurmsched.planning.planner import Planner
from slurmsched.testing import mixed_snapshot

pytestmark = pytest.mark.promtool

FOLDER = Path(__file__).parents[2] / "site-configs"


# Series of two exporters, by their documentation: job 41 uses one of its two GPUs, job 3000042 its only one.
GPU_SERIES = """
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",Hostname="n1",hpc_job="41"} 90
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",Hostname="n1",hpc_job="41"} 0
DCGM_FI_DEV_GPU_UTIL{gpu="2",UUID="GPU-c",Hostname="n1"} 77
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",Hostname="n1",hpc_job="41"} 30000
nvidia_gpu_duty_cycle{minor_number="0",uuid="GPU-a"} 90
nvidia_gpu_duty_cycle{minor_number="1",uuid="GPU-b"} 0
nvidia_gpu_duty_cycle{minor_number="2",uuid="GPU-c"} 40
nvidia_gpu_duty_cycle{minor_number="3",uuid="GPU-d"} 10
nvidia_gpu_memory_used_bytes{minor_number="2",uuid="GPU-c"} 1048576000
nvidia_gpu_jobId{minor_number="0",uuid="GPU-a"} 41
nvidia_gpu_jobId{minor_number="1",uuid="GPU-b"} 41
nvidia_gpu_jobId{minor_number="2",uuid="GPU-c"} 3000042
nvidia_gpu_jobId{minor_number="3",uuid="GPU-d"} 0
"""


@pytest.fixture(scope="module")
def exporter() -> Iterator[int]:
    """Port of a page with these series."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(GPU_SERIES.encode())

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory, exporter: int) -> Iterator[str]:
    """Its address, once it has scraped a daemon that has run a cycle."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.fail("this test needs Prometheus: apt-get install prometheus", pytrace=False)
    folder = tmp_path_factory.mktemp("prometheus")
    config = parse_config({"metrics": {"listen": "127.0.0.1:0"}, "scope": {"partitions": ["*"]}})
    watch, look = Observers(config, apply=True), mixed_snapshot(60, seed=2)
    watch.done(look, Planner.from_config(config).plan(look), Receipt())
    tree = yaml.safe_load((FOLDER / "prometheus-scrape.yml").read_text(encoding="utf-8"))
    tree["scrape_configs"][0] |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
    tree["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{watch.port(METRICS)}"]
    tree["scrape_configs"].append({
        "job_name": "gpus", "scrape_interval": "1s", "scrape_timeout": "1s",
        "static_configs": [{"targets": [f"127.0.0.1:{exporter}"]}],
    })  # fmt: skip
    tree |= {"rule_files": [str(FOLDER / "prometheus-rules.yml")], "global": {"evaluation_interval": "1s"}}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(tree))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
               f"--web.listen-address={address}"]  # fmt: skip
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _until(lambda: _query(address, "slurmsched_cycles_total"), folder / "log")
            yield address
        finally:
            process.terminate()
    watch.close()


def test_scrape__brings_every_series(prometheus: str) -> None:
    """The values of the cycle, under the job's name."""
    found = {one["metric"]["outcome"]: one["value"][1] for one in _query(prometheus, "slurmsched_cycles_total")}
    assert found == {"done": "1", "failed": "0", "dropped": "0", "standby": "0"}
    (up,) = _query(prometheus, 'up{job="slurmsched"}')
    assert up["value"][1] == "1"


def test_rules__are_healthy(prometheus: str) -> None:
    """Each is evaluated without an error."""
    _until(lambda: all(rule["health"] == "ok" for rule in _rules(prometheus)))
    assert len(_rules(prometheus)) >= 10


def test_dashboard__is_answered(prometheus: str) -> None:
    """No query of a panel is refused, and those of gauges have an answer."""
    tree = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in tree["panels"] for target in panel["targets"]]
    answers = [_query(prometheus, query.replace("$__rate_interval", "5m").replace("$job", ".*")) for query in queries]
    assert sum(bool(answer) for answer in answers) > len(queries) / 3


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("dcgm", {41: JobGpuUse(41, 2, 1, 0.45, 30_000.0)}),
        ("jobstats", {41: JobGpuUse(41, 2, 1, 0.45), 3_000_042: JobGpuUse(3_000_042, 1, 0, 0.4, 1_000.0)}),
    ],
)
def test_gpu_use__of_exporters(prometheus: str, name: str, found: dict[int, JobGpuUse]) -> None:
    """Use and memory by job; a GPU without a job is nobody's."""
    config = MeasuredUseConfig(source="prometheus", prometheus_url=f"http://{prometheus}", exporter=name, step_s=1)
    _until(lambda: len(prometheus_gpu_use(config).by_job) == len(found))
    assert repr(dict(prometheus_gpu_use(config).by_job)) == repr(found)  # NaN is NaN


def test_gpu_use__what_prometheus_refuses(prometheus: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own message, with the address."""
    monkeypatch.setitem(EXPORTERS, "dcgm", ("nothing{", "nothing", "job"))
    with pytest.raises(MeasurementError, match=r"answered 400: .*parse error"):
        prometheus_gpu_use(MeasuredUseConfig(source="prometheus", prometheus_url=f"http://{prometheus}"))


def _query(address: str, query: str) -> list[Any]:
    return _get(address, f"query?{urllib.parse.urlencode({'query': query})}").get("result", [])


def _rules(address: str) -> list[Any]:
    return [rule for group in _get(address, "rules").get("groups", []) for rule in group["rules"]]


def _get(address: str, path: str) -> Any:
    """The data of an answer; nothing while it does not listen yet. A query that is refused fails the test."""
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        if error.code == 503:
            return {}
        raise
    except OSError:
        return {}


def _until(true: Any, log: Path | None = None) -> None:
    end_s = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end_s, log.read_text() if log else "not within a minute"
        time.sleep(0.2)
