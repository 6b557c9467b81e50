"""Requests about Nodes and Events that the admission policies have to refuse to the agent, as one
table.

Each is sent with a token of the agent, for a Node made by `scene`. Without the policies, and with
all permissions of RBAC, each of them succeeds.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from tests.support.kube.agents import Agent, a_node
from tests.support.kube.cluster import APPLY, JSON_PATCH, MERGE, STRATEGIC, Answer, Cluster

Attack = Callable[["Scene"], Answer]
Entries = list[dict[str, Any]]
Change = Callable[[Entries, "Scene"], object]


NODES = "/api/v1/nodes"
EVENTS = "/api/v1/namespaces/default/events"
ALL_EVENTS = "/api/v1/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
AS_BWAGENT = "?fieldManager=bwagent"
SITE = "site.example/rack"
TAINT = {"key": "mine", "effect": "NoExecute"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}  # of every new Node
MAX_LABELS, MAX_ANNOTATION, MAX_MESSAGE = 400, 32768, 1024


@dataclass(frozen=True, slots=True)
class Scene:
    """An agent on its Node, another Node, and the label prefix of the policy.

    `labels` are the agent's labels on its Node, where it has its annotation, too; `unbound` is a
    token of its account that is bound to no Pod. There is an Event of the agent about each of both
    Nodes, and one of a kubelet about the agent's.
    """

    agent: Agent
    other: str
    unbound: str
    prefix: str

    @property
    def cluster(self) -> Cluster:
        return self.agent.cluster

    @property
    def own(self) -> str:
        """A label key of the agent."""
        return f"{self.prefix}/flavor"

    @property
    def observed(self) -> str:
        """The key of the agent's annotation."""
        return f"{self.prefix}/observed"

    def node(self) -> dict[str, Any]:
        return self.cluster.request("GET", self.agent.path).body

    def elsewhere(self) -> Agent:
        """Return the agent with the other Node for its own."""
        return Agent(self.cluster, self.other, self.agent.token)

    def ask(self, method: str, path: str, body: object = None, kind: str = MERGE) -> Answer:
        """Send a request with the agent's token."""
        token = self.agent.token
        kind = kind if method == "PATCH" else "application/json"
        return self.cluster.request(method, path, body, kind=kind, token=token)

    def create_event(self, changes: dict[str, Any], query: str = AS_BWAGENT) -> Answer:
        """Create an Event that is the agent's but for these fields."""
        node = self.agent.node
        return self.ask("POST", EVENTS + query, an_event(node, f"{node}.1") | changes)

    def apply_as(self, manager: str, metadata: dict[str, Any]) -> Answer:
        """Apply server-side as another manager."""
        return self.cluster.apply(self.agent.node, metadata, manager, token=self.agent.token)

    def put(self, change: Callable[[dict[str, Any]], object], subresource: str = "") -> Answer:
        """Replace the Node after a change to it."""
        node = deepcopy(self.node())
        change(node)
        return self.ask("PUT", self.agent.path + subresource, node)

    def versions(self) -> dict[str, str]:
        """Return the version of each Node, and of each Event of these tests."""
        lists = (self.cluster.request("GET", path).body["items"] for path in (NODES, ALL_EVENTS))
        rows = [row["metadata"] for items in lists for row in items]
        return {
            f"{row.get('namespace')}/{row['name']}": row["resourceVersion"]
            for row in rows
            if row["name"].startswith(("node-", "mine-"))
        }


def scene(cluster: Cluster, account: str, namespace: str, prefix: str) -> Scene:
    """Return a scene on new Nodes; the administrator writes the agent's labels for it."""
    node, other = a_node(cluster, prefix), a_node(cluster, prefix)
    token = cluster.token_for_pod_on(node, account, namespace)
    unbound = cluster.token_for_pod_on(None, account, namespace)
    made = Scene(Agent(cluster, node, token), other, unbound, prefix)
    metadata = {"labels": {made.own: "roce"}, "annotations": {made.observed: "{}"}}
    answer = Agent(cluster, node, cluster.admin).apply(metadata)
    assert answer.status == 200, answer.message
    for event in (an_event(node), an_event(other), _of_kubelet(node)):
        cluster.create(EVENTS + AS_BWAGENT, event)
    return made


