"""Every field of a Node and of an Event that the API server stores: no request with the agent's
token stores anything there that is not in docs/threat-model.md, which has the rule for each field.
"""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.support.kube.agents import P
from tests.support.kube.attacks import (
    AS_BWAGENT,
    EVENTS,
    JUNK,
    MAX_MESSAGE,
    SITE,
    TAINT,
    Scene,
    an_event,
    scene,
)
from tests.support.kube.cluster import APPLY, JSON_PATCH, MERGE, STRATEGIC, Answer, Cluster

Object = dict[str, Any]


THREAT_MODEL = Path(__file__).parents[3] / "docs/threat-model.md"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
TIME, MICRO_TIME = "2000-01-01T00:00:00Z", "2000-01-01T00:00:00.000000Z"
# What an attacker would have stored, by field.
METADATA: Object = {
    "metadata.annotations": {"mine": "x"},
    "metadata.creationTimestamp": TIME,
    "metadata.deletionGracePeriodSeconds": 99,
    "metadata.deletionTimestamp": TIME,
    "metadata.finalizers": ["site.example/mine"],
    "metadata.generateName": "mine-",
    "metadata.generation": 99,
    "metadata.labels": {"mine": "x"},
    "metadata.managedFields": [
        {
            "manager": "mine",
            "operation": "Update",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": JUNK,
        }
    ],
    "metadata.name": "x" * 254,
    "metadata.namespace": "mine",
    "metadata.ownerReferences": [
        {"apiVersion": "v1", "kind": "Node", "name": "mine", "uid": "1-2-3"}
    ],
    "metadata.resourceVersion": "1",
    "metadata.selfLink": "/mine",
    "metadata.uid": "1-2-3",
    "metadata.managedFields.apiVersion": "v2",
    "metadata.managedFields.fieldsType": "FieldsV2",
    "metadata.managedFields.fieldsV1": {"f:metadata": {"f:labels": {f"f:{SITE}": JUNK}}},
    "metadata.managedFields.manager": "mine",
    "metadata.managedFields.operation": "Mine",
    "metadata.managedFields.subresource": "mine",
    "metadata.managedFields.time": TIME,
}
NODE: Object = {
    "apiVersion": "v2",
    "kind": "Mine",
    "spec": {"taints": [TAINT]},
    "status": {"phase": "Mine"},
    **METADATA,
}
EVENT: Object = {
    "apiVersion": "v2",
    "kind": "Mine",
    "action": "mine",
    "count": 2**40,
    "eventTime": MICRO_TIME,
    "firstTimestamp": "x" * 100,
    "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "mine", "uid": "mine"},
    "lastTimestamp": "x" * 100,
    "message": "x" * (MAX_MESSAGE + 1),
    "reason": "Mine",
    "related": {"kind": "Node", "name": "mine"},
    "reportingComponent": "mine",
    "reportingInstance": "mine",
    "series": {"count": 2, "lastObservedTime": MICRO_TIME},
    "source": {"component": "mine"},
    "type": "Normal",
    **METADATA,
}


@pytest.fixture(scope="module")
def stage(installed: Cluster) -> Scene:
    """A token with all permissions of RBAC, restricted by the policies alone."""
    return scene(installed, "bwagent", "mighty", P)


def put(value: Object, path: str, new: object) -> Object:
    """Return an object with another value in a field; in that of each entry of managedFields."""
    value = deepcopy(value)
    *above, last = path.split(".")
    places: list[Object] = [value]
    for name in above:
        inner = [place[name] for place in places]
        places = [one for part in inner for one in (part if isinstance(part, list) else [part])]
    for place in places:
        place[last] = new
    return value


