"""The requests that write Events about a Node: core/v1 Event, in namespace `default`.

`kubectl describe node` finds those whose involvedObject has kind and name of the Node, no
namespace, and as uid either the Node's own or its name (kubectl, pkg/describe/describe.go). The
name is what kubelet writes, and all that older versions of kubectl look for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.kube import MANAGER
from agent.text import utc

if TYPE_CHECKING:
    from agent.kube.answers import Request
    from agent.node_events.correlator import Event

NAMESPACE = "default"
MAX_NODE_NAME = 236  # characters of an Event's name; with a period and 16 digits 253


def name_for(node: str, number: int) -> str:
    """Return the name of a new Event, by a random number of 64 bits."""
    return f"{node[:MAX_NODE_NAME].rstrip('.-')}.{number:016x}"


def request(event: Event, node: str) -> Request:
    """Return the request that creates an Event, or brings it up to date."""
    if event.exists:
        return {"operation": "patch-event", "event": event.name, "body": _changing(event)}
    return {"operation": "create-event", "body": _document(event, node)}


def _changing(event: Event) -> dict[str, Any]:
    """Return the fields that a repetition changes."""
    return {
        "message": event.message,
        "count": event.count,
        "lastTimestamp": utc(int(event.last)),
    }


def _document(event: Event, node: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event.name, "namespace": NAMESPACE},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "type": "Warning",
        "reason": event.reason.value,
        "source": {"component": MANAGER, "host": node},
        "reportingComponent": MANAGER,
        "reportingInstance": node,
        "firstTimestamp": utc(int(event.first)),
        **_changing(event),
    }