def an_event(node: str, name: str = "", **changes: Any) -> dict[str, Any]:
    """Return an Event as the agent writes it."""
    now = "2026-11-20T13:34:49Z"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name or f"{node}.0", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "type": "Warning",
        "reason": "CableChanged",
        "message": "ibp0 was connected to a port 1, is connected to b port 2",
        "source": {"component": "bwagent", "host": node},
        "reportingComponent": "bwagent",
        "reportingInstance": node,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        **changes,
    }


def _of_kubelet(node: str) -> dict[str, Any]:
    source = {"source": {"component": "kubelet", "host": node}, "reportingComponent": "kubelet"}
    return an_event(node, f"{node}.kubelet", reason="NodeNotReady", **source)


def _edit(op: str, path: str, value: object = None) -> Attack:
    operation = {"op": op, "path": path} | ({} if op == "remove" else {"value": value})
    return lambda scene: scene.agent.edit(operation)


def _merge(metadata: dict[str, Any], query: str = "") -> Attack:
    return lambda scene: scene.agent.merge({"metadata": metadata}, query)


def _apply(metadata: dict[str, Any], **fields: object) -> Attack:
    """Apply as manager `bwagent` the agent's own label and something else."""

    def attack(scene: Scene) -> Answer:
        labels = {scene.own: "roce"} | metadata.get("labels", {})
        annotations = {scene.observed: "{}"} | metadata.get("annotations", {})
        return scene.agent.apply(
            metadata | {"labels": labels, "annotations": annotations}, **fields
        )

    return attack


def _own_key(name: str, end: object = None, query: str = "") -> Attack:
    """Write an own label by a merge patch."""
    return lambda scene: scene.agent.merge(
        {"metadata": {"labels": {f"{scene.prefix}/{name}": end}}}, query
    )


def _observed(value: str) -> Attack:
    return lambda scene: scene.agent.apply(
        {"labels": {scene.own: "roce"}, "annotations": {scene.observed: value}}
    )


def _many_labels(scene: Scene) -> Answer:
    keys = [
        f"{scene.prefix}/neighbors.current.m{number}.device" for number in range(MAX_LABELS + 1)
    ]
    return scene.agent.apply(
        {"labels": dict.fromkeys(keys, "x"), "annotations": {scene.observed: "{}"}}
    )


def _managed(change: Change) -> Attack:
    """Replace the Node after a change to its managedFields."""
    return lambda scene: scene.put(lambda node: change(node["metadata"]["managedFields"], scene))


def _patched(change: Change) -> Attack:
    """Change the Node's managedFields by a JSON patch."""

    def attack(scene: Scene) -> Answer:
        entries = scene.node()["metadata"]["managedFields"]
        change(entries, scene)
        return scene.agent.edit(
            {"op": "replace", "path": "/metadata/managedFields", "value": entries}
        )

    return attack


def _merged(change: Change) -> Attack:
    """Change the Node's managedFields by a merge patch that removes an own label, too."""

    def attack(scene: Scene) -> Answer:
        entries = scene.node()["metadata"]["managedFields"]
        change(entries, scene)
        return scene.agent.merge(
            {"metadata": {"managedFields": entries, "labels": {scene.own: None}}}
        )

    return attack


def _entry(entries: Entries, *, agents: bool) -> dict[str, Any]:
    """Return the agent's entry of managedFields, or another manager's."""
    return next(entry for entry in entries if (entry["manager"] == "bwagent") == agents)


def _labels_of(entries: Entries, *, agents: bool) -> dict[str, Any]:
    return _held(entries, "f:labels", agents=agents)


def _held(entries: Entries, part: str, *, agents: bool) -> dict[str, Any]:
    """Return what an entry holds of the labels or annotations."""
    held: dict[str, Any] = _entry(entries, agents=agents)["fieldsV1"]["f:metadata"][part]
    return held


