"""What Prometheus itself says of rules, metrics and queries (make test-promtool)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from slurmsched.config_file import parse_config
from slurmsched.model import Receipt
from slurmsched.observe.prometheus import CycleMetrics, ProcessState, scraped
from slurmsched.planning.planner import Planner
from slurmsched.testing import mixed_snapshot

pytestmark = pytest.mark.promtool

FOLDER = Path(__file__).parents[2] / "site-configs"
MACROS = {"$__rate_interval": "5m", "$job": ".*"}


def promtool(*arguments: str, given: bytes = b"") -> str:
    """What it printed; fails the test where it complains, or is not there."""
    program = shutil.which("promtool")
    if program is None:
        pytest.fail("these tests need promtool: apt-get install prometheus", pytrace=False)
    done = subprocess.run([program, *arguments], input=given, capture_output=True, timeout=60, check=False)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said


def exported() -> bytes:
    """What a scrape gives after one cycle."""
    config = parse_config({"scope": {"partitions": ["*"]}})
    meters, look = CycleMetrics(config), mixed_snapshot(80, seed=5)
    meters.done(look, Planner.from_config(config).plan(look), Receipt(dry_run=True))
    return scraped(meters.families(ProcessState(apply=True)), "")[0]


def test_rules__are_taken():
    """Every alert parses."""
    assert "SUCCESS" in promtool("check", "rules", str(FOLDER / "prometheus-rules.yml"))


def test_metrics__have_no_fault():
    """Names, units, help and types as Prometheus's own linter wants them."""
    assert promtool("check", "metrics", given=exported()).strip() == ""


def test_scrape_config__is_taken(tmp_path):
    """With the rules beside it."""
    tree = yaml.safe_load((FOLDER / "prometheus-scrape.yml").read_text(encoding="utf-8"))
    (tmp_path / "prometheus.yml").write_text(
        yaml.safe_dump(tree | {"rule_files": [str(FOLDER / "prometheus-rules.yml")]})
    )
    assert "SUCCESS" in promtool("check", "config", str(tmp_path / "prometheus.yml"))


def test_dashboard__queries_parse(tmp_path):
    """Each as a recording rule, Grafana's variables filled in."""
    tree = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in tree["panels"] for target in panel["targets"]]
    for name, value in MACROS.items():
        queries = [query.replace(name, value) for query in queries]
    rules = [{"record": f"panel:query:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(queries)} rules found" in promtool("check", "rules", str(tmp_path / "rules.yml"))


@pytest.mark.parametrize(
    ("alert", "series"),
    [
        ("SlurmschedSnapshotOld", {"slurmsched_snapshot_timestamp_seconds": "0+0x60",
                                   "slurmsched_cycle_interval_seconds": "60+0x60"}),
        ("SlurmschedCyclesFail", {'slurmsched_failed_cycles_in_a_row{instance="a"}': "6+0x60"}),
        ("SlurmschedWritesRefused", {'slurmsched_writes_total{kind="nice",outcome="refused"}': "0+60x60",
                                     'slurmsched_writes_total{kind="nice",outcome="written"}': "0+60x60"}),
        ("SlurmschedCycleSlow", {'slurmsched_cycle_stage_seconds_sum{instance="a",stage="read"}': "0+90x60",
                                 'slurmsched_cycles_total{instance="a",outcome="done"}': "0+1x60",
                                 'slurmsched_cycle_interval_seconds{instance="a"}': "60+0x60"}),
        ("SlurmschedNobodyLeads", {'slurmsched_leader{instance="a"}': "0+0x60",
                                   'slurmsched_leader{instance="b"}': "0+0x60"}),
        ("SlurmschedPlacementsMissed", {"slurmsched_missed_placements_total": "0+1x60",
                                        "slurmsched_placement_quality_ratio_count": "0+4x60"}),
        ("SlurmschedAway", {"other": "1+0x60"}),
    ],
)  # fmt: skip
def test_alert__fires_for_what_it_is_about(tmp_path, alert, series):
    """After 55 minutes of it."""
    given = [{"series": name, "values": values} for name, values in series.items()]
    (tmp_path / "rules.yml").write_text((FOLDER / "prometheus-rules.yml").read_text(encoding="utf-8"))
    query = {"expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})', "eval_time": "55m",
             "exp_samples": [{"labels": "{}", "value": 1}]}  # fmt: skip
    case = {"rule_files": ["rules.yml"], "evaluation_interval": "1m",
            "tests": [{"interval": "1m", "input_series": given, "promql_expr_test": [query]}]}  # fmt: skip
    (tmp_path / "test.yml").write_text(yaml.safe_dump(case))
    assert "SUCCESS" in promtool("test", "rules", str(tmp_path / "test.yml"))
