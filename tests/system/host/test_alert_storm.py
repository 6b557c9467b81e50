"""A failure of a thousand nodes at once: what of its alerts an Alertmanager with the configuration
of manifests/monitoring/README.md notifies of.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support import alertmanager, prometheus
from tests.support.alertmanager import Alertmanager
from tests.support.prometheus import MONITORING, TRIAGE, alerts
from tests.support.real_parts import lacks, require
from tests.support.switch import wait_for

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


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Alertmanager]:
    """Run an Alertmanager, whose configuration amtool has checked."""
    require(lacks("prometheus-alertmanager", "amtool"))
    with alertmanager.alerting(tmp_path / "alertmanager") as running:
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