def _below(part: str, key: str, *, agents: bool) -> Change:
    """Put junk below what an entry holds already."""
    return lambda entries, scene: _held(entries, part, agents=agents).update(
        {f"f:{key or scene.own}": JUNK}
    )


def _without_the_map(part: str) -> Change:
    """Take member `.` of the labels or annotations out of another manager's entry."""
    return lambda entries, _: _held(entries, f"f:{part}", agents=False).pop(".")


def _forged(manager: str) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {f"f:{SITE}": {}}}},
    }


JUNK: dict[str, Any] = {f"f:{number}{'x' * 200}": {} for number in range(10)}
# Changes to managedFields that leave everything else as it is; each by all three of `_managed`,
# `_patched` and `_merged`.
ENTRIES: dict[str, Change] = {
    "junk below an own label": _below("f:labels", "", agents=True),
    "junk below the own annotation": lambda entries, scene: _held(
        entries, "f:annotations", agents=True
    ).update({f"f:{scene.observed}": JUNK}),
    "hold a label that is not there": lambda entries, scene: _labels_of(
        entries, agents=True
    ).update({f"f:{scene.prefix}/neighbors.current.{'x' * 1000}.device": {}}),
    "hold an item of the labels": lambda entries, scene: _labels_of(entries, agents=True).update(
        {f'v:"{scene.own}"': {}}
    ),
    "junk beside the own labels": lambda entries, _: _entry(entries, agents=True)["fieldsV1"][
        "f:metadata"
    ].update({"f:mine": JUNK}),
    "junk beside metadata": lambda entries, _: _entry(entries, agents=True)["fieldsV1"].update(
        {"f:mine": JUNK}
    ),
    "junk below another manager's label": _below("f:labels", SITE, agents=False),
    "junk below another manager's annotation": _below(
        "f:annotations", "site.example/owner", agents=False
    ),
    **{
        f"take the {part} as a whole out of an entry": _without_the_map(part)
        for part in ("labels", "annotations")
    },
    "add an entry of another subresource": lambda entries, _: entries.append(
        _forged("bwagent") | {"subresource": "status"}
    ),
    "add an entry of the agent's by update": lambda entries, _: entries.append(
        _forged("bwagent") | {"operation": "Update"}
    ),
    "begin the fields anew": lambda entries, _: entries.append(
        _forged("before-first-apply") | {"operation": "Update"}
    ),
}
SPEC: dict[str, Attack] = {
    "taint": _edit("add", "/spec/taints/-", TAINT),
    "taint by apply": _apply({}, spec={"taints": [TAINT]}),
    "taint by replace": lambda scene: scene.put(lambda node: node["spec"].update(taints=[TAINT])),
    "taint by strategic merge": lambda scene: scene.ask(
        "PATCH", scene.agent.path, {"spec": {"taints": [TAINT]}}, STRATEGIC
    ),
    "taint in a server dry-run": lambda scene: scene.agent.merge(
        {"spec": {"taints": [TAINT]}}, "?dryRun=All"
    ),
    "remove the taints": _edit("remove", "/spec/taints"),
    "cordon": _edit("add", "/spec/unschedulable", value=True),
    "cordon by apply": _apply({}, spec={"unschedulable": True}),
    "provider ID": _edit("add", "/spec/providerID", "cloud://1"),
    "Pod network": _edit("add", "/spec/podCIDR", "10.9.0.0/24"),
}
LABELS: dict[str, Attack] = {
    "node role": _merge({"labels": {"node-role.kubernetes.io/control-plane": ""}}),
    "node role by apply": _apply({"labels": {"node-role.kubernetes.io/control-plane": ""}}),
    "node role in a server dry-run": _merge(
        {"labels": {"node-role.kubernetes.io/control-plane": ""}}, "?dryRun=All"
    ),
    "set a foreign label": _merge({"labels": {"topology.kubernetes.io/zone": "mine"}}),
    "set a foreign label by apply": _apply({"labels": {"nvidia.com/gpu.clique": "mine"}}),
    "set a foreign label as manager bwagent": _merge(
        {"labels": {"nvidia.com/gpu.clique": "mine"}}, "?fieldManager=bwagent"
    ),
    "change a foreign label": _edit("replace", "/metadata/labels/site.example~1rack", "2"),
    "take a foreign label over": _apply({"labels": {SITE: "2"}}),
    "remove a foreign label": _edit("remove", "/metadata/labels/site.example~1rack"),
    "set the expected half": _own_key("speed.expected", "1G"),
    "remove the expected half": _own_key("speed.expected"),
    "fabric": _own_key("fabric", "mine"),
    "neighbor without an interface": _own_key("neighbors.current.port-name", "mine"),
    "remove all labels": _edit("remove", "/metadata/labels"),
    "replace without labels": lambda scene: scene.put(lambda node: node["metadata"].pop("labels")),
    "too many labels": _many_labels,
}
ANNOTATIONS: dict[str, Attack] = {
    "set a foreign annotation": _merge({"annotations": {"node.alpha.kubernetes.io/ttl": "0"}}),
    "set a foreign annotation by apply": _apply({"annotations": {"site.example/mine": "0"}}),
    "change a foreign annotation": _edit(
        "replace", "/metadata/annotations/site.example~1owner", "b"
    ),
    "remove a foreign annotation": _edit("remove", "/metadata/annotations/site.example~1owner"),
    "remove all annotations": _edit("remove", "/metadata/annotations"),
    "annotation too long": _observed("x" * (MAX_ANNOTATION + 1)),
    "annotation not ASCII": _observed("\N{SNOWMAN}"),
}
METADATA: dict[str, Attack] = {
    "add a finalizer": _edit("add", "/metadata/finalizers/-", "example.com/mine"),
    "add a finalizer by apply": _apply({"finalizers": ["example.com/mine"]}),
    "remove a finalizer": _edit("remove", "/metadata/finalizers"),
    "change the owner": _edit("replace", "/metadata/ownerReferences/0/uid", "1-2-3"),
    "remove the owner": _edit("remove", "/metadata/ownerReferences"),
    "generateName": _edit("add", "/metadata/generateName", "mine-"),
}
OBJECTS: dict[str, Attack] = {
    "another Node": lambda scene: scene.elsewhere().apply({"labels": {scene.own: "1"}}),
    "another Node's taints": lambda scene: scene.elsewhere().merge({"spec": {"taints": [TAINT]}}),
    "unbound token": lambda scene: Agent(scene.cluster, scene.agent.node, scene.unbound).apply(
        {"labels": {scene.own: "1"}, "annotations": {scene.observed: "{}"}}
    ),
    "status": lambda scene: scene.agent.merge(
        {"status": {"capacity": {"nvidia.com/gpu": "80"}}}, "/status"
    ),
    "replace the status": lambda scene: scene.put(
        lambda node: node["status"].update(capacity={"nvidia.com/gpu": "80"}), "/status"
    ),
    "own label through the status": _own_key("flavor", "1", "/status"),
    "create": lambda scene: scene.ask(
        "POST", NODES, {"metadata": {"name": f"{scene.agent.node}-new"}}
    ),
    "create with generateName": lambda scene: scene.ask(
        "POST", NODES, {"metadata": {"generateName": "mine-"}}
    ),
    "create by apply": lambda scene: Agent(
        scene.cluster, f"{scene.agent.node}-applied", scene.agent.token
    ).apply({"labels": {scene.own: "roce"}}),
    "delete in a server dry-run": lambda scene: scene.ask(
        "DELETE", scene.agent.path + "?dryRun=All"
    ),
    "delete": lambda scene: scene.ask("DELETE", scene.agent.path),
    "delete another": lambda scene: scene.ask("DELETE", f"{NODES}/{scene.other}"),
    "delete all": lambda scene: scene.ask("DELETE", f"{NODES}?labelSelector={SITE}=1"),
    "kubelet": lambda scene: scene.ask("GET", scene.agent.path + "/proxy/pods"),
}
MANAGED_FIELDS: dict[str, Attack] = {
    "own label as another manager": lambda scene: scene.apply_as(
        "mine", {"labels": {scene.own: "roce"}}
    ),
    "own label by update": _own_key("speed.current", "1G", "?fieldManager=bwagent"),
    "co-own a foreign label": _apply({"labels": {SITE: "1"}}),
    "co-own a foreign annotation": _apply({"annotations": {"site.example/owner": "a"}}),
    "co-own a finalizer": _apply({"finalizers": ["site.example/drain"]}),
    "co-own a taint": _apply({}, spec={"taints": [NOT_READY]}),
    "reset": _merge({"managedFields": [{}]}),
    "reset by replace": lambda scene: scene.put(
        lambda node: node["metadata"].update(managedFields=[])
    ),
    "reset by JSON patch": _edit("replace", "/metadata/managedFields", [{}]),
    "remove an entry": _managed(lambda entries, _: entries.remove(_entry(entries, agents=False))),
    "leave own labels to nobody": _managed(
        lambda entries, _: entries.remove(_entry(entries, agents=True))
    ),
    "leave own labels to another": _managed(
        lambda entries, _: _entry(entries, agents=True).update(manager="mine")
    ),
    "add an entry": _managed(lambda entries, _: entries.append(_forged("mine"))),
    "begin to hold a foreign label": _managed(
        lambda entries, _: _labels_of(entries, agents=True).update({f"f:{SITE}": {}})
    ),
    "begin to hold a taint": _managed(
        lambda entries, _: _entry(entries, agents=True)["fieldsV1"].update(
            {"f:spec": {"f:taints": {}}}
        )
    ),
    "take a label out of an entry": _managed(
        lambda entries, _: _labels_of(entries, agents=False).pop(f"f:{SITE}")
    ),
    "put a label into an entry": _managed(
        lambda entries, scene: _labels_of(entries, agents=False).update({f"f:{scene.own}": {}})
    ),
    **{
        f"{name} by {verb}": by(change)
        for name, change in ENTRIES.items()
        for verb, by in {
            "replace": _managed,
            "JSON patch": _patched,
            "merge patch": _merged,
        }.items()
    },
}


