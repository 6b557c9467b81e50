"""One reconciliation: the requests that it makes, and the Node that is known afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from agent.kube.answers import NO_ROOM, Answer
from agent.kube.reconcile import Reconciler
from tests.support.api_server import labels_in, operations, replies
from tests.support.nodes import FLAVOR, IB_SPEED, KEYS, SPEED, desired, node

BEFORE, AFTER = node(), node({FLAVOR: "roce"})
GOT = Answer(200, node=BEFORE)
APPLIED = Answer(200, node=AFTER)
WANTED = desired({FLAVOR: "roce"})


def test_change() -> None:
    """Without desired labels the Node is read. A change is applied to the Node of the last result,
    without reading it again.
    """
    requests, kube = replies(GOT, APPLIED)
    reconciler = Reconciler(kube, "n1", KEYS)
    result = reconciler.reconcile(None, None)
    assert (result.node, result.change, result.codes) == (BEFORE, None, (200,))
    result = reconciler.reconcile(BEFORE, WANTED)
    assert (result.node, result.codes) == (AFTER, (200,))
    assert operations(requests) == ["get", "apply"]
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
    assert result.change is not None
    assert result.change.label_changes == ((FLAVOR, None, "roce"),)
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("reply", "known", "kind"),
    [
        (Answer(429, message="later"), BEFORE, "busy"),
        (Answer(500, message="down"), BEFORE, "server"),
        (Answer(404, message="no"), None, "not-found"),
        (Answer(error="helper", message="no answer within 25 s"), None, "helper"),
    ],
)
def test_failure(reply: Answer, known: object, kind: str) -> None:
    """After a failure the Node has to be read again, except after a 429 or 5xx: the server has
    enough to do. One that cannot be read has no plan.
    """
    reconciler = Reconciler(replies(reply, reply)[1], "n1", KEYS)
    result, unread = reconciler.reconcile(BEFORE, WANTED), reconciler.reconcile(None, WANTED)
    assert (result.node, result.codes) == (known, (reply.status,))
    assert (unread.node, unread.change) == (None, None)
    assert [one.failure and one.failure.kind for one in (result, unread)] == [kind] * 2


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


OLD = "old.example/flavor"
BOTH = {FLAVOR: "roce", OLD: "roce"}


def test_carried_labels_are_read_before_each_apply() -> None:
    """With fields outside the table on the known Node, an apply is preceded by a GET, and not made
    if the Node turns out to be right; without a change there is no request at all.
    """
    known, wanted = node(BOTH, version="1"), desired({FLAVOR: "roce", SPEED: "1G"})
    now = node({**BOTH, OLD: "infiniband"}, version="5")
    right = node({**BOTH, SPEED: "1G"}, version="5")
    requests, kube = replies(*(Answer(200, node=one) for one in (now, now, right)))
    reconciler = Reconciler(kube, "n1", KEYS)
    result = reconciler.reconcile(known, wanted)
    assert (operations(requests), result.codes) == (["get", "apply"], (200, 200))
    assert requests[1]["body"]["metadata"]["resourceVersion"] == "5"
    assert labels_in(requests[1])[OLD] == "infiniband"
    result = reconciler.reconcile(known, wanted)
    assert (operations(requests[2:]), result.outcome, result.node) == (["get"], None, right)
    assert reconciler.reconcile(known, WANTED).outcome is None


@pytest.mark.parametrize(
    ("said", "is_known"),
    [
        ([Answer(422, message="no"), "get"], True),
        ([Answer(422, message="no"), Answer(503, message="down")], False),
        ([Answer(422, message="no"), Answer(403, message="cannot get")], False),
        ([Answer(403, message="User x cannot patch resource nodes")], False),
        ([Answer(409, message="uid mismatch")], False),
        ([Answer(429, message="later")], True),
        ([Answer(503, message="down")], True),
        ([Answer(401, message="no"), Answer(401, message="no")], False),
        ([Answer(401, message="no"), Answer(503, message="down")], True),
    ],
)
def test_the_node_after_a_refusal(said: list[Any], *, is_known: bool) -> None:
    """The next attempt begins with a GET after a refusal, unless one followed it; not after a 429
    or 5xx.
    """
    known = node({FLAVOR: "roce"})
    got = Answer(200, node=known)
    requests, kube = replies(*(got if one == "get" else one for one in said))
    wanted = desired({FLAVOR: "x"})
    result = Reconciler(kube, "n1", KEYS).reconcile(known, wanted)
    assert (result.node is not None) == is_known
    assert len(requests) == len(said)


def test_a_refusal_after_a_get() -> None:
    """Of a Node that was just read, the one GET is the next attempt's."""
    known = Answer(200, node=node({FLAVOR: "roce"}))
    requests, kube = replies(known, Answer(422, message="no"))
    result = Reconciler(kube, "n1", KEYS).reconcile(None, desired({FLAVOR: "x"}))
    assert (operations(requests), result.node) == (["get", "apply"], None)
    assert result.outcome is not None
    assert result.outcome.to_postpone == {"P"}


def test_no_more_requests_than_there_is_room_for() -> None:
    """What is left is a failure; the keys that were refused by then are told."""
    refusals = [Answer(403, message=f"{key} is not allowed") for key in (FLAVOR, SPEED)]
    known = Answer(200, node=node())
    _, kube = replies(known, *refusals)
    wanted = desired({FLAVOR: "roce", SPEED: "1G", IB_SPEED: "1G"})
    result = Reconciler(kube, "n1", KEYS).reconcile(None, wanted, room=3)
    assert result.codes == (200, 403, 403)
    assert result.node is None
    assert result.failure is not None
    assert result.failure.kind == NO_ROOM
    assert result.outcome is not None
    assert result.outcome.to_postpone == {FLAVOR, SPEED}


def test_a_look_has_no_more_room() -> None:
    """The requests of a look count as well."""
    _, kube = replies(*[Answer(200, node=OTHERS)] * 2)
    result = Reconciler(kube, "n1", KEYS).look(AFTER, WANTED, room=2)
    assert result.codes == (200, 200)
    assert result.failure is not None
    assert result.failure.kind == NO_ROOM
