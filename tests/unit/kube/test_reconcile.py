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
    assert result.plan.added == {FLAVOR: "roce"}
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
