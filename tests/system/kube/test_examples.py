"""manifests/examples on a real API server: what the container of weekly-check does with its own
account, and which requests flow-schema.yaml takes, and how many seats they have.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.commands import commands
from tests.support.fleet_nodes import annotation, leaf, node
from tests.support.helm.chart import CHART, helm
from tests.support.helm.chart import missing as no_helm
from tests.support.kube.agents import Agent, an_agent
from tests.support.kube.cluster import Cluster, KubectlError
from tests.support.kube.command import bwagent
from tests.support.kube.controllers import eventually
from tests.support.kube.lending import lent
from tests.support.kube.manifests import MANIFESTS
from tests.support.kube.operator import Operator
from tests.support.real_parts import require
from tests.support.sysfs_on_disk import a_node_without_rdma

WEEKLY = MANIFESTS / "examples/weekly-check"
NODES = "/api/v1/nodes"
KEY = "backend.coreweave.cloud/neighbors.current.ibp{}.device"


@pytest.fixture
def fleet(spare: Cluster) -> Iterator[Cluster]:
    """An API server with eight Nodes of one pattern, and the namespace of the agents."""
    with lent(spare) as cluster:
        cluster.kubectl("create", "namespace", "bwagent")
        now = int(time.time())
        for number in range(8):
            cluster.create(NODES, node(number, observed=annotation(number, time=now)))
        yield cluster


def blocks() -> list[list[str]]:
    text = (WEEKLY / "README.md").read_text()
    return [commands(part.partition("```")[0]) for part in text.split("```sh\n")[1:]]


def run(cluster: Cluster, folder: Path, name: str = "cabling-check") -> tuple[int, str]:
    """Run the container of the CronJob as it is stored: its arguments, its files, its account."""
    path = f"/apis/batch/v1/namespaces/bwagent/cronjobs/{name}"
    spec = cluster.request("GET", path).body["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container], [volume] = spec["containers"], spec["volumes"]
    assert container["image"].startswith("registry.example.com/bwagent:")
    name = volume["configMap"]["name"]
    files = cluster.request("GET", f"/api/v1/namespaces/bwagent/configmaps/{name}").body["data"]
    mounted = folder / "mounted"
    mounted.mkdir(exist_ok=True)
    for file, text in files.items():
        (mounted / file).write_text(text)
    place = container["volumeMounts"][0]["mountPath"]
    words = [word.replace(place, str(mounted)) for word in container["args"]]
    token = cluster.token_for_pod_on(None, spec["serviceAccountName"], "bwagent")
    done = bwagent(*words, kubeconfig=cluster.kubeconfig(token))
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def test_the_check_of_a_week(fleet: Cluster, tmp_path: Path) -> None:
    """Nothing is found; then two crossed cables, until they are in the baseline. The commands are
    those of the README.
    """
    operator, (install, renew) = Operator(fleet, tmp_path), blocks()
    operator.run(*install)
    code, text = run(fleet, tmp_path)
    assert code == 0, text
    crossed = {KEY.format(0): leaf(0, 1), KEY.format(1): leaf(0, 0)}
    fleet.merge("gpu-00000", {"labels": crossed})
    code, text = run(fleet, tmp_path)
    assert (code, "gpu-00000" in text) == (3, True), text
    words = renew[0].split()[1:]
    words = [str(tmp_path / word) if "/" in word else word for word in words]
    bwagent(*words, kubeconfig=fleet.kubeconfig())
    operator.run(renew[1])
    code, text = run(fleet, tmp_path)
    assert code == 0, text


def test_by_the_chart(fleet: Cluster, tmp_path: Path) -> None:
    """A value of the chart makes the same, with a baseline in a ConfigMap of the site's."""
    require(no_helm())
    baseline = f"--from-file={WEEKLY / 'baseline.csv'}"
    fleet.kubectl("create", "configmap", "accepted", "-n", "bwagent", baseline)
    image = ("--set", "image.repository=registry.example.com/bwagent")
    check = ("--set", "check.enabled=true,check.baseline.configMap=accepted")
    flags = ("-n", "bwagent", *image, *check, "-f", str(CHART / "profiles/lldp.yaml"))
    helm("install", "bwagent", str(CHART), *flags, kubeconfig=fleet.kubeconfig())
    code, text = run(fleet, tmp_path, "bwagent-check")
    assert code == 0, text
    crossed = {KEY.format(0): leaf(0, 1), KEY.format(1): leaf(0, 0)}
    fleet.merge("gpu-00000", {"labels": crossed})
    assert run(fleet, tmp_path, "bwagent-check")[0] == 3
    token = fleet.token_for_pod_on(None, "bwagent-check", "bwagent")
    assert fleet.merge("gpu-00000", {"labels": {"a": "b"}}, token=token).status == 403


