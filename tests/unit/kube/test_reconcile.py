"""One reconciliation: the requests that it makes, and the Node that is known afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from agent.kube.answers import Answer
from agent.kube.reconcile import Reconciler
from tests.support.api_server import replies
from tests.support.nodes import FLAVOR, KEYS, desired, node

BEFORE, AFTER = node(), node({FLAVOR: "roce"})
GOT = Answer(200, node=BEFORE)
APPLIED = Answer(200, node=AFTER)
WANTED = desired({FLAVOR: "roce"})


def test_get_only() -> None:
    """Without desired labels the Node is read, and nothing is planned."""
    requests, kube = replies(GOT)
    result = Reconciler(kube, "n1", KEYS).reconcile(None, None)
    assert (result.node, result.plan, result.codes) == (BEFORE, None, (200,))
    assert [request["operation"] for request in requests] == ["get"]


def test_change() -> None:
    """A change is applied to the Node of the last result, without reading it again."""
    requests, kube = replies(APPLIED)
    result = Reconciler(kube, "n1", KEYS).reconcile(BEFORE, WANTED)
    assert (result.node, result.codes) == (AFTER, (200,))
    assert [request["operation"] for request in requests] == ["apply"]
    assert result.outcome is not None
    assert result.outcome.applied == {FLAVOR: "roce"}


def test_no_change() -> None:
    """Without a change there is no request, unless one is made in any case."""
    requests, kube = replies(APPLIED)
    reconciler = Reconciler(kube, "n1", KEYS)
    assert reconciler.reconcile(AFTER, WANTED).outcome is None
    assert requests == []
    result = reconciler.reconcile(AFTER, WANTED, always=True)
    assert (len(requests), result.node) == (1, AFTER)


def test_dry_run() -> None:
    """A dry run reads and plans, and applies nothing."""
    requests, kube = replies(GOT)
    result = Reconciler(kube, "n1", KEYS, dry_run=True).reconcile(None, WANTED, always=True)
    assert result.plan is not None
    assert result.plan.changes == ((FLAVOR, None, "roce"),)
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("reply", "known", "codes"),
    [
        (Answer(429, message="later"), BEFORE, (429,)),
        (Answer(500, message="down"), BEFORE, (500,)),
        (Answer(404, message="no"), None, (404,)),
        (Answer(error="helper", message="helper kubeconfig: no answer within 25 s"), None, (None,)),
    ],
)
def test_failure(reply: Any, known: object, codes: tuple[int | None, ...]) -> None:
    """After a failure the Node has to be read again, except after a 429 or 5xx: the server has
    enough to do.
    """
    result = Reconciler(replies(reply)[1], "n1", KEYS).reconcile(BEFORE, WANTED)
    assert result.failure is not None
    assert (result.node, result.codes) == (known, codes)


def test_get_that_fails() -> None:
    """A Node that cannot be read is a failure without a plan."""
    result = Reconciler(replies(Answer(404, message="no"))[1], "n1", KEYS).reconcile(None, WANTED)
    assert (result.node, result.plan) == (None, None)
    assert result.failure is not None
    assert result.failure.kind == "not-found"


OTHERS = node({FLAVOR: "infiniband"})


def look(known: Any, *answers: Answer, dry_run: bool = False) -> tuple[list[str], Any]:
    """Look at a Node that should have flavor `roce`; return the requests and the result."""
    requests, kube = replies(*answers)
    result = Reconciler(kube, "n1", KEYS, dry_run=dry_run).look(known, WANTED)
    return [f"{one['operation']}{' cached' * ('cached' in one)}" for one in requests], result


def test_a_look() -> None:
    """A Node as known is one request to the API server's cache."""
    requests, result = look(AFTER, APPLIED)
    assert (requests, result.node, result.rewritten) == (["get cached"], AFTER, ())


def test_a_look_at_a_node_that_another_agent_wrote() -> None:
    """It is read from etcd before it is written; the keys with other values are named."""
    requests, result = look(AFTER, *[Answer(200, node=OTHERS)] * 2, APPLIED)
    assert requests == ["get cached", "get", "apply"]
    assert (result.node, result.rewritten, result.codes) == (AFTER, (FLAVOR,), (200, 200, 200))


def test_a_look_into_an_old_cache() -> None:
    """A cache from before the agent's own last request is no second agent, and writes nothing."""
    requests, result = look(AFTER, Answer(200, node=OTHERS), APPLIED)
    assert requests == ["get cached", "get"]
    assert (result.node, result.rewritten, result.outcome) == (AFTER, (), None)


def test_a_dry_run_beside_an_agent() -> None:
    """It writes nothing, so another writer is no second one."""
    requests, result = look(AFTER, Answer(200, node=OTHERS), dry_run=True)
    assert (requests, result.rewritten) == (["get cached"], ())


@pytest.mark.parametrize(
    ("status", "known"), [(429, AFTER), (500, AFTER), (404, None), (403, None)]
)
def test_a_look_that_fails(status: int, known: object) -> None:
    """An API server that is overloaded is not asked for the whole Node in place of its cache."""
    requests, result = look(AFTER, Answer(status, message="no"))
    assert (requests, result.node) == (["get cached"], known)
    assert result.failure is not None
