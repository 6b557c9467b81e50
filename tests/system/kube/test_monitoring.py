"""The rules and the dashboard of manifests/monitoring on a real Prometheus that scrapes real
agents: on hosts of a simulated fabric, with their Nodes on a real API server.

All is well first: no alert fires or is about to, and every query of the dashboard has a result, but
for those about faults. Then everything breaks, and every alert fires.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import fabric as simulated
from tests.support import prometheus, stand_in_nvml
from tests.support.fabric import Fabric
from tests.support.fabrics import one_leaf
from tests.support.kernel_tree import BUS, CLASS, HOME, NET, Entries, card, gpu, hca
from tests.support.kube.agents import refusing
from tests.support.kube.cluster import Answer, Cluster
from tests.support.kube.resident import IB, Agent, P
from tests.support.prometheus import MONITORING, Prometheus
from tests.support.real_parts import require
from tests.support.sysfs_on_disk import remove

SECOND = "0000:19:00.0"
TREE = hca("ibsim0", "0000:18:00.0") | {f"{NET}/lo": None} | gpu()
# Never cabled, and no fault.
SPARE = card("ibp3", SECOND) | {
    f"{HOME}/{SECOND}/infiniband/ibp3/ports/1/state": b"1: DOWN\n",
    f"{HOME}/{SECOND}/infiniband/ibp3/ports/1/phys_state": b"2: Polling\n",
}
PATIENCE = 120.0  # seconds that any step may take
IN_PROGRESS = 2  # NVML_GPU_FABRIC_STATE_IN_PROGRESS
A, EXPECTED = "monitored-a", f"{P}/neighbors.expected.ibsim0.device"
# Panels whose queries are empty while all is well; each has a result when everything is broken.
OF_FAULTS = {
    *("Alerts", "Ports down", "Leaves with ports down", "Findings", "Findings of the node"),
    "Missing neighbors",
}
# The alerts of what goes wrong before any link is lost.
FIRST = (
    *("BwagentPortLost", "BwagentPortFlapping", "BwagentSpeedBelowExpected", "BwagentWrongCable"),
    *("BwagentNvlinkDomainGone", "BwagentLabelsHeld", "BwagentLabelsRefused", "BwagentNotApplied"),
    *("BwagentPolicyNotInForce", "BwagentNodeUnknown", "BwagentPlanNotInUse"),
)
WITHOUT_LINKS = (
    *("BwagentPortDown", "BwagentLeafPortsDown", "BwagentCableMissing"),
    "BwagentSpeedBelowYesterday",
)
AT_THE_END = (
    *("BwagentSourceFailing", "BwagentAgentNotReady"),
    *("BwagentAgentDown", "BwagentAgentsAbsent"),
)
# Of two agents on a node, of readings an hour apart, and of drivers.
ELSEWHERE = ("BwagentSecondAgent", "BwagentLinkUnstable", "BwagentNicUnhealthy")


def queries() -> list[tuple[str, str]]:
    """Return title and expression of every query of the dashboard, with its variables set."""
    board = json.loads((MONITORING / "dashboard.json").read_text())
    return [
        (panel["title"], target["expr"].replace("$node", A).replace("$leaf", "leaf1"))
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]


def variables() -> dict[str, str]:
    """Return the query of each variable of the dashboard as an expression with its values."""
    board = json.loads((MONITORING / "dashboard.json").read_text())
    queries = [one["query"]["query"] for one in board["templating"]["list"][1:]]
    named = [query.removeprefix("label_values(").removesuffix(")") for query in queries]
    pairs = [one.split(", ") for one in named]
    return {label: f"count by ({label}) ({metric})" for metric, label in pairs}


class Site(NamedTuple):
    """Three nodes under one leaf, with GPUs of a driver, and the Prometheus that scrapes them."""

    a: Agent
    b: Agent
    c: Agent
    driver: Path  # the library; beside it the plan of its answers
    prometheus: Prometheus

    @property
    def targets(self) -> dict[str, str]:
        """The addresses of the agents by their Nodes."""
        return targets(self.a, self.b, self.c)

    def empty(self) -> set[str]:
        """Return the titles of the dashboard's panels that have a query without a result."""
        return {title for title, query in queries() if not self.prometheus.query(query)}

    def label(self, agent: Agent, labels: dict[str, str], query: str = "") -> Answer:
        return agent.cluster.merge(agent.node, {"labels": labels}, query)

    def refuse(self) -> None:
        """Refuse all changes of the Node of b; a fresh policy takes a moment."""
        self.b.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=refusing(self.b.node))
        changed = {"changed": "true"}
        wait(lambda: self.label(self.b, changed, "?dryRun=All").status != 422)

    def fires(self, *names: str) -> None:
        """Wait until each of these alerts has fired."""
        fired: set[str] = set()

        def missing() -> set[str]:
            fired.update(self.prometheus.alerts())
            return set(names) - fired

        wait(missing)

    def goes_wrong(self) -> None:
        """Refuse the labels of b, and take an HCA of it away; a is planned elsewhere, its link
        flaps, and its GPUs are registering; the plan of c contradicts itself.
        """
        self.refuse()
        remove(self.b.folder, f"{CLASS}/ibp3", f"{BUS}/{SECOND}", f"{HOME}/{SECOND}")
        self.label(self.a, {f"{P}/speed.expected": "9999G", EXPECTED: "leaf9"})
        self.label(self.c, {EXPECTED.replace(P, IB): "leaf9"})
        self.a.set("ibsim0", "counters/link_downed", "9")
        new = self.driver.with_name("new")
        new.write_text(stand_in_nvml.gpu(0, state=IN_PROGRESS))
        new.replace(self.driver.with_name("plan"))
        for agent in (self.a, self.b, self.c):
            agent.look()

    def leaf_fails(self) -> None:
        """Let every port at the leaf lose its link."""
        for agent in (self.a, self.b, self.c):
            agent.set("ibsim0", "state", "1: DOWN")
            agent.set("ibsim0", "phys_state", "2: Polling")


