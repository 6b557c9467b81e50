"""The requests as they are sent; tests/system/kube has the API server's opinion."""

from __future__ import annotations

import json

from agent.kube.api import encode


def test_requests_about_events() -> None:
    """They are in namespace `default`, and the name of an Event is escaped."""
    created = encode({"operation": "create-event", "body": {"a": "b"}})
    events = "/api/v1/namespaces/default/events"
    assert (created.method, created.target) == ("POST", f"{events}?fieldManager=bwagent")
    assert json.loads(created.body or b"") == {"a": "b"}
    changed = encode({"operation": "patch-event", "event": "n1/1", "body": {}})
    assert (changed.method, changed.target) == ("PATCH", f"{events}/n1%2F1?fieldManager=bwagent")
    assert changed.headers["Content-Type"] == "application/merge-patch+json"


def test_a_page_of_a_survey() -> None:
    """It has a size, where it goes on, and the selectors."""
    found = encode({"operation": "survey", "continue": "x", "selectors": [("a", "b=c")]}, 7)
    assert found.target == "/api/v1/nodes?limit=7&continue=x&a=b%3Dc"
    assert "PartialObjectMetadataList" in found.headers["Accept"]


def test_an_apply() -> None:
    """Force is a query parameter, as the manager is."""
    found = encode({"operation": "apply", "node": "n1", "body": {}, "force": True})
    assert found.target == "/api/v1/nodes/n1?fieldManager=bwagent&force=true"
    assert encode({"operation": "get", "node": "n1"}).target == "/api/v1/nodes/n1"
    patch = encode({"operation": "patch", "node": "n1", "body": []})
    assert (patch.method, patch.headers["Content-Type"]) == ("PATCH", "application/json-patch+json")