def _event(**changes: Any) -> Attack:
    """Create an Event that is the agent's but for these fields."""
    return lambda scene: scene.create_event(changes)


def _event_about(**fields: str) -> Attack:
    """Create an Event about something else."""

    def attack(scene: Scene) -> Answer:
        about = an_event(scene.agent.node)["involvedObject"]
        return scene.create_event({"involvedObject": about | fields})

    return attack


def _event_with(**metadata: Any) -> Attack:
    """Create an Event with more metadata."""

    def attack(scene: Scene) -> Answer:
        own = an_event(scene.agent.node, f"{scene.agent.node}.1")["metadata"]
        return scene.create_event({"metadata": own | metadata})

    return attack


def _patch_event(change: object, name: str = "0", path: str = EVENTS) -> Attack:
    """Change an Event about the agent's Node."""
    return lambda scene: scene.ask("PATCH", f"{path}/{scene.agent.node}.{name}{AS_BWAGENT}", change)


def _fields(**fields: Any) -> list[dict[str, Any]]:
    """Return managedFields of an Event: an entry of the agent's, which holds these fields, too."""
    held = {"f:count": {}, "f:source": {"f:component": {}, "f:host": {}}} | fields
    return [_forged("bwagent") | {"operation": "Update", "fieldsV1": held}]


