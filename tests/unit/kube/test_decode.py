"""Responses of an API server, or of a proxy in its place, as replies of the helper."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.kube.decode import MAX_BODY, read_event, read_list, read_node, read_survey
from agent.kube.errors import KINDS, answer_of, failure_of
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


@given(
    statuses, headers, st.binary() | documents.map(lambda document: json.dumps(document).encode())
)
def test_any_response(status: int, head: dict[str, str], data: bytes) -> None:
    """Any response gives a Node, Nodes or a reply that means a failure."""
    for read, good in ((read_node, "node"), (read_list, "nodes"), (read_survey, "nodes")):
        found = json.loads(json.dumps(read(status, head, data)))
        assert found["status"] == status
        answer = answer_of(found)
        assert good in found or failure_of(answer, "n1").kind in KINDS


@given(
    statuses, headers, st.binary() | documents.map(lambda document: json.dumps(document).encode())
)
def test_any_response_about_an_event(status: int, head: dict[str, str], data: bytes) -> None:
    """It is a success, or a reply that means a failure."""
    found = json.loads(json.dumps(read_event(status, head, data)))
    assert found["status"] == status
    assert found.keys() == {"status"} or failure_of(answer_of(found), "n1").kind in KINDS
    assert found.keys() != {"status"} or status in (200, 201)


def test_an_event() -> None:
    """Of an Event nothing is kept; any other document is none."""
    metadata = {"name": "n1.1", "uid": "u", "managedFields": [1]}
    assert read_event(201, {}, json.dumps({"metadata": metadata}).encode()) == {"status": 201}
    assert read_event(200, {}, b"{}")["error"] == "garbage"


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
    found = read_node(200, {}, json.dumps(whole).encode())["node"]
    assert found.keys() == {"metadata"}
    assert found["metadata"].keys() == {"name", "uid", "labels", "annotations", "managedFields"}
    assert found["metadata"]["managedFields"][-1] == {
        "manager": "kubelet",
        "time": "t",
        "fieldsV1": {"f:metadata": {}},
    }


@pytest.mark.parametrize(("token", "found"), [("", None), (None, None), ("more", "more")])
def test_the_end_of_a_list(token: str | None, found: str | None) -> None:
    """A list ends with a page that has no `continue`."""
    data = json.dumps({"items": [], "metadata": {"continue": token}}).encode()
    assert read_list(200, {}, data) == {"status": 200, "nodes": [], "continue": found}


@pytest.mark.parametrize("read", [read_list, read_survey])
def test_an_empty_list_of_metadata_has_null_items(read: Any) -> None:
    """So an API server writes a PartialObjectMetadataList."""
    assert read(200, {}, b'{"metadata": {}, "items": null}')["nodes"] == []
    assert read(200, {}, b'{"metadata": {}}')["error"] == "garbage"


def test_a_long_response() -> None:
    """A response that is too long is not parsed."""
    assert read_node(200, {}, b" " * (MAX_BODY + 1))["error"] == "garbage"


@pytest.mark.parametrize("document", [{"kind": "Status"}, {"metadata": {"name": "n1"}}, [], 7])
def test_other_documents(document: object) -> None:
    """A document that is neither a Node nor a NodeList is garbage."""
    data = json.dumps(document).encode()
    assert read_node(200, {}, data)["error"] == "garbage"
    assert read_list(200, {}, data)["error"] == "garbage"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("99999999999999999999", 999999999.0), ("Wed, 21 Oct 2065 07:28:00 GMT", 9.0)],
)
def test_retry_after(header: str, seconds: float) -> None:
    """Retry-After comes from the header if it is a number of seconds, else from the Status."""
    data = json.dumps({"details": {"retryAfterSeconds": 9}}).encode()
    assert read_node(429, {"Retry-After": header}, data)["retry_after"] == seconds


def test_nodes_of_a_list() -> None:
    """Every Node is kept, whoever manages it; other objects are not."""
    other = node({}, {"kubectl-label": {FLAVOR: "x"}}, observed=None)
    del other["metadata"]["managedFields"][0]
    data = json.dumps({"items": [node(), other, {"metadata": {"name": "n2"}}, 7]}).encode()
    assert len(read_list(200, {}, data)["nodes"]) == 2


def test_a_survey_has_no_field_managers() -> None:
    """They are most of a Node's metadata; the number of Nodes to come is the server's."""
    metadata = {"continue": "more", "remainingItemCount": 7}
    data = json.dumps({"items": [node()], "metadata": metadata}).encode()
    found = read_survey(200, {}, data)
    assert found["nodes"][0]["metadata"].keys() == {"name", "uid", "labels", "annotations"}
    assert (found["continue"], found["remaining"]) == ("more", 7)
    last = json.dumps({"items": [], "metadata": {"remainingItemCount": "7"}}).encode()
    assert read_survey(200, {}, last) == {
        "status": 200,
        "nodes": [],
        "continue": None,
        "remaining": None,
    }


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
    assert read_survey(200, {}, json.dumps(document).encode())["error"] == "garbage"


@pytest.mark.parametrize("token", ["again", None, 7])
def test_an_expired_token_has_a_successor(token: object) -> None:
    """In the metadata of the Status."""
    status = {
        "kind": "Status",
        "reason": "Expired",
        "message": "m",
        "metadata": {"continue": token},
    }
    found = read_survey(410, {}, json.dumps(status).encode())
    assert found["continue"] == ("again" if isinstance(token, str) else None)
    assert (found["status"], found["reason"]) == (410, "Expired")
