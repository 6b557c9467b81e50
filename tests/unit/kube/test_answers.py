"""Responses of an API server, or of a proxy in its place, as answers, and the failures that they
mean.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.kube.answers import (
    KINDS,
    MAX_BODY,
    MAX_MESSAGE,
    MAX_PAGE_BODY,
    PAGES,
    Answer,
    Cause,
    Request,
    about,
    failure_of,
    one_line,
    read,
)
from tests.support.api_server import denial
from tests.support.nodes import BOOT, FLAVOR, node

statuses = st.sampled_from(
    [101, 200, 201, 204, 302, 400, 401, 403, 404, 407, 409, 410, 422, 429, 500, 503, 999]
)
headers = st.dictionaries(st.sampled_from(["Content-Type", "Retry-After"]), st.text(max_size=9))
names = ["metadata", "items", "details", "causes", "message", "retryAfterSeconds", "managedFields"]
names += ["labels", "uid", "name"]


values = st.none() | st.booleans() | st.floats() | st.text(max_size=4)
documents = st.recursive(
    values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(names), inner),
    max_leaves=20,
)


def data(document: object) -> bytes:
    return json.dumps(document).encode()


@pytest.mark.slow
@given(
    st.sampled_from(["get", "list", "survey", "create-event", "patch-event"]),
    statuses,
    headers,
    st.binary() | documents.map(data),
)
def test_any_response(operation: str, status: int, head: dict[str, str], body: bytes) -> None:
    """Any response gives what was asked for, or an answer that means a failure."""
    answer = read(operation, status, head, body)
    assert answer.status == status
    if answer.succeeded:
        assert status in (200, 201)
        assert (answer.node is not None) == (operation == "get")
    else:
        assert answer.node is None
        assert failure_of(answer, "n1").kind in KINDS


def test_a_node() -> None:
    """Of a Node only its name, labels, annotations and their managers with their times are kept, of
    an Event nothing.
    """
    whole: dict[str, Any] = node({FLAVOR: "roce"}) | {"spec": {"x": 1}, "status": {"images": [1]}}
    whole["metadata"]["creationTimestamp"] = "x"
    kubelet = {"manager": "kubelet", "time": "t"}
    images: dict[str, Any] = {"fieldsV1": {"f:status": {"f:images": {}}}}
    whole["metadata"]["managedFields"].append(kubelet | images)
    found = read("get", 200, {}, data(whole)).node
    assert found
    assert found.keys() == {"metadata"}
    assert found["metadata"].keys() == {"name", "uid", "labels", "annotations", "managedFields"}
    last = found["metadata"]["managedFields"][-1]
    assert last == {**kubelet, "fieldsV1": {"f:metadata": {}}}
    assert read("create-event", 201, {}, data(whole)) == Answer(201)
    assert read("patch-event", 200, {}, b"{}").error == "garbage"


@pytest.mark.parametrize(
    ("status", "boot_id"),
    [
        ({"nodeInfo": {"bootID": BOOT}}, BOOT),
        ({"nodeInfo": {"bootID": ""}}, None),
        ({"nodeInfo": {"bootID": "two words"}}, None),
        ({"nodeInfo": {"bootID": 7}}, None),
        ({"nodeInfo": {}}, None),
        ({"nodeInfo": []}, None),
        ({}, None),
        (None, None),
    ],
)
def test_the_boot_of_a_whole_node(status: object, boot_id: str | None) -> None:
    """One that is empty, absent or malformed is unknown; metadata alone has none."""
    assert read("get", 200, {}, data(node() | {"status": status})).boot_id == boot_id
    assert read("get", 200, {}, data(node())).boot_id is None


UID = node()["metadata"]["uid"]
GET: Request = {"operation": "get", "node": "n1"}
APPLIED: Request = {"operation": "apply", "node": "n1", "body": {"metadata": {"uid": UID}}}
PATCHED: Request = {
    "operation": "patch",
    "node": "n1",
    "body": [{"op": "test", "path": "/metadata/uid", "value": UID}],
}
POLICY: Request = {"operation": "check-policy", "node": "n1", "body": {"metadata": {}}}


@pytest.mark.parametrize("request_", [GET, APPLIED, PATCHED, POLICY])
@pytest.mark.parametrize(
    ("changed", "error", "error_of_write"),
    [
        ({}, None, None),
        ({"name": "n2"}, "garbage", "garbage"),
        ({"name": "n2", "uid": "x"}, "garbage", "garbage"),
        ({"name": ""}, "garbage", "garbage"),
        ({"uid": ""}, "garbage", "garbage"),
        ({"name": "", "uid": ""}, "garbage", "garbage"),
        ({"uid": "x"}, None, "recreated"),
    ],
)
def test_an_answer_is_about_the_node_that_was_asked_for(
    request_: Request, changed: dict[str, str], error: str | None, error_of_write: str | None
) -> None:
    """Another name is no answer; another uid is a new Node, for which the write was not meant."""
    whole = node({FLAVOR: "roce"})
    whole["metadata"] |= changed
    answer = about(request_, read(request_["operation"], 200, {}, data(whole)))
    expected = error_of_write if request_ in (APPLIED, PATCHED) else error
    assert (answer.error, answer.node is None) == (expected, expected is not None)
    if expected:
        text = failure_of(answer, "n1").text
        assert text.startswith("Node n1: ")
        assert "\n" not in text


@pytest.mark.parametrize(("token", "found"), [("", ""), (None, ""), ("more", "more")])
def test_the_end_of_a_list(token: str | None, found: str) -> None:
    """A list ends with a page that has no `continue`."""
    page = {"items": [], "metadata": {"continue": token}}
    assert read("list", 200, {}, data(page)) == Answer(200, nodes=[], following=found)


@pytest.mark.parametrize("operation", sorted(PAGES))
def test_an_empty_list_of_metadata_has_null_items(operation: str) -> None:
    """So an API server writes a PartialObjectMetadataList."""
    assert read(operation, 200, {}, b'{"metadata": {}, "items": null}').succeeded
    assert read(operation, 200, {}, b'{"metadata": {}}').error == "garbage"


@pytest.mark.parametrize(("operation", "limit"), [("get", MAX_BODY), ("list", MAX_PAGE_BODY)])
def test_a_long_response(operation: str, limit: int) -> None:
    """A response that is too long is not parsed."""
    answer = read(operation, 200, {}, b" " * (limit + 1))
    text = f"the response is longer than {limit >> 20} MiB"
    assert (answer.error, answer.message) == ("garbage", text)


@pytest.mark.parametrize("document", [{"kind": "Status"}, {"metadata": {"name": "n1"}}, [], 7])
@pytest.mark.parametrize("operation", ["get", "list", "survey"])
def test_other_documents(operation: str, document: object) -> None:
    """A document that is neither a Node nor a NodeList is garbage."""
    assert read(operation, 200, {}, data(document)).error == "garbage"


def test_nodes_of_a_list() -> None:
    """Every Node is kept, whoever manages it; other objects are not."""
    other = node({}, {"kubectl-label": {FLAVOR: "x"}}, observed=None)
    del other["metadata"]["managedFields"][0]
    page = {"items": [node(), other, {"metadata": {"name": "n2"}}, 7]}
    assert len(read("list", 200, {}, data(page)).nodes) == 2


def test_a_survey_has_no_field_managers() -> None:
    """They are most of a Node's metadata; the number of Nodes to come is the server's."""
    page = {"items": [node()], "metadata": {"continue": "more", "remainingItemCount": 7}}
    found = read("survey", 200, {}, data(page))
    assert found.nodes[0]["metadata"].keys() == {"name", "uid", "labels", "annotations"}
    assert (found.following, found.remaining) == ("more", 7)
    last = {"items": [], "metadata": {"remainingItemCount": "7"}}
    assert read("survey", 200, {}, data(last)) == Answer(200, nodes=[])


@pytest.mark.parametrize("items", [[node(), 7], [{"metadata": {"name": "n2"}}]])
def test_a_survey_is_whole_or_garbage(items: object) -> None:
    """A Node that cannot be read would be missing without a word, and so would a page."""
    assert read("survey", 200, {}, data({"items": items})).error == "garbage"
    odd = {"items": [], "metadata": {"continue": 7}}
    assert read("survey", 200, {}, data(odd)).error == "garbage"


@pytest.mark.parametrize("token", ["again", None, 7])
def test_an_expired_token_has_a_successor(token: object) -> None:
    """In the metadata of the Status."""
    status = {"kind": "Status", "reason": "Expired", "metadata": {"continue": token}}
    found = read("survey", 410, {}, data(status))
    assert found.following == ("again" if isinstance(token, str) else "")
    assert (found.status, found.reason) == (410, "Expired")


def test_a_conflict() -> None:
    """A cause has text in each part, whatever the server sends. The manager is quoted in its
    message, which is shown whole without quotes.
    """
    row = {"reason": "FieldManagerConflict", "field": ".metadata.labels.a", "message": None}
    answer = read("apply", 409, {}, data({"details": {"causes": [row, 7]}}))
    assert answer.conflicts == (Cause("FieldManagerConflict", ".metadata.labels.a", ""),)
    assert Cause("", "", 'conflict with "kubectl-edit" using v1').manager == "kubectl-edit"
    assert Cause("", "", "conflict").manager == "conflict"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"no {FLAVOR}", True),
        (f'"{FLAVOR}": no', True),
        (f"not {FLAVOR}, nor others", True),
        (f"metadata.labels.{FLAVOR}: no", True),
        (f"metadata.labels[{FLAVOR}]: no", True),
        (f"no {FLAVOR}-2", False),
        (f"no {FLAVOR}.x", False),
        (f"no x.{FLAVOR}", False),
        ("no", False),
    ],
)
def test_naming(text: str, *, named: bool) -> None:
    """A key is named by itself, not as a part of a longer one; in the message or in a cause."""
    assert denial(text).names(FLAVOR) == named
    for cause in (Cause("", text, ""), Cause("", "", text)):
        assert Answer(422, message="no", causes=(cause,)).names(FLAVOR) == named


@pytest.mark.parametrize(
    ("header", "seconds", "limited"),
    [
        ("7", 7.0, 7.0),
        ("0", 0.0, 1.0),
        ("99999999999999999999", 999999999.0, 600.0),
        ("Wed, 21 Oct 2065 07:28:00 GMT", 9.0, 9.0),
        ("-1", 9.0, 9.0),
    ],
)
def test_retry_after(header: str, seconds: float, limited: float) -> None:
    """Retry-After comes from the header if it is a number of seconds, else from the Status. A wait
    is limited to between a second and ten minutes.
    """
    status = data({"details": {"retryAfterSeconds": 9}})
    answer = read("get", 429, {"Retry-After": header}, status)
    assert answer.retry_after == seconds
    assert failure_of(answer, "n1").retry_after == limited
    assert failure_of(Answer(429), "n1").retry_after is None


def test_text_of_a_server() -> None:
    """Text of a server is shown as one printable line of bounded length."""
    assert one_line("a\n b\t\x1b[31mc\u202e") == r"a b \x1b[31mc\u202e"
    assert len(one_line("x" * 5000)) == MAX_MESSAGE


@pytest.mark.parametrize("kind", KINDS)
def test_sentences(kind: str) -> None:
    """A failure of any kind is one line that names the Node and has the server's message."""
    failure = failure_of(Answer(error=kind, message="be\ncause", server="https://api"), "n1")
    assert failure.kind == kind
    assert failure.text.startswith("Node n1: ")
    assert failure.text.endswith(": be cause")
    assert failure_of(Answer(error=kind, status=422), "n1").text.endswith(": status 422")


def test_a_write_that_may_have_been_made() -> None:
    """The sentence says so, and never that the request was not made. No write comes after a webhook
    that fails.
    """
    found = failure_of(
        Answer(error="cut", message="EOF", server="https://k", maybe_done=True), "n1"
    )
    text = "Node n1: outcome unknown: connection to https://k lost: EOF"
    assert (found.text, found.maybe_done) == (text, True)
    assert Answer(500, message="etcdserver: request timed out").is_server_error
    assert not Answer(500, message='failed calling webhook "x": refused').is_server_error
