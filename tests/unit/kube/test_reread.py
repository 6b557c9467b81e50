"""Negotiations on a Node that has changed since it was read: one GET, and the request anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent.kube.answers import Answer
from agent.kube.negotiation import MAX_READS, Taken, negotiate
from agent.kube.plan import plan, removal
from agent.kube.reconcile import Reconciler
from tests.support.api_server import Server, a_plan, conflict, denial, labels_in, replies
from tests.support.nodes import ACCELERATOR_KEY as ACC
from tests.support.nodes import FLAVOR, KEYS, NOW, SPEED, desired, node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.kube.answers import Request

OLD = "old.example/flavor"
MODIFIED = Answer(409, "Conflict", "Operation cannot be fulfilled: the object has been modified")
BOTH = {FLAVOR: "roce", OLD: "roce"}
WANTED = desired({FLAVOR: "roce", SPEED: "1G"}, now=NOW)


def operations(requests: list[Request]) -> list[str]:
    return [request["operation"] for request in requests]


def versioned(labels: Mapping[str, str], version: int, **others: Any) -> dict[str, Any]:
    return node(labels, version=str(version), **others)


def versions(requests: list[Request]) -> list[str | None]:
    """Return the version in each apply."""
    bodies = [one["body"]["metadata"] for one in requests if one["operation"] == "apply"]
    return [metadata.get("resourceVersion") for metadata in bodies]


def test_a_refusal_of_removed_labels() -> None:
    """A refusal of labels that are not on the Node any more is followed by a GET and by a request
    without them.
    """
    server = Server({FLAVOR: "roce"}, denies=lambda key: key == OLD)
    outcome = negotiate(plan(node(BOTH), WANTED, KEYS), server, is_current=False)
    assert operations(server.requests) == ["apply", "get", "apply"]
    assert (outcome.applied, outcome.refused, outcome.failure) == ({SPEED: "1G"}, (), None)
    assert server.labels() == {FLAVOR: "roce", SPEED: "1G"}


def test_a_refusal_of_an_unchanged_node() -> None:
    """The same request is not sent twice: after the GET the refused key is left out at once."""
    server = Server({FLAVOR: "roce"}, denies=lambda key: key == SPEED, names=True)
    found = plan(node({FLAVOR: "roce"}), desired({FLAVOR: "x", SPEED: "1G"}), KEYS)
    outcome = negotiate(found, server, is_current=False)
    assert operations(server.requests) == ["apply", "get", "apply"]
    assert [refusal.key for refusal in outcome.refused] == [SPEED]
    assert outcome.applied == {FLAVOR: "x"}


@pytest.mark.parametrize("status", [400, 403, 422])
def test_one_read_for_all_refusals(status: int) -> None:
    """A server that refuses everything is asked for the Node once."""
    requests: list[Request] = []

    def refuse(request: Request) -> Answer:
        requests.append(request)
        is_get = request["operation"] == "get"
        return Answer(200, node=node(observed=None)) if is_get else denial("no", status)

    outcome = negotiate(a_plan({}, {FLAVOR: "x", ACC: "a.1"}), refuse, is_current=False)
    assert operations(requests) == ["apply", "get", "apply", "apply", "apply"]
    assert outcome.requests == len(requests)
    assert outcome.back_off == {"P", "ACC", "observed"}


def test_a_conflict() -> None:
    """A conflict is followed by a GET, which gives the value that is taken over."""
    server = Server({}, {SPEED: "9G"})
    outcome = negotiate(
        a_plan({SPEED: "1G"}, {SPEED: "1G", FLAVOR: "roce"}), server, is_current=False
    )
    assert operations(server.requests) == ["apply", "get", "apply"]
    assert outcome.taken == (Taken(SPEED, "kubectl-edit", "9G"),)
    assert (SPEED, "9G", "1G") in outcome.plan.changes
    assert outcome.applied == {SPEED: "1G", FLAVOR: "roce"}


def test_a_conflict_about_the_accelerator() -> None:
    """The key is left to its manager, with the value that is on the Node."""
    server = Server({}, {ACC: "b.2"})
    outcome = negotiate(a_plan({ACC: "a.1"}, {ACC: "a.1"}), server, is_current=False)
    assert operations(server.requests) == ["apply", "get", "apply"]
    assert [(held.key, held.value) for held in outcome.left_alone] == [(ACC, "b.2")]
    assert server.others == {ACC: "b.2"}


def test_a_current_node_is_not_read_again() -> None:
    """A plan for a Node that was just read is negotiated without a GET."""
    server = Server({}, {SPEED: "9G"}, denies=lambda key: key == FLAVOR, names=True)
    negotiate(a_plan({}, {SPEED: "1G", FLAVOR: "roce"}), server)
    assert "get" not in operations(server.requests)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(403, "Forbidden", 'User "x" cannot get resource "nodes" in API group ""'),
        Answer(404, "NotFound", "no"),
        Answer(409, "Conflict", "odd"),
        conflict(SPEED),
        Answer(422, "Invalid", "odd"),
        Answer(503, message="down", retry_after=7.0),
        Answer(error="helper", message="killed"),
    ],
)
def test_a_get_that_fails(answer: Answer) -> None:
    """The negotiation ends with the failure of the GET; no key is refused."""
    requests: list[Request] = []

    def ask(request: Request) -> Answer:
        requests.append(request)
        return answer if request["operation"] == "get" else denial("no")

    outcome = negotiate(a_plan({}, {FLAVOR: "x"}), ask, is_current=False)
    assert operations(requests) == ["apply", "get"]
    assert (outcome.refused, outcome.applied) == ((), {})
    assert outcome.failure is not None
    assert outcome.failure.retry_after == answer.retry_after


def test_a_newer_version() -> None:
    """Carried labels are sent as they are now: the request for an older version fails, and the
    values of a second agent are those of the GET.
    """
    changed = versioned({FLAVOR: "roce", OLD: "infiniband"}, 2)
    requests, kube = replies(
        Answer(409, message=MODIFIED.message),
        Answer(200, node=changed),
        Answer(200, node=versioned({**BOTH, OLD: "infiniband", SPEED: "1G"}, 3)),
    )
    found = plan(versioned(BOTH, 1), WANTED, KEYS)
    outcome = negotiate(found, kube)
    assert (operations(requests), versions(requests)) == (["apply", "get", "apply"], ["1", "2"])
    assert labels_in(requests[2])[OLD] == "infiniband"
    assert (outcome.applied, outcome.failure) == ({SPEED: "1G"}, None)


def test_a_node_that_changes_all_the_time() -> None:
    """The negotiation ends as a conflict after MAX_READS reads."""
    requests: list[Request] = []

    def ask(request: Request) -> Answer:
        requests.append(request)
        is_get = request["operation"] == "get"
        return Answer(200, node=versioned(BOTH, len(requests))) if is_get else MODIFIED

    outcome = negotiate(plan(versioned(BOTH, 0), WANTED, KEYS), ask)
    assert operations(requests) == ["apply", "get"] * MAX_READS + ["apply"]
    assert outcome.failure is not None
    assert outcome.failure.kind == "conflict"


def test_further_requests_have_the_version_of_the_last_answer() -> None:
    """After an accepted request the next one is for the version that it made."""
    no = denial("no")
    requests, kube = replies(no, Answer(200, node=versioned(BOTH, 8)), no, no)
    found = plan(versioned(BOTH, 7, observed=None), desired({FLAVOR: "x", ACC: "a.1"}), KEYS)
    negotiate(found, kube)
    assert versions(requests) == ["7", "7", "8", "8"]


def test_a_refused_key_stays_refused_after_a_read() -> None:
    """A GET in the middle of a negotiation brings no refused key back."""
    requests, kube = replies(
        denial(f"not {SPEED}"),
        MODIFIED,
        Answer(200, node=versioned(BOTH, 2)),
        Answer(200, node=versioned({**BOTH, FLAVOR: "x"}, 3)),
    )
    found = plan(versioned(BOTH, 1), desired({FLAVOR: "x", SPEED: "1G"}), KEYS)
    outcome = negotiate(found, kube)
    assert [SPEED in labels_in(requests[index]) for index in (0, 1, 3)] == [True, False, False]
    assert [refusal.key for refusal in outcome.refused] == [SPEED]


def test_a_recreated_node_during_a_negotiation() -> None:
    """With fields outside the table a recreated Node is a newer version, and is labeled."""
    anew = versioned({}, 9, observed=None)
    anew["metadata"]["uid"] = "u-2"
    requests, kube = replies(MODIFIED, *[Answer(200, node=anew)] * 2)
    negotiate(plan(versioned(BOTH, 1), WANTED, KEYS), kube)
    assert requests[2]["body"]["metadata"]["uid"] == "u-2"
    assert labels_in(requests[2]) == {FLAVOR: "roce", SPEED: "1G"}


def test_a_cleanup_of_a_node_that_changed() -> None:
    """A cleanup carries the labels of other prefixes as they are now."""
    changed = versioned({**BOTH, OLD: "new"}, 2)
    requests, kube = replies(MODIFIED, Answer(200, node=changed), Answer(200, node=node()))
    negotiate(removal(versioned(BOTH, 1), KEYS), kube)
    assert labels_in(requests[2]) == {OLD: "new"}


def test_carried_labels_are_read_before_each_apply() -> None:
    """With fields outside the table on the known Node, an apply is preceded by a GET; without a
    change there is no request at all.
    """
    now = versioned({**BOTH, OLD: "infiniband"}, 5)
    requests, kube = replies(Answer(200, node=now), Answer(200, node=now))
    reconciler = Reconciler(kube, "n1", KEYS)
    result = reconciler.reconcile(versioned(BOTH, 1), WANTED)
    assert (operations(requests), versions(requests)) == (["get", "apply"], ["5"])
    assert labels_in(requests[1])[OLD] == "infiniband"
    assert result.codes == (200, 200)
    same = desired({FLAVOR: "roce"}, now=NOW)
    assert reconciler.reconcile(versioned(BOTH, 1), same).outcome is None


def test_no_change_after_the_read() -> None:
    """A Node that turns out to be right is not written to."""
    now = versioned({**BOTH, SPEED: "1G"}, 5)
    requests, kube = replies(Answer(200, node=now))
    result = Reconciler(kube, "n1", KEYS).reconcile(versioned(BOTH, 1), WANTED)
    assert (operations(requests), result.outcome, result.node) == (["get"], None, now)


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
    assert result.outcome.back_off == {"P"}
