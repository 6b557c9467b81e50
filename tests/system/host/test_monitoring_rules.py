"""The files of manifests/monitoring: rules and their tests by promtool, and their equal parts."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.telemetry.metrics import COUNTED, OBSERVED
from tests.support.exposition import complete, text
from tests.support.prometheus import MONITORING, RULES, TRIAGE, alerts
from tests.support.real_parts import lacks, require

TESTS = tuple(sorted(MONITORING.glob("*.test.yaml")))
OBJECT = MONITORING / "prometheus-rule.yaml"
TOP = """\
# The rules of rules.yaml as an object of the Prometheus operator: tests hold the two equal, and
# rewrite this file by --update-golden.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: bwagent
  namespace: bwagent
  labels:
    app.kubernetes.io/name: bwagent
spec:
"""
NAMES = [rule["alert"] for rule in alerts()]


def promtool(*words: str | Path, stdin: str = "") -> str:
    """Return the output of promtool; a complaint of it fails the test."""
    require(lacks("prometheus", "promtool"))
    command = ["promtool", *words]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def expressions() -> list[str]:
    """Return every expression of the rules and of the dashboard."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return [rule["expr"] for group in groups for rule in group["rules"]] + [
        target["expr"] for panel in panels for target in panel.get("targets", ())
    ]


def test_promtool_has_no_complaint_about_the_exposition() -> None:
    """Prometheus' own linter reads all of it."""
    assert promtool("check", "metrics", stdin=text(complete())) == ""


def test_the_rules_are_understood() -> None:
    """Promtool checks them, its own lints included."""
    promtool("check", "rules", "--lint=all", "--lint-fatal", RULES, TRIAGE)


def test_the_scrape_configuration_is_understood(tmp_path: Path) -> None:
    """Promtool checks all of it but the discovery of Pods, which Debian's was built without."""
    configuration = yaml.safe_load((MONITORING / "scrape.yaml").read_text())
    [job] = configuration["scrape_configs"]
    [discovery] = job.pop("kubernetes_sd_configs")
    assert set(discovery) == {"role", "namespaces", "selectors"}
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    (tmp_path / "rules.yaml").symlink_to(RULES)
    promtool("check", "config", tmp_path / "prometheus.yaml")


@pytest.mark.parametrize("file", TESTS, ids=[file.name for file in TESTS])
def test_the_rules_do_as_they_should(file: Path) -> None:
    """Promtool runs the tests of the rules."""
    promtool("test", "rules", file)


def test_every_alert_has_both_tests() -> None:
    """There is a series for which each alert fires with all of its texts, and one for which it
    does not.
    """
    cases = [
        case
        for file in TESTS
        for test in yaml.safe_load(file.read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    for expected, what in ((True, "fires"), (False, "does not fire")):
        named = {case["alertname"] for case in cases if bool(case["exp_alerts"]) is expected}
        assert named == {*NAMES, "BwagentNodeInTriage"}, what


def test_the_object_has_the_rules(update_golden: bool) -> None:
    """The PrometheusRule is the text of rules.yaml, from its groups on."""
    lines = RULES.read_text().partition("\ngroups:")[2].splitlines()
    truth = TOP + "  groups:" + "\n".join(f"  {line}" if line else "" for line in lines) + "\n"
    if update_golden:
        OBJECT.write_text(truth)
    assert OBJECT.read_text() == truth
    assert yaml.safe_load(truth)["spec"] == yaml.safe_load(RULES.read_text())


def test_both_ways_of_finding_agents_set_the_same_labels() -> None:
    """The PodMonitor and the scrape configuration name the job `bwagent` and the label `node`."""
    monitor = yaml.safe_load((MONITORING / "pod-monitor.yaml").read_text())["spec"]
    [job] = yaml.safe_load((MONITORING / "scrape.yaml").read_text())["scrape_configs"]
    assert monitor["selector"]["matchLabels"][monitor["jobLabel"]] == job["job_name"] == "bwagent"
    source = "__meta_kubernetes_pod_node_name"
    [endpoint] = monitor["podMetricsEndpoints"]
    (relabeling,) = endpoint["relabelings"]
    assert relabeling == {"action": "replace", "sourceLabels": [source], "targetLabel": "node"}
    assert {"source_labels": [source], "target_label": "node"} in job["relabel_configs"]


def test_every_alert_has_its_texts() -> None:
    """An alert has a severity, a summary, a description, and its paragraph of the runbook."""
    for rule in alerts():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}
        anchor = rule["alert"].lower()
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{anchor}"


def test_the_runbook_has_every_alert(repository: Path) -> None:
    """The section of docs/operations.md has one paragraph for each alert, in their order."""
    text = (repository / "docs/operations.md").read_text()
    section = text.partition("\n## What to do when\n")[2].partition("\n## ")[0]
    titles = re.findall(r"^### (\w+)\n\n\w", section, re.MULTILINE)
    assert titles == NAMES


def test_every_series_exists() -> None:
    """Rules and dashboard name metrics that the agent has or rules record; nothing is recorded
    that nobody uses.
    """
    groups = yaml.safe_load(RULES.read_text())["groups"]
    recorded = {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
    known = {row.name for row in OBSERVED} | {row.name for row in COUNTED}
    for expression in expressions():
        for name in re.findall(r"\bbwagent[\w:]+", expression):
            assert name in recorded | known, (name, expression)
    assert recorded <= set(re.findall(r"bwagent:[\w:]+", " ".join(expressions())))


def test_places_on_the_dashboard() -> None:
    """No panel covers another, and each has its own number."""
    panels: list[dict[str, Any]] = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in panels):
        cells = {
            (place["x"] + column, place["y"] + line)
            for column in range(place["w"])
            for line in range(place["h"])
        }
        assert not taken & cells, place
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)
