"""What `doctor` says of the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.check import Step
from agent.kube.answers import Answer
from agent.kube.commands import check, check_admission
from agent.kube.policy import FOREIGN
from tests.support.api_server import replies
from tests.support.nodes import node

if TYPE_CHECKING:
    from agent.kube.answers import Request


def test_the_node_can_be_read() -> None:
    """Nothing is missing."""
    found = check(replies(Answer(200, node=node()))[1], "n1")
    assert (found.is_there, found.missing, found.text) == (True, None, "Node n1 can be read")


@pytest.mark.parametrize(
    ("reply", "command"),
    [
        (Answer(error="configuration", message="none"), "export KUBECONFIG=FILE"),
        (Answer(403, message="no"), "kubectl auth can-i get node/n1"),
        (Answer(404, message="no such Node"), "kubectl get nodes"),
        (Answer(error="unreachable", message="refused"), "kubectl get --raw /readyz"),
    ],
)
def test_a_node_that_cannot_be_read(reply: Answer, command: str) -> None:
    """The line names the Node, and the command looks at the cause."""
    found = check(replies(reply)[1], "n1")
    assert found.missing is Step.CLUSTER
    assert "Node n1: " in found.text
    assert found.command.startswith(command)


def test_the_admission_policy() -> None:
    """In force, not in force with the command, and not known, which is nothing missing."""
    denial = "nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'bwagent' with binding 'b' "
    reply = Answer(422, message=f"{denial}denied request: no")
    found = check_admission(replies(reply)[1], "n1")
    assert (found.is_there, found.text) == (True, "admission policy in force")

    def accepting(request: Request) -> Answer:
        return Answer(200, node=node({FOREIGN: request["body"]["metadata"]["labels"][FOREIGN]}))

    found = check_admission(accepting, "n1")
    assert found.missing is Step.CLUSTER
    assert found.command.startswith("kubectl apply --server-side -k ")
    found = check_admission(replies(Answer(403, message="no"))[1], "n1")
    assert (found.is_there, found.missing) == (False, None)
    assert found.text.startswith("admission policy not checked: Node n1: not permitted")
