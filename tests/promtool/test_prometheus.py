"""A real Prometheus beside the daemon's endpoint: it scrapes, takes the rules, and answers the dashboard's queries."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurmsched.config import parse_config
from slurmsched.daemon.watch import METRICS, Watch
from slurmsched.model import Receipt
from slurmsched.planning.planner import Planner
from slurmsched.testing import mixed_snapshot

pytestmark = pytest.mark.promtool

FOLDER = Path(__file__).parents[2] / "site-configs"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address, once it has scraped a daemon that has run a cycle."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.fail("this test needs Prometheus: apt-get install prometheus", pytrace=False)
    folder = tmp_path_factory.mktemp("prometheus")
    config = parse_config({"metrics": {"listen": "127.0.0.1:0"}, "scope": {"partitions": ["*"]}})
    watch, look = Watch(config, apply=True), mixed_snapshot(60, seed=2)
    watch.done(look, Planner.from_config(config).plan(look), Receipt())
    tree = yaml.safe_load((FOLDER / "prometheus-scrape.yml").read_text(encoding="utf-8"))
    tree["scrape_configs"][0] |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
    tree["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{watch.port(METRICS)}"]
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
