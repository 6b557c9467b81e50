"""The requests as the client sends them; tests/system/kube has the API server's opinion."""

from __future__ import annotations

from agent.kube.requests import parameters


def test_requests_about_events() -> None:
    """They are in namespace `default`, and the name of an Event is escaped by the client."""
    created = parameters({"operation": "create-event", "body": {"a": "b"}})
    assert (created["method"], created["resource_path"], created["body"]) == (
        "POST",
        "/api/v1/namespaces/default/events",
        {"a": "b"},
    )
    changed = parameters({"operation": "patch-event", "event": "n1.1", "body": {}})
    assert changed["resource_path"] == "/api/v1/namespaces/default/events/{name}"
    assert (changed["method"], changed["path_params"]) == ("PATCH", {"name": "n1.1"})
    assert changed["header_params"]["Content-Type"] == "application/merge-patch+json"


def test_a_page_of_a_survey() -> None:
    """It has a size, where it goes on, and the selectors."""
    found = parameters({"operation": "survey", "continue": "x", "selectors": [("a", "b")]})
    assert found["query_params"] == [("limit", "50"), ("continue", "x"), ("a", "b")]


def test_an_apply() -> None:
    """Force is a query parameter, as the manager is."""
    found = parameters({"operation": "apply", "node": "n1", "body": {}, "force": True})
    assert found["query_params"] == [("fieldManager", "bwagent"), ("force", "true")]
    assert parameters({"operation": "get", "node": "n1"})["path_params"] == {"name": "n1"}
    assert parameters({"operation": "patch", "node": "n1", "body": []})["method"] == "PATCH"
