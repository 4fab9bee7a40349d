from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from slurmsched.model.plan import Plan, Refusal
from slurmsched.observe import metric_catalog
from slurmsched.observe.metric_catalog import BY_NAME, COUNTER, METRICS, all_samples
from slurmsched.planning.job_scope import JOB_RULES, NODE_LIST_RULES, START_RULES

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
USED = re.compile(r"\bslurmsched_[a-z_]+\b")
UNITS = ("_seconds", "_timestamp_seconds", "_ratio", "_gpus", "_jobs", "_writes")


def _rules() -> str:
    tree = yaml.safe_load((ROOT / "site-configs/prometheus-rules.yml").read_text(encoding="utf-8"))
    return "\n".join(rule["expr"] for group in tree["groups"] for rule in group["rules"])


def _dashboard() -> str:
    tree = json.loads((ROOT / "site-configs/grafana-dashboard.json").read_text(encoding="utf-8"))
    return "\n".join(target["expr"] for panel in tree["panels"] for target in panel["targets"])


@pytest.mark.parametrize("used", [_rules, _dashboard])
def test_queries__name_only_what_is_exported(used):
    """A metric renamed in the code cannot leave an alert that never fires or a panel that stays empty."""
    names = set(USED.findall(used()))
    assert names - all_samples() == set()
    assert len(names) > 8


def test_dashboard__panels_lie_apart_and_ask_only_variables_there_are():
    """On Grafana's grid of 24 columns, each with an id of its own; every variable is defined."""
    tree = json.loads((ROOT / "site-configs/grafana-dashboard.json").read_text(encoding="utf-8"))
    spots = [
        (x, y)
        for place in (panel["gridPos"] for panel in tree["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert (len(set(spots)), max(x for x, _ in spots)) == (len(spots), 23)
    assert len({panel["id"] for panel in tree["panels"]}) == len(tree["panels"])
    known = {one["name"] for one in tree["templating"]["list"]} | {"__rate_interval", "__all"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(tree))) <= known


def test_dashboard__shows_every_metric():
    """None is exported that nobody would see; of histograms any part counts."""
    shown = set(USED.findall(_dashboard())) | set(USED.findall(_rules()))
    assert [metric.name for metric in METRICS if not shown & set(metric.samples)] == []


@pytest.mark.parametrize("used", [_rules, _dashboard])
def test_queries__name_only_label_values_there_are(used):
    """outcome="done" and the like are in the closed sets."""
    for name, selector in re.findall(r"(slurmsched_[a-z_]+)\{([^}]*)\}", used()):
        labels = next(metric.labels for metric in METRICS if name in metric.samples)
        for label, value in re.findall(r'(\w+)!?="([^"]*)"', selector):
            assert value in labels[label]


def test_names__follow_prometheus():
    """Counters end in _total, nothing else does; labels name nobody; every value of a closed set is there once."""
    assert [one.name for one in METRICS if (one.kind == COUNTER) != one.name.endswith("_total")] == []
    assert len(BY_NAME) == len(METRICS)
    labels = {label for metric in METRICS for label in metric.labels}
    assert labels & {"job", "job_id", "user", "account", "node", "instance"} == set()
    assert [m.name for m in METRICS for values in m.labels.values() if len(set(values)) != len(values)] == []


def test_rules__of_the_gate_are_all_there():
    """A new reason to leave jobs alone gets its label by itself."""
    every = (*JOB_RULES, *NODE_LIST_RULES, *START_RULES)
    assert {rule.name for rule in every if rule.in_scope} <= set(metric_catalog.RULE_NAMES)
    assert "not-pending" not in metric_catalog.RULE_NAMES


def test_left_alone__a_rule_nobody_foresaw_counts_as_other():
    """The set of labels stays closed whatever a planner says."""
    from slurmsched.observe.metric_catalog import _left_alone

    assert _left_alone(Plan(refused=(Refusal(1, "new", ""), Refusal(2, "held", "")))) == {"other": 1, "held": 1}


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [(3, "", "slurm"), (4, "", "ledger"), (5, "", "not-leading"), (6, "", "rights"), (75, "paused: x", "paused"),
     (75, "slurmctld has 60 threads", "busy"), (1, "", "other")],
)  # fmt: skip
def test_kind_of_end__by_exit_code(code, text, expected):
    """Each is one of ENDS."""
    assert metric_catalog.kind_of_end(code, text) == expected
    assert expected in metric_catalog.ENDS


def test_page__has_the_table_of_now():
    """docs/metrics.md is made by python -m slurmsched.observe.metric_catalog docs/metrics.md"""
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    assert metric_catalog.with_metrics_table(page) == page
    assert all(f"`{metric.full_name}`" in page for metric in METRICS)