def test_its_account_changes_nothing(fleet: Cluster) -> None:
    """It lists Nodes, and may neither patch them nor read anything else."""
    fleet.kubectl("apply", "--server-side", "-k", str(WEEKLY))
    token = fleet.token_for_pod_on(None, "cabling-check", "bwagent")
    assert fleet.request("GET", NODES, token=token).status == 200
    assert fleet.merge("gpu-00000", {"labels": {"a": "b"}}, token=token).status == 403
    with pytest.raises(KubectlError, match="orbidden"):
        fleet.kubectl("get", "secrets", "-n", "bwagent", token=token)


def test_one_job_at_a_time() -> None:
    """No second Job begins beside one that runs, none is repeated, and the Pod is no agent's."""
    job = yaml.safe_load((WEEKLY / "cronjob.yaml").read_text())["spec"]
    of_job = job["jobTemplate"]["spec"]
    assert (job["concurrencyPolicy"], of_job["backoffLimit"]) == ("Forbid", 0)
    assert of_job["template"]["metadata"]["labels"] == {"app.kubernetes.io/name": "cabling-check"}


FLOWS = str(MANIFESTS / "examples/flow-schema.yaml")


@pytest.fixture(scope="module")
def schema(installed: Cluster) -> Iterator[str]:
    """The UID of the example's FlowSchema, once it is in force."""
    uid = created(installed)
    agent = an_agent(installed, "bwagent")
    eventually(installed, "the schema", lambda: taken(installed, agent) == uid)
    yield uid
    installed.kubectl("delete", "-f", FLOWS)


def created(cluster: Cluster) -> str:
    """Apply the example, by strict validation and without a warning."""
    flags = ("--server-side", "--validate=strict", "--warnings-as-errors")
    uid = 'jsonpath={.items[?(@.kind=="FlowSchema")].metadata.uid}'
    return cluster.kubectl("apply", *flags, "-f", FLOWS, "-o", uid)


def taken(cluster: Cluster, agent: Agent) -> str:
    return cluster.request("GET", agent.path, token=agent.token).flow_schema


def metric(cluster: Cluster, name: str, label: str) -> float:
    """Return the sum of the API server's samples of this name with this label."""
    text = cluster.kubectl("get", "--raw", "/metrics")
    rows = re.findall(rf"^{name}\{{(.*)\}} (\S+)$", text, re.MULTILINE)
    return sum(float(value) for labels, value in rows if label in labels.split(","))


def test_the_agents_own_requests(installed: Cluster, schema: str, agent: Agent) -> None:
    """Every request of the account falls under the schema, one that is refused, too."""
    assert taken(installed, agent) == schema
    assert agent.apply({}).flow_schema == schema
    assert agent.merge({"metadata": {"labels": {"foreign": "1"}}}).flow_schema == schema
    events = "/api/v1/namespaces/default/events"
    assert installed.request("POST", events, {}, token=agent.token).flow_schema == schema


def test_requests_of_others(installed: Cluster, schema: str, mighty: Agent) -> None:
    """Neither the administrator's nor those of an account of that name in another namespace."""
    assert mighty.apply({}).flow_schema not in {schema, ""}
    assert installed.request("GET", mighty.path).flow_schema not in {schema, ""}


@pytest.mark.usefixtures("schema")
def test_probe_falls_under_it(installed: Cluster, agent: Agent, tmp_path: Path) -> None:
    """The API server counts the two requests of a real `probe` there."""
    name, label = "apiserver_flowcontrol_dispatched_requests_total", 'flow_schema="bwagent"'
    before = metric(installed, name, label)
    where = ("--sysfs-root", str(a_node_without_rdma(tmp_path)), "--node-name", agent.node)
    done = bwagent("probe", "--no-wait", *where, kubeconfig=installed.kubeconfig(agent.token))
    assert done.returncode == 0, done.stderr
    assert metric(installed, name, label) == before + 2


@pytest.mark.usefixtures("schema")
def test_the_seats(installed: Cluster) -> None:
    """The level has the seats that the example says."""
    name, level = "apiserver_flowcontrol_nominal_limit_seats", 'priority_level="bwagent"'
    assert metric(installed, name, level) == 22
