"""The files of manifests/monitoring: rules and their tests by promtool, and their equal parts; what
an Alertmanager with the configuration of the README notifies of; and a scrape over TLS as it shows.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from agent.telemetry.metrics import COUNTED, OBSERVED, Exposition, Metrics
from agent.telemetry.readiness import Status
from agent.telemetry.server import Certificates, Files, Server
from tests.support import prometheus
from tests.support.certificates import made
from tests.support.exposition import complete, text
from tests.support.kube.manifests import Object
from tests.support.kube.programs import free_ports, running, until_answers
from tests.support.prometheus import LIMIT, MONITORING, RULES, TRIAGE, alerts
from tests.support.real_parts import lacks, require
from tests.support.switch import wait_for

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


THOUSAND = 1000
wait = partial(wait_for, patience=300.0)  # seconds
UP = """\
bwagent_build_info{{node="{node}"}} 1
bwagent_port_state{{node="{node}",interface="ibp0",state="ACTIVE"}} 1
bwagent_port_state{{node="{node}",interface="ibp0",state="DOWN"}} 0
bwagent_neighbor_info{{node="{node}",interface="ibp0",device="leaf1",selected="true"}} 1
bwagent_speed_bytes_per_second{{node="{node}"}} 5e10
"""
DOWN = """\
bwagent_build_info{{node="{node}"}} 1
bwagent_port_state{{node="{node}",interface="ibp0",state="ACTIVE"}} 0
bwagent_port_state{{node="{node}",interface="ibp0",state="DOWN"}} 1
bwagent_speed_bytes_per_second{{node="{node}"}} 0
bwagent_findings{{node="{node}",interface="ibp0",code="missing"}} 1
bwagent_findings{{node="{node}",interface="",code="speed"}} 1
"""
FOR_EACH_NODE = (
    *("BwagentPortDown", "BwagentCableMissing"),
    *("BwagentSpeedBelowExpected", "BwagentSpeedBelowYesterday"),
)


class Page(BaseHTTPRequestHandler):
    """The series of all nodes on one page."""

    text = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.text)

    def log_message(self, *_: object) -> None:
        pass


def page(template: str, nodes: int) -> bytes:
    return "".join(template.format(node=f"n{number}") for number in range(nodes)).encode()


PROGRAM = "prometheus-alertmanager"


def configuration() -> str:
    """Return the README's part of a configuration with the rest that one needs."""
    section = (MONITORING / "README.md").read_text().partition("\n## Alerts\n")[2]
    text = section.partition("```yaml\n")[2].partition("```")[0]
    shown: Object = yaml.safe_load(text)
    route = {**shown["route"], "receiver": "nobody", "group_wait": "1s"}
    return yaml.safe_dump({**shown, "route": route, "receivers": [{"name": "nobody"}]})


class Alertmanager(NamedTuple):
    """An Alertmanager; `address` is where it answers."""

    address: str

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self.address}/api/v2{path}", timeout=LIMIT) as reply:
            return json.load(reply)

    def alerts(self, query: str = "") -> Counter[str]:
        """Return the numbers of alerts by name, of all of them or those of a query."""
        return Counter(one["labels"]["alertname"] for one in self.get(f"/alerts?{query}"))

    def notified(self) -> list[str]:
        """Return the alerts that a notification would have, one name for each notification."""
        groups = self.get("/alerts/groups?inhibited=false")
        return sorted(group["labels"]["alertname"] for group in groups if group["alerts"])

    def send(self, *alerts: dict[str, str]) -> None:
        """Let these alerts fire, by their labels."""
        body = json.dumps([{"labels": labels} for labels in alerts]).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.address}/api/v2/alerts", body, headers)
        urllib.request.urlopen(request, timeout=LIMIT).close()  # noqa: S310 - our own server


@contextmanager
def alerting(folder: Path) -> Iterator[Alertmanager]:
    folder.mkdir()
    (folder / "alertmanager.yaml").write_text(configuration())
    check = ["amtool", "check-config", str(folder / "alertmanager.yaml")]
    subprocess.run(check, check=True, capture_output=True)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    arguments = (
        *("--config.file=alertmanager.yaml", "--storage.path=data", "--cluster.listen-address="),
        *(f"--web.listen-address={address}", "--log.level=warn"),
    )
    with running(PROGRAM, arguments, folder, shutil.which(PROGRAM)):
        until_answers(f"http://{address}/api/v2/status", folder)
        yield Alertmanager(address)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Alertmanager]:
    """Run an Alertmanager, whose configuration amtool has checked."""
    require(lacks("prometheus-alertmanager", "amtool"))
    with alerting(tmp_path / "alertmanager") as running:
        yield running