def _managed_event(name: str, entries: Entries) -> dict[str, Attack]:
    """Return attacks that create an Event with these managedFields, or change it to have them."""
    metadata = {"metadata": {"managedFields": entries}}

    def put(scene: Scene) -> Answer:
        path = f"{EVENTS}/{scene.agent.node}.0"
        event = scene.cluster.request("GET", path).body
        event["metadata"] |= metadata["metadata"]
        return scene.ask("PUT", path + AS_BWAGENT, event)

    def json_patch(scene: Scene) -> Answer:
        operation = {"op": "add", "path": "/metadata/managedFields", "value": entries}
        path = f"{EVENTS}/{scene.agent.node}.0{AS_BWAGENT}"
        return scene.ask("PATCH", path, [operation], JSON_PATCH)

    return {
        f"Event with {name}": _event_with(managedFields=entries),
        f"patch an Event to have {name}": _patch_event(metadata | {"count": 2}),
        f"patch an Event by JSON to have {name}": json_patch,
        f"replace an Event by one with {name}": put,
    }


def _patch_another(scene: Scene) -> Answer:
    return scene.ask("PATCH", f"{EVENTS}/{scene.other}.0{AS_BWAGENT}", {"count": 2})


def _move_event(scene: Scene) -> Answer:
    about = {"involvedObject": an_event(scene.other)["involvedObject"]}
    return scene.ask("PATCH", f"{EVENTS}/{scene.agent.node}.0{AS_BWAGENT}", about)