def requests(stage: Scene, at: str, path: str, new: object, least: Object) -> list[Answer]:
    """Send requests of every kind that bring a field of the object at this path to this value;
    `least` is the object for server-side apply.
    """
    stored = stage.cluster.request("GET", at).body
    whole = put(stored, path, new)
    top, _, rest = path.partition(".")
    field = rest.partition(".")[0]
    part = {top: {field: whole[top][field]}} if rest else {top: whole[top]}
    operation = {"op": "add", "path": f"/{top}/{field}".rstrip("/")}
    operation |= {"value": whole[top][field] if rest else whole[top]}
    applied = least | part | {"metadata": least["metadata"] | part.get("metadata", {})}
    query = at + AS_BWAGENT
    return [
        stage.ask("PUT", query, whole),
        stage.ask("PATCH", query, [operation], JSON_PATCH),
        stage.ask("PATCH", query, part, MERGE),
        stage.ask("PATCH", query, part, STRATEGIC),
        stage.ask("PATCH", query, applied, APPLY),
        stage.ask("PATCH", f"{query}&force=true", applied, APPLY),
    ]


@pytest.mark.parametrize("path", NODE)
def test_a_node(stage: Scene, path: str) -> None:
    """No request stores it, be it refused or permitted."""
    before = stage.node()
    metadata = {"name": stage.agent.node, "labels": {stage.own: "roce"}}
    least = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    metadata["annotations"] = {stage.observed: "{}"}
    answers = requests(stage, stage.agent.path, path, NODE[path], least)
    assert stage.node() == before, [answer.message for answer in answers]


@pytest.mark.parametrize("path", EVENT)
def test_an_event(stage: Scene, path: str) -> None:
    """No request stores it, neither in an Event that is there nor in a new one."""
    at = f"{EVENTS}/{stage.agent.node}.0"
    before = stage.cluster.request("GET", at).body
    least = an_event(stage.agent.node)
    answers = requests(stage, at, path, EVENT[path], least)
    assert stage.cluster.request("GET", at).body == before, [one.message for one in answers]
    name = f"{stage.agent.node}.{path.lower()}"
    permitted = stage.ask("POST", EVENTS + AS_BWAGENT, an_event(stage.agent.node, f"{name}.a"))
    assert permitted.status == 201, permitted.message
    new = put(an_event(stage.agent.node, f"{name}.b"), "metadata.managedFields", [])
    if ".managedFields." in path:
        new["metadata"]["managedFields"] = deepcopy(before["metadata"]["managedFields"])
    answer = stage.ask("POST", EVENTS + AS_BWAGENT, put(new, path, EVENT[path]))
    assert answer.status >= 400 or alike(answer.body) == alike(permitted.body), answer.message


def alike(event: Object) -> Object:
    """Return an Event without what differs between any two."""
    metadata = dict(event["metadata"])
    for field in ("name", "uid", "resourceVersion", "creationTimestamp"):
        assert metadata.pop(field) not in METADATA.values()
    for entry in metadata["managedFields"]:
        assert entry.pop("time") != TIME
    return event | {"metadata": metadata}


def test_the_table(installed: Cluster) -> None:
    """The table has the fields that the API server has, and so have these tests."""
    schemas = installed.request("GET", "/openapi/v3/api/v1").body["components"]["schemas"]

    def fields(name: str, prefix: str = "") -> set[str]:
        return {prefix + field for field in schemas[name]["properties"]}

    metadata = fields(f"{META}.ObjectMeta", "metadata.")
    metadata |= fields(f"{META}.ManagedFieldsEntry", "metadata.managedFields.")
    node, event = (
        fields(f"io.k8s.api.core.v1.{kind}") - {"metadata"} for kind in ("Node", "Event")
    )
    rows = re.findall(r"^\| `([\w.]+)` \| (.+) \| (.+) \|$", THREAT_MODEL.read_text(), re.MULTILINE)
    assert {field for field, of_node, _ in rows if of_node != "-"} == node | metadata == set(NODE)
    assert {field for field, _, of_event in rows if of_event != "-"} == event | metadata
    assert set(EVENT) == event | metadata
