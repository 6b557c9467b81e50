"""Responses of an API server, or of a proxy in its place, as answers, and the failures that they
mean.
"""

from __future__ import annotations

import json
from dataclasses import replace
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
    failure_of,
    one_line,
    read,
)
from tests.support.api_server import denial
from tests.support.nodes import FLAVOR, node

statuses = st.sampled_from(
    [101, 200, 201, 204, 302, 400, 401, 403, 404, 407, 409, 410, 422, 429, 500, 503, 999]
)
headers = st.dictionaries(st.sampled_from(["Content-Type", "Retry-After"]), st.text(max_size=9))
names = [
    "metadata",
    "items",
    "details",
    "causes",
    "message",
    "retryAfterSeconds",
    "managedFields",
    "labels",
    "uid",
    "name",
]
values = st.none() | st.booleans() | st.floats() | st.text(max_size=4)
documents = st.recursive(
    values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(names), inner),
    max_leaves=20,
)


OPERATIONS = ["get", "list", "survey", "create-event", "patch-event"]


@pytest.mark.slow
@given(
    st.sampled_from(OPERATIONS),
    statuses,
    headers,
    st.binary() | documents.map(lambda document: json.dumps(document).encode()),
)
def test_any_response(operation: str, status: int, head: dict[str, str], data: bytes) -> None:
    """Any response gives what was asked for, or an answer that means a failure."""
    answer = read(operation, status, head, data)
    assert answer.status == status
    if answer.succeeded:
        assert status in (200, 201)
        assert (answer.node is not None) == (operation == "get")
    else:
        assert answer.node is None
        assert failure_of(answer, "n1").kind in KINDS


def test_an_event() -> None:
    """Of an Event nothing is kept; any other document is none."""
    metadata = {"name": "n1.1", "uid": "u", "managedFields": [1]}
    data = json.dumps({"metadata": metadata}).encode()
    assert read("create-event", 201, {}, data) == Answer(201)
    assert read("patch-event", 200, {}, b"{}").error == "garbage"


def test_a_node() -> None:
    """Of a Node only its name, labels, annotations and their managers with their times are kept."""
    whole: dict[str, Any] = node({FLAVOR: "roce"}) | {
        "spec": {"podCIDR": "x"},
        "status": {"images": [1] * 9},
    }
    whole["metadata"]["creationTimestamp"] = "x"
    whole["metadata"]["managedFields"].append(
        {"manager": "kubelet", "time": "t", "fieldsV1": {"f:status": {"f:images": {}}}}
    )
    found = read("get", 200, {}, json.dumps(whole).encode()).node
    assert found
    assert found.keys() == {"metadata"}
    assert found["metadata"].keys() == {"name", "uid", "labels", "annotations", "managedFields"}
    assert found["metadata"]["managedFields"][-1] == {
        "manager": "kubelet",
        "time": "t",
        "fieldsV1": {"f:metadata": {}},
    }


@pytest.mark.parametrize(("token", "found"), [("", ""), (None, ""), ("more", "more")])
def test_the_end_of_a_list(token: str | None, found: str) -> None:
    """A list ends with a page that has no `continue`."""
    data = json.dumps({"items": [], "metadata": {"continue": token}}).encode()
    assert read("list", 200, {}, data) == Answer(200, nodes=[], following=found)


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
def test_other_documents(document: object) -> None:
    """A document that is neither a Node nor a NodeList is garbage."""
    data = json.dumps(document).encode()
    assert read("get", 200, {}, data).error == "garbage"
    assert read("list", 200, {}, data).error == "garbage"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("99999999999999999999", 999999999.0),
        ("Wed, 21 Oct 2065 07:28:00 GMT", 9.0),
        ("-1", 9.0),
    ],
)
def test_retry_after_of_a_response(header: str, seconds: float) -> None:
    """Retry-After comes from the header if it is a number of seconds, else from the Status."""
    data = json.dumps({"details": {"retryAfterSeconds": 9}}).encode()
    assert read("get", 429, {"Retry-After": header}, data).retry_after == seconds


def test_nodes_of_a_list() -> None:
    """Every Node is kept, whoever manages it; other objects are not."""
    other = node({}, {"kubectl-label": {FLAVOR: "x"}}, observed=None)
    del other["metadata"]["managedFields"][0]
    data = json.dumps({"items": [node(), other, {"metadata": {"name": "n2"}}, 7]}).encode()
    assert len(read("list", 200, {}, data).nodes) == 2


def test_a_survey_has_no_field_managers() -> None:
    """They are most of a Node's metadata; the number of Nodes to come is the server's."""
    metadata = {"continue": "more", "remainingItemCount": 7}
    data = json.dumps({"items": [node()], "metadata": metadata}).encode()
    found = read("survey", 200, {}, data)
    assert found.nodes[0]["metadata"].keys() == {"name", "uid", "labels", "annotations"}
    assert (found.following, found.remaining) == ("more", 7)
    last = json.dumps({"items": [], "metadata": {"remainingItemCount": "7"}}).encode()
    assert read("survey", 200, {}, last) == Answer(200, nodes=[])


@pytest.mark.parametrize(
    "document",
    [
        {"items": [node(), 7]},
        {"items": [{"metadata": {"name": "n2"}}]},
        {"items": [], "metadata": {"continue": 7}},
        {"kind": "Status"},
    ],
)
def test_a_survey_is_whole_or_garbage(document: object) -> None:
    """A Node that cannot be read would be missing without a word."""
    assert read("survey", 200, {}, json.dumps(document).encode()).error == "garbage"


@pytest.mark.parametrize("token", ["again", None, 7])
def test_an_expired_token_has_a_successor(token: object) -> None:
    """In the metadata of the Status."""
    status = {
        "kind": "Status",
        "reason": "Expired",
        "message": "m",
        "metadata": {"continue": token},
    }
    found = read("survey", 410, {}, json.dumps(status).encode())
    assert found.following == ("again" if isinstance(token, str) else "")
    assert (found.status, found.reason) == (410, "Expired")


def test_a_conflict() -> None:
    """A cause has text in each part, whatever the server sends."""
    row = {"reason": "FieldManagerConflict", "field": ".metadata.labels.a", "message": None}
    data = json.dumps({"details": {"causes": [row, 7]}}).encode()
    answer = read("apply", 409, {}, data)
    assert answer.conflicts == (Cause("FieldManagerConflict", ".metadata.labels.a", ""),)


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
    """A key is named by itself, not as a part of a longer one."""
    assert denial(text).names(FLAVOR) == named


@pytest.mark.parametrize(
    ("seconds", "limited"), [(None, None), (0.0, 1.0), (30.0, 30.0), (86400.0, 600.0)]
)
def test_retry_after(seconds: float | None, limited: float | None) -> None:
    """A Retry-After is limited to between a second and ten minutes."""
    assert failure_of(Answer(429, retry_after=seconds), "n1").retry_after == limited


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


def test_a_write_that_may_have_been_made() -> None:
    """The sentence says so, and never that the request was not made."""
    answer = Answer(error="cut", message="EOF", server="https://k", maybe_done=True)
    text = "Node n1: outcome unknown: connection to https://k lost: EOF"
    assert failure_of(answer, "n1").text == text
    assert failure_of(answer, "n1").maybe_done
    assert not failure_of(replace(answer, maybe_done=False), "n1").maybe_done


def test_manager_of_a_conflict() -> None:
    """The manager is quoted in the message of a cause, which is shown whole without quotes."""
    assert Cause("", "", 'conflict with "kubectl-edit" using v1').manager == "kubectl-edit"
    assert Cause("", "", "conflict").manager == "conflict"
