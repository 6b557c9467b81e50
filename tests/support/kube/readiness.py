"""The recipe in manifests/examples/cabling-readiness: its objects, and its reporter.

The reporter does what readiness-condition-reporter of node-readiness-controller 0.4 does, whose
program is not built here. The controller, which sets the taint, is not part of any test.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import urllib3

from tests.support.kube.agents import a_node
from tests.support.kube.cluster import ISSUER, Answer, Cluster
from tests.support.kube.controllers import define
from tests.support.kube.manifests import MANIFESTS, Object, objects

DEFINITION = Path(__file__).with_name("readiness_rule.yaml")
RULES = "/apis/readiness.node.x-k8s.io/v1alpha1/nodereadinessrules"
RECIPE = MANIFESTS / "examples" / "cabling-readiness"
ACCOUNT, NAMESPACE = "cabling-reporter", "cabling-readiness"
CONDITION = "example.com/CabledAsPlanned"

CHECK_TIMEOUT = 10.0  # seconds for a whole check
MAX_BODY_BYTES = 64 * 1024  # of a body that becomes a message


class Check(NamedTuple):
    """The result of one check, as the condition shows it; never Unknown."""

    status: str
    reason: str
    message: str


def check(url: str, timeout: float = CHECK_TIMEOUT) -> Check:
    """Send one request: a status of 2xx is True, everything else False."""
    with urllib3.PoolManager() as pool:
        try:
            answer = pool.request("GET", url, timeout=urllib3.Timeout(total=timeout), retries=False)
        except urllib3.exceptions.HTTPError as error:
            return Check("False", "EndpointConnectionError", f"{url}: {error}")
    if 200 <= answer.status < 300:
        return Check("True", "EndpointOK", f"{url} is ready")
    text = answer.data[:MAX_BODY_BYTES].decode(errors="replace")
    return Check("False", "EndpointNotReady", f"{url} answered {answer.status}: {text}")


@dataclass(frozen=True, slots=True)
class Reporter:
    """The reporter of one Node, with the token of its Pod."""

    cluster: Cluster
    node: str
    token: str

    def report(self, found: Check) -> Answer:
        """Write the condition; one that somebody else was faster than is written again."""
        node = self.cluster.request("GET", f"/api/v1/nodes/{self.node}", token=self.token).body
        conditions = node["status"].setdefault("conditions", [])
        old = next((one for one in conditions if one["type"] == CONDITION), None)
        new = self._new(found, old)
        node["status"]["conditions"] = [one for one in conditions if one is not old] + [new]
        answer = self.put(node)
        return self.report(found) if answer.status == 409 else answer

    def condition(self) -> dict[str, Any]:
        """Return the condition of the Node; empty without one."""
        node = self.cluster.request("GET", f"/api/v1/nodes/{self.node}").body
        found = (one for one in node["status"].get("conditions", []) if one["type"] == CONDITION)
        return next(found, {})

    def put(self, node: Object, query: str = "") -> Answer:
        path = f"/api/v1/nodes/{node['metadata']['name']}/status{query}"
        return self.cluster.request("PUT", path, node, token=self.token)

    def _new(self, found: Check, old: dict[str, Any] | None) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        is_same = old is not None and old["status"] == found.status
        return {
            "type": CONDITION,
            **found._asdict(),
            "lastHeartbeatTime": now,
            "lastTransitionTime": old["lastTransitionTime"] if old and is_same else now,
        }


def denied(answer: Answer) -> bool:
    """True if the reporter's policy refused the request."""
    return answer.status == 422 and "ValidatingAdmissionPolicy 'cabling-reporter'" in answer.message


def built(folder: Path) -> list[Object]:
    """Return the objects that kubectl builds from a folder; a warning is an error."""
    return deepcopy(list(objects(str(folder))))


def the_daemon_set(folder: str) -> Object:
    (found,) = (one for one in built(RECIPE / folder) if one["kind"] == "DaemonSet")
    return found


def install_gate(cluster: Cluster) -> None:
    define(cluster, [RULES], DEFINITION)
    cluster.kubectl("apply", "--server-side", "-k", str(RECIPE / "gate"))


def a_reporter(
    cluster: Cluster, account: str = ACCOUNT, prefix: str = ACCOUNT, node: str = ""
) -> Reporter:
    """Return a reporter on a Node, else on a new one, with the token of a Pod of the DaemonSet."""
    node = node or a_node(cluster)
    template = the_daemon_set("gate")["spec"]["template"]
    template["metadata"]["generateName"] = f"{prefix}-"
    template["spec"] |= {"nodeName": node, "serviceAccountName": account}
    pod = cluster.create(f"/api/v1/namespaces/{NAMESPACE}/pods", template)["metadata"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
    spec = {"audiences": [ISSUER], "boundObjectRef": bound}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    token = cluster.create(path, {"spec": spec})["status"]["token"]
    return Reporter(cluster, node, str(token))
