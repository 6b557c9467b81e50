"""The Node behind its door: what is asked of it, and that a shut door is an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import Unavailable
from agent.kube.apply import apply, get_node, list_nodes
from agent.kube.plan import plan
from agent.kube.response import Failure
from tests.support.nodes import FLAVOR, KEYS, desired, node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Told = Mapping[str, Any]

NODE = node({FLAVOR: "roce"})
GOOD = {"status": 200, "node": NODE}
UNAUTHORIZED = {"status": 401, "message": "Unauthorized"}


def door(*answers: Told | Exception) -> tuple[list[Told], Callable[[Told], Told]]:
    """A door that gives these answers, and what it was asked."""
    left, asked = list(answers), []

    def ask(request: Told) -> Told:
        asked.append(request)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return asked, ask


def test_a_get_node() -> None:
    """A look is one request for the Node."""
    asked, kube = door(GOOD)
    assert get_node(kube, "n1") == NODE
    assert asked == [{"operation": "get", "node": "n1"}]


def test_a_look_with_an_old_token() -> None:
    """A token that is not accepted is tried once more, and no third time."""
    assert get_node(door(UNAUTHORIZED, GOOD)[1], "n1") == NODE
    found = get_node(door(UNAUTHORIZED, UNAUTHORIZED)[1], "n1")
    assert isinstance(found, Failure)
    assert found.kind == "unauthorized"


def test_a_shut_door() -> None:
    """A helper that dies or is late is a failure that passes, in its words."""
    found = get_node(door(Unavailable("helper kube: no answer within 25 s"))[1], "n1")
    assert found == Failure(
        "helper", "Node n1: request not made: helper kube: no answer within 25 s"
    )
    assert found.transient


def test_what_is_applied() -> None:
    """An apply carries the whole body, and says whether it may take from others."""
    asked, kube = door(GOOD)
    found = plan(node(observed=None), desired({FLAVOR: "roce"}), KEYS)
    assert apply(kube, found).applied == {FLAVOR: "roce"}
    (request,) = asked
    assert (request["operation"], request["node"], request["force"]) == ("apply", "n1", False)
    metadata = request["body"]["metadata"]
    assert (metadata["uid"], metadata["labels"], list(metadata["annotations"])) == (
        "u-1",
        {FLAVOR: "roce"},
        [KEYS.annotation],
    )


def test_all_nodes() -> None:
    """A list goes on where the page before ended; a failure ends it."""
    asked, kube = door(
        {"status": 200, "nodes": [NODE], "continue": "x"},
        {"status": 200, "nodes": [], "continue": None},
    )
    assert list(list_nodes(kube)) == [NODE]
    assert [request["continue"] for request in asked] == ["", "x"]
    (failure,) = list_nodes(door({"status": 403, "message": "cannot list"})[1])
    assert isinstance(failure, Failure)
    assert failure.kind == "forbidden"
