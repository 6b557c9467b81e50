"""The requests that write Events; tests/system/kube/test_events.py has the API server's opinion."""

from __future__ import annotations

import re

import pytest

from agent.node_events import Event, Reason, name_for

# RFC 1123 subdomain, as Kubernetes has it.
NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@pytest.mark.parametrize("node", ["n1", "a" * 253, "a" * 235 + "-" * 9 + "b", "a." * 126 + "b"])
@pytest.mark.parametrize("number", [0, 2**64 - 1])
def test_names(node: str, number: int) -> None:
    """Every Node's name gives a name that Kubernetes accepts."""
    assert NAME.fullmatch(name_for(node, number))


def test_a_repetition_changes_little() -> None:
    """Count, time and message; a creation has these, too."""
    event = Event(Reason.PORT_LOST, "text", 0.0, 61.0, 2, name="n1.1")
    created = event.request("n1")
    assert (created["operation"], created["body"]["count"]) == ("create-event", 2)
    event.exists, event.count = True, 3
    changed = event.request("n1")
    assert (changed["operation"], changed["event"]) == ("patch-event", "n1.1")
    found = {"message": "text", "count": 3, "lastTimestamp": "1970-01-01T00:01:01Z"}
    assert changed["body"] == found
    assert created["body"].items() >= (found | {"count": 2}).items()
