"""What `doctor` says of the API server."""

from __future__ import annotations

from typing import Any

import pytest

from agent.check import Step
from agent.kube.checks import check
from tests.support.api_server import replies
from tests.support.nodes import node


def test_the_node_can_be_read() -> None:
    """Nothing is missing."""
    found = check(replies({"status": 200, "node": node()})[1], "n1")
    assert (found.is_there, found.missing, found.text) == (True, None, "Node n1 can be read")


@pytest.mark.parametrize(
    ("reply", "command"),
    [
        ({"error": "configuration", "message": "none"}, "export KUBECONFIG=FILE"),
        ({"status": 403, "message": "no"}, "kubectl auth can-i get node/n1"),
        ({"status": 404, "message": "no such Node"}, "kubectl get nodes"),
        ({"error": "unreachable", "message": "refused"}, "kubectl get --raw /readyz"),
    ],
)
def test_a_node_that_cannot_be_read(reply: dict[str, Any], command: str) -> None:
    """The line names the Node, and the command looks at the cause."""
    found = check(replies(reply)[1], "n1")
    assert found.missing is Step.CLUSTER
    assert "Node n1: " in found.text
    assert found.command.startswith(command)