@pytest.fixture
def served() -> Iterator[str]:
    """Serve the page; return its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("nodes", [50, pytest.param(THOUSAND, marks=pytest.mark.sweep)])
def test_a_leaf_fails(manager: Alertmanager, served: str, tmp_path: Path, nodes: int) -> None:
    """All nodes lose their port at one leaf: four alerts for each, and one notification."""
    require(lacks("prometheus", "promtool"))
    Page.text = page(UP, nodes)
    folder = tmp_path / "prometheus"
    with prometheus.scraping(folder, {"": served}, manager.address) as server:
        yesterday = "count(bwagent:speed_bytes_per_second:max1h offset 8s)"
        wait(lambda: bool(server.query(yesterday)))
        assert not manager.alerts()
        Page.text = page(DOWN, nodes)
        most: Counter[str] = Counter()  # yesterday is a matter of seconds here

        def all_fired() -> bool:
            most.update(manager.alerts() - most)
            return most == {**dict.fromkeys(FOR_EACH_NODE, nodes), "BwagentLeafPortsDown": 1}

        wait(all_fired)
        wait(lambda: manager.notified() == ["BwagentLeafPortsDown"])
        assert manager.alerts("inhibited=false") == {"BwagentLeafPortsDown": 1}


def test_nodes_that_are_away(manager: Alertmanager) -> None:
    """A thousand agents that do not answer are one notification, and none if there is no agent."""
    of_all = {"alertname": "BwagentAgentDown", "severity": "warning"}
    manager.send(*({**of_all, "node": f"n{number}"} for number in range(THOUSAND)))
    wait(lambda: manager.notified() == ["BwagentAgentDown"])
    manager.send({"alertname": "BwagentAgentsAbsent", "severity": "critical"})
    wait(lambda: manager.notified() == ["BwagentAgentsAbsent"])
    assert manager.alerts().total() == THOUSAND + 1


def test_one_node_keeps_its_alerts(manager: Alertmanager) -> None:
    """Nothing is inhibited by what another leaf or node has."""
    down = {"alertname": "BwagentPortDown", "interface": "ibp0"}
    mine = [
        {**down, "node": "a", "leaf": "leaf2"},
        {**down, "node": "b"},  # whose leaf is not known
        {"alertname": "BwagentSpeedBelowYesterday", "node": "c"},
        {"alertname": "BwagentNotApplied", "node": "d"},
        {"alertname": "BwagentLabelsHeld", "node": "e"},
    ]
    others = [
        {"alertname": "BwagentLeafPortsDown", "leaf": "leaf1"},
        {"alertname": "BwagentLabelsRefused", "node": "z"},
        {"alertname": "BwagentSourceFailing", "node": "z", "source": "ib"},
    ]
    manager.send(*mine, *others)
    wait(lambda: manager.alerts().total() == len(mine) + len(others))
    assert not manager.alerts("inhibited=true&active=false")


def test_a_node_in_triage(manager: Alertmanager) -> None:
    """None of its own alerts is left; those of other nodes, and of a leaf, are."""
    triage = {"alertname": "BwagentNodeInTriage", "severity": "none", "node": "a"}
    of_node = ("BwagentPortDown", "BwagentAgentDown", "BwagentNodeInTriage")
    others = [{"alertname": name, "node": "b", "severity": "warning"} for name in of_node[:2]]
    others.append({"alertname": "BwagentLeafPortsDown", "leaf": "leaf1", "severity": "critical"})
    muted = [{"alertname": name, "node": "a", "severity": "warning"} for name in of_node[:2]]
    manager.send(triage, *others, *muted)
    wait(lambda: manager.alerts("inhibited=true&active=false") == dict.fromkeys(of_node[:2], 1))
    assert manager.alerts("inhibited=false").total() == len(others) + 1


def test_the_configuration_names_alerts() -> None:
    """Each name in the configuration is that of an alert, and each pattern that of several."""
    names = [rule["alert"] for rule in (*alerts(), *alerts(TRIAGE))]
    text = (MONITORING / "README.md").read_text()
    given = re.findall(r'alertname=~?"([^"]+)"', text)
    for pattern in (one for row in given for one in row.split("|")):
        assert any(re.fullmatch(pattern, name) for name in names), pattern


# The operator mounts each key of a Secret as a file, and names the fields as Prometheus does.
SECRETS = {
    "bwagent-metrics/ca.crt": "ca.pem",
    "bwagent-prometheus/tls.crt": "client.pem",
    "bwagent-prometheus/tls.key": "client.key",
}


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """Make ca.pem and, signed by it, server.pem and client.pem with their keys."""
    require(lacks("prometheus", "promtool", "openssl"))
    made(tmp_path, "ca")
    made(tmp_path, "server", by="ca", alias="DNS:bwagent")
    made(tmp_path, "client", by="ca")
    return tmp_path


def shown() -> dict[str, Any]:
    """Return the tlsConfig of the README's values."""
    section = (MONITORING / "README.md").read_text().partition("\n### With TLS\n")[2]
    values = yaml.safe_load(section.split("```yaml\n")[2].partition("```")[0])
    found: dict[str, Any] = values["metrics"]["podMonitor"]["tlsConfig"]
    return found


def tls_config(folder: Path, of: dict[str, Any]) -> dict[str, str]:
    """Return a tlsConfig of the operator as Prometheus has it."""
    rows = {"ca": of["ca"]["secret"], "cert": of["cert"]["secret"], "key": of["keySecret"]}
    files = {
        f"{name}_file": str(folder / SECRETS[f"{row['name']}/{row['key']}"])
        for name, row in rows.items()
    }
    return {**files, "server_name": of["serverName"]}


def scraped(folder: Path, address: str, tls: dict[str, str]) -> str:
    """Return the value of `up` after the first scrape."""
    target = {"a": address}
    with prometheus.scraping(folder, target, scheme="https", tls_config=tls) as server:
        found = wait_for(lambda: server.query('up{job="bwagent"}'), 120.0)
        return str(found[0]["value"][1])


def test_the_example(certificates: Path) -> None:
    """It is scraped as shown; under another name, or without the certificate, it is not."""
    files = Files(*(str(certificates / name) for name in ("server.pem", "server.key", "ca.pem")))
    server = Server(
        ("127.0.0.1", 0), Exposition(Metrics()), Status(), certificates=Certificates(files)
    )
    tls = tls_config(certificates, shown())
    bare = {key: tls[key] for key in ("ca_file", "server_name")}
    cases = {
        "as-shown": (tls, "1"),
        "named": ({**tls, "server_name": "a"}, "0"),
        "bare": (bare, "0"),
    }
    with closing(server):
        address = f"127.0.0.1:{server.address[1]}"
        for name, (given, up) in cases.items():
            assert scraped(certificates / name, address, given) == up, name
