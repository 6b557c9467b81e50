"""What the answer to the check of the admission policy proves."""

from __future__ import annotations

import json

import pytest

from agent.kube.answers import Answer, Request
from agent.kube.api import encode
from agent.kube.policy import FOREIGN, PolicyState, check_policy
from tests.support import nodes
from tests.support.api_server import replies

OWN = "bwagent changes its own labels only, not bwagent.invalid/policy-check"
DENIAL = (
    "nodes \"n1\" is forbidden: ValidatingAdmissionPolicy '{}' with binding '{}' denied request: {}"
)


def denial(name: str, text: str = OWN, status: int = 422) -> Answer:
    return Answer(status, reason="Invalid", message=DENIAL.format(name, name, text))


def accepting(request: Request) -> Answer:
    """Return the Node with the label of the request."""
    return Answer(200, node=nodes.node(request["body"]["metadata"]["labels"]))


@pytest.mark.parametrize(
    "reply",
    [
        denial("bwagent"),
        denial("bwagent-blue.gpu"),
        denial("netlabels"),
        denial("bwagent", "failed expression: no such key: metadata"),
        denial("bwagent", status=403),
    ],
)
def test_a_denial_by_the_policy_proves_it(reply: Answer) -> None:
    """It has its name, or one of its messages under another name."""
    assert check_policy(replies(reply)[1], "n1").in_force is True


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (denial("site-labels", "no labels of .invalid"), "no labels of .invalid"),
        (Answer(403, message='User "x" cannot patch resource'), "not permitted"),
        (Answer(400, message=f'admission webhook "bwagent" denied: {OWN}'), "bwagent changes"),
        (Answer(500, message=DENIAL.format("bwagent", "bwagent", OWN)), "failed"),
        (Answer(409, message="the object has been modified"), "at the same time"),
        (Answer(404, message='nodes "n1" not found'), "not found"),
        (Answer(429, message="too many", retry_after=7), "overloaded"),
        (Answer(error="timeout", message="no answer"), "in time"),
        (Answer(200, error="garbage", message="a page"), "proxy"),
        (Answer(200, node=nodes.node()), "dropped a foreign label"),
        (Answer(error="helper", message="no answer within 25 s"), "request not made"),
    ],
)
def test_any_other_refusal_proves_nothing(reply: Answer, text: str) -> None:
    """RBAC, another policy, a webhook, a conflict, a timeout, a label that a webhook drops."""
    found = check_policy(replies(reply)[1], "n1")
    assert (found.in_force, text in found.text, "\n" in found.text) == (None, True, False)
    assert found.retry_after == reply.retry_after


def test_an_accepted_label_means_no_policy() -> None:
    """The API server would store it."""
    found = check_policy(accepting, "n1")
    assert (found.in_force, found.status) == (False, 200)


def test_the_token_is_read_again_after_a_401() -> None:
    """One more request follows."""
    requests, kube = replies(Answer(401, message="expired"), denial("bwagent"))
    assert (check_policy(kube, "n1").in_force, len(requests)) == (True, 2)


def test_the_request_stores_nothing() -> None:
    """A dry run of one label, with another value each time, by its own manager, not forced."""
    requests, kube = replies(denial("bwagent"), denial("bwagent"))
    text = DENIAL.format("bwagent", "bwagent", OWN)
    assert check_policy(kube, "n1") == PolicyState(in_force=True, text=text, status=422)
    check_policy(kube, "n1")
    sent = [encode(request) for request in requests]
    for one in sent:
        query = "fieldManager=bwagent-policy-check&dryRun=All"
        assert (one.method, one.target) == ("PATCH", f"/api/v1/nodes/n1?{query}")
        assert one.headers["Content-Type"] == "application/merge-patch+json"
        assert list(json.loads(one.body or b"")["metadata"]["labels"]) == [FOREIGN]
    assert sent[0].body != sent[1].body