def targets(*agents: Agent) -> dict[str, str]:
    return {agent.node: agent.served for agent in agents}


def wait(missing: Callable[[], object]) -> None:
    """Wait until nothing is missing any more."""
    deadline = time.monotonic() + PATIENCE
    while found := missing():
        assert time.monotonic() < deadline, found
        time.sleep(0.3)


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    require(simulated.missing("cc", "prometheus", "promtool"))
    folder = tmp_path_factory.mktemp("site")
    driver = Path(stand_in_nvml.build(folder / "driver"))
    plan = driver.with_name("plan")
    plan.write_text(stand_in_nvml.gpu(0))
    flags = ("--nvml-library", str(driver), "--verdict-delay", "0.2s")
    with ExitStack() as stack:
        fabric = stack.enter_context(Fabric(one_leaf("a", "b", "c"), folder))

        def agent(host: str, more: Entries) -> Agent:
            node = f"monitored-{host}"
            cluster.node(node, labels={EXPECTED: "leaf1"})
            place = (cluster, folder / host, node, TREE | more)
            given = {"STAND_IN_NVML": str(plan)}
            one = Agent(*place, *flags, under=fabric.under(host), environment=given)
            return stack.enter_context(one)

        agents = agent("a", {}), agent("b", SPARE), agent("c", {})
        server = prometheus.scraping(folder / "prometheus", targets(*agents))
        yield Site(*agents, driver, stack.enter_context(server))


def test_all_is_well(site: Site) -> None:
    """No alert fires or is about to, but for labels that are held for half a minute after the
    start, and for the policy, which does not restrict these agents' account; every query of the
    dashboard is understood, and has a result unless it is about faults.
    """
    early = {"BwagentLabelsHeld", "BwagentPolicyNotInForce"}
    wait(lambda: (site.empty() ^ OF_FAULTS) | (site.prometheus.alerts("pending") - early))
    assert site.prometheus.alerts() == set()
    chosen = {
        label: {one["metric"][label] for one in site.prometheus.query(query)}
        for label, query in variables().items()
    }
    assert chosen == {"node": {*site.targets}, "leaf": {"leaf1"}}
    assert site.b.metrics().holds("bwagent_port_state", "state", interface="ibp3") == ["DOWN"]


def test_every_alert_fires(site: Site) -> None:
    """Policy, HCA, cable, GPUs, leaf, driver, Node and agents fail one after the other; then every
    query of the dashboard about faults has a result, too.
    """
    site.prometheus.hurry({**site.targets, "": site.a.served})
    site.goes_wrong()
    site.fires(*FIRST)
    site.leaf_fails()
    site.fires(*WITHOUT_LINKS)
    wait(lambda: site.empty() & OF_FAULTS)
    site.driver.unlink()
    site.fires(AT_THE_END[0])
    site.a.cluster.request("DELETE", f"/api/v1/nodes/{A}")
    site.a.look()
    site.fires(AT_THE_END[1])
    for agent in (site.a, site.b, site.c):
        agent.stop()
    site.fires(*AT_THE_END[2:])


def test_no_other_alert_is_there() -> None:
    """The alerts that fire above are all that there are, but for those that are told elsewhere."""
    names = [*FIRST, *WITHOUT_LINKS, *AT_THE_END, *ELSEWHERE]
    assert sorted(names) == sorted(rule["alert"] for rule in prometheus.alerts())
