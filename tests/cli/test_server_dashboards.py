"""The dashboard and the alerts of examples/servers: what they ask for is what a switch process with a job tells."""

from __future__ import annotations

import json
import re
import urllib.request
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import child
import pytest
from capabilities import need
from control_process import free_tcp_name
from listening_switch import listening, sum_once, workers
from waiting import LONG

SERVERS = Path(__file__).resolve().parent.parent.parent / "examples/servers"
DASHBOARD = json.loads((SERVERS / "ina-dashboard.json").read_text())
ALERTS = SERVERS / "ina-alerts.yml"
PANELS = DASHBOARD["panels"]
OWN = {"up": {"job": {"ina"}}}  # metrics that Prometheus makes itself
VARIABLES = {"$process": ".*", "$__rate_interval": "5m"}
COLUMNS = 24  # of Grafana's grid
METRIC = re.compile(r"(\b(?:ina_\w+|up)\b)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
GROUPED = re.compile(r"\b(?:by|on|group_left)\s*\(([^)]*)\)")

Exported = dict[str, dict[str, set[str]]]  # by metric and label, the label's values


def expressions() -> list[str]:
    texts = [target["expr"] for panel in PANELS for target in panel["targets"]]
    texts += re.findall(r"label_values\((.*), \w+\)", DASHBOARD["templating"]["list"][1]["query"]["query"])
    return [re.sub("|".join(map(re.escape, VARIABLES)), lambda each: VARIABLES[each[0]], text) for text in texts]


def rules() -> list[dict]:
    need("yaml")
    import yaml

    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def problems(expression: str, exported: Exported) -> list[str]:
    """Metrics, labels, and values of labels that an expression of PromQL asks for and nobody exports."""
    missing = []
    labels: set[str] = set()
    for metric, matchers in METRIC.findall(expression):
        if metric not in exported:
            missing.append(metric)
            continue
        labels |= exported[metric].keys()
        for label, operator, value in MATCHER.findall(matchers):
            there = exported[metric].get(label)
            wanted = value.split("|") if "~" in operator else [re.escape(value)]
            if there is None:
                missing.append(f"{metric}{{{label}}}")
            elif operator in ("=", "=~"):
                missing += [f'{metric}{{{label}="{each}"}}' for each in wanted if not any(re.fullmatch(each, v) for v in there)]
    grouped = {label.strip() for text in GROUPED.findall(expression) for label in text.split(",")}
    return missing + sorted(grouped - labels)


@pytest.fixture(scope="module")
def exported() -> Exported:
    """Metrics of a switch process while a job of two workers sums."""
    need("cc", "prometheus_client")
    from prometheus_client.parser import text_string_to_metric_families

    port = free_tcp_name().rpartition(":")[2]
    with listening("--metrics", port) as (_, name), workers(name, "small") as endpoints:
        sum_once(endpoints)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LONG) as answer:
            text = answer.read().decode()
    metrics: Exported = defaultdict(lambda: defaultdict(set))
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            for label, value in sample.labels.items():
                metrics[sample.name][label].add(value)
    return {**metrics, **OWN}


@pytest.mark.build
@pytest.mark.gate
def test_all_that_is_asked_for_is_exported(exported):
    texts = [*expressions(), *(rule["expr"] for rule in rules())]
    assert len(texts) > 20 and {text: wrong for text in texts if (wrong := problems(text, exported))} == {}


@pytest.mark.fast
@pytest.mark.parametrize(("expression", "wrong"), [
    ('sum by (process) (rate(ina_a_total{way="in"}[5m]))', []),
    ("ina_b", ["ina_b"]),
    ('ina_a_total{port="1"}', ["ina_a_total{port}"]),
    ('ina_a_total{way="up"}', ['ina_a_total{way="up"}']),
    ('ina_a_total{way=~"in|up"}', ['ina_a_total{way="up"}']),
    ('ina_a_total{way!="up"} * on (process, job) ina_a_total', ["job"]),
])
def test_what_is_missing_is_found(expression, wrong):
    assert problems(expression, {"ina_a_total": {"process": {"p"}, "way": {"in", "out"}}}) == wrong


@pytest.mark.fast
def test_the_dashboard_s_panels_have_places_and_sources_of_their_own():
    assert DASHBOARD["schemaVersion"] == 41 and DASHBOARD["templating"]["list"][0]["type"] == "datasource"
    assert len({panel["id"] for panel in PANELS}) == len({panel["title"] for panel in PANELS}) == len(PANELS)
    places = [(panel["title"], *(panel["gridPos"][key] for key in "xywh")) for panel in PANELS]
    assert all(x >= 0 and w > 0 and h > 0 and x + w <= COLUMNS for _, x, _, w, h in places)
    assert [(one[0], other[0]) for one, other in combinations(places, 2) if one[1] < other[1] + other[3]
            and other[1] < one[1] + one[3] and one[2] < other[2] + other[4] and other[2] < one[2] + one[4]] == []
    sources = [place["datasource"] for panel in PANELS for place in (panel, *panel["targets"])]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)
    for panel in PANELS:
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references) and panel["description"]


@pytest.mark.fast
def test_each_alert_says_what_it_is_about():
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) > 5
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical") and rule.keys() <= {
            "alert", "expr", "for", "labels", "annotations"}
        grouped = {label for text in GROUPED.findall(rule["expr"]) for label in text.replace(" ", "").split(",")}
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert used and (not grouped or used <= grouped), rule


@pytest.mark.build
def test_promtool_takes_the_alerts():
    need("promtool")
    done = child.run(["promtool", "check", "rules", ALERTS])
    assert done.returncode == 0, done.stdout + done.stderr