def _event_of_another(scene: Scene) -> Answer:
    return scene.ask("POST", EVENTS + AS_BWAGENT, an_event(scene.other, f"{scene.other}.1"))


def _event_unbound(scene: Scene) -> Answer:
    event = an_event(scene.agent.node, f"{scene.agent.node}.1")
    return scene.cluster.request("POST", EVENTS + AS_BWAGENT, event, token=scene.unbound)


def _event_elsewhere(scene: Scene) -> Answer:
    """Create an Event in another namespace, where it has to be about something there."""
    event = an_event(scene.agent.node, f"{scene.agent.node}.1")
    event["metadata"]["namespace"] = event["involvedObject"]["namespace"] = "kube-system"
    return scene.ask("POST", f"/api/v1/namespaces/kube-system/events{AS_BWAGENT}", event)


def _event_of_the_new_group(scene: Scene) -> Answer:
    node = scene.agent.node
    event = {
        "metadata": {"name": f"{node}.1"},
        "regarding": {"kind": "Node", "name": node, "uid": node},
        "type": "Warning",
        "reason": "CableChanged",
        "action": "None",
        "reportingController": "bwagent",
        "reportingInstance": node,
        "eventTime": "2026-11-20T13:34:49.000000Z",
    }
    return scene.ask("POST", NEW_EVENTS + AS_BWAGENT, event)


def _replace_event(scene: Scene) -> Answer:
    name = f"{scene.agent.node}.kubelet"
    return scene.ask("PUT", f"{EVENTS}/{name}{AS_BWAGENT}", an_event(scene.agent.node, name))


def _apply_event(scene: Scene) -> Answer:
    """Create an Event about another Node by server-side apply."""
    event = an_event(scene.other, f"{scene.other}.1")
    path = f"{EVENTS}/{scene.other}.1?fieldManager=bwagent&force=true"
    return scene.ask("PATCH", path, event, APPLY)


def _delete_events(scene: Scene) -> Answer:
    return scene.ask("DELETE", f"{EVENTS}?fieldSelector=involvedObject.name={scene.agent.node}")


LABELED = {"metadata": {"labels": {"a": "b"}}}
EVENT: dict[str, Attack] = {
    "Event about another Node": _event_of_another,
    "Event about another Node by apply": _apply_event,
    "Event about another Node's name": _event_about(name="mine"),
    "Event about another object": _event_about(kind="Pod"),
    "Event about another version": _event_about(apiVersion="v2"),
    "Event about a part of the Node": _event_about(fieldPath="spec"),
    "Event about another uid": _event_about(uid="1-2-3"),
    "Event with a related object": _event(related={"kind": "Node", "name": "mine"}),
    "Event in another namespace": _event_elsewhere,
    "Event by an unbound token": _event_unbound,
    "Event in a server dry-run": lambda scene: scene.create_event(
        {"type": "Normal"}, f"{AS_BWAGENT}&dryRun=All"
    ),
    "Event of the new group": _event_of_the_new_group,
    "Event with another reason": _event(reason="NodeNotReady"),
    "Event of another type": _event(type="Normal"),
    "Event of another component": _event(source={"component": "kubelet"}),
    "Event of another host": _event(source={"component": "bwagent", "host": "mine"}),
    "Event reported by another": _event(reportingComponent="kubelet"),
    "Event reported by another instance": _event(reportingInstance="mine"),
    "Event without a count": _event(count=0),
    "Event with a series": _event(
        series={"count": 2, "lastObservedTime": "2026-11-20T13:34:49.000000Z"}
    ),
    "Event with an action": _event(action="mine"),
    "Event too long": _event(message="x" * (MAX_MESSAGE + 1)),
    "Event with an escape sequence": _event(message="\x1b[2J"),
    "Event with a format character": _event(message="\u202e"),
    "Event of two lines": _event(message="a\u2028b"),
    "Event of two paragraphs": _event(message="a\u2029b"),
    "Event with labels": _event_with(labels={"a": "b"}),
    "Event with annotations": _event_with(annotations={"a": "b"}),
    "Event with a finalizer": _event_with(finalizers=["example.com/mine"]),
    "Event with an owner": _event_with(
        ownerReferences=[{"apiVersion": "v1", "kind": "Node", "name": "mine", "uid": "1"}]
    ),
    "Event with generateName": _event_with(name="", generateName="mine-"),
    "patch another Node's Event": _patch_another,
    "patch a kubelet's Event": _patch_event({"count": 2}, "kubelet"),
    "patch a kubelet's Event by the new group": _patch_event(LABELED, "kubelet", NEW_EVENTS),
    "patch the agent's Event by the new group": _patch_event(LABELED, path=NEW_EVENTS),
    "take a kubelet's Event over": _patch_event(
        {"reason": "CableChanged", "source": {"component": "bwagent"}}, "kubelet"
    ),
    "replace a kubelet's Event": _replace_event,
    "move an Event to another Node": _move_event,
    "patch the reason": _patch_event({"reason": "NodeNotReady"}),
    "patch a long message": _patch_event({"message": "x" * (MAX_MESSAGE + 1)}),
    "patch labels into an Event": _patch_event(LABELED),
    "delete an Event": lambda scene: scene.ask("DELETE", f"{EVENTS}/{scene.agent.node}.0"),
    "delete a kubelet's Event": lambda scene: scene.ask(
        "DELETE", f"{EVENTS}/{scene.agent.node}.kubelet"
    ),
    "delete an Event by the new group": lambda scene: scene.ask(
        "DELETE", f"{NEW_EVENTS}/{scene.agent.node}.0"
    ),
    "delete all Events of a Node": _delete_events,
    "Event with an event time": _event(action="mine", eventTime="2026-11-20T13:34:49.000000Z"),
    "Event with a long name": _event_with(name="mine-" + "x" * 249),
    "Event with an endless name": _event_with(name="mine-" + "x" * 5000),
    "Event with a name of other characters": _event_with(name="mine-\x1b[2J"),
    "Event with a generation": _event_with(generation=9),
    "Event by another manager": lambda scene: scene.create_event({}, "?fieldManager=mine"),
    "patch an Event as another manager": lambda scene: scene.ask(
        "PATCH", f"{EVENTS}/{scene.agent.node}.0?fieldManager=mine", {"count": 2}
    ),
    "apply an Event": lambda scene: scene.ask(
        "PATCH",
        f"{EVENTS}/{scene.agent.node}.0{AS_BWAGENT}&force=true",
        an_event(scene.agent.node, count=2),
        APPLY,
    ),
    **_managed_event("many fields", _fields(**{f"f:{n}{'x' * 200}": {} for n in range(20)})),
    **_managed_event("a field that it has not", _fields(**{"f:mine": {}})),
    **_managed_event("junk below a field", _fields(**{"f:reason": JUNK})),
    **_managed_event("junk below the source", _fields(**{"f:source": {"f:host": JUNK}})),
    **_managed_event("junk beside the host", _fields(**{"f:source": JUNK})),
    **_managed_event(
        "many managers", [*_fields(), *(_forged(f"mine-{number}") for number in range(20))]
    ),
    **_managed_event("a subresource", [*_fields(), _forged("bwagent") | {"subresource": "mine"}]),
}
ATTACKS = SPEC | LABELS | ANNOTATIONS | METADATA | OBJECTS | MANAGED_FIELDS | EVENT
# Attacks that leave no trace even where they succeed.
TRACELESS = {
    *("taint in a server dry-run", "node role in a server dry-run", "delete in a server dry-run"),
    *("Event in a server dry-run", "kubelet"),
}
