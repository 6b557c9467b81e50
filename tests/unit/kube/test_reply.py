"""Replies of an API server, or of what stands in its place, read from bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.kube.reply import MAX_BODY, read_list, read_node
from agent.kube.response import KINDS, answer_of, failure_of
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
def test_any_reply(status: int, head: dict[str, str], data: bytes) -> None:
    """Any reply is an answer: a Node or Nodes, or something that a failure can be told from."""
    for read, good in ((read_node, "node"), (read_list, "nodes")):
        told = json.loads(json.dumps(read(status, head, data)))
        assert told["status"] == status
        answer = answer_of(told)
        assert good in told or failure_of(answer, "n1").kind in KINDS


def test_a_node() -> None:
    """Of a Node only what says who wrote which label goes on."""
    whole: dict[str, Any] = node({FLAVOR: "roce"}) | {
        "spec": {"podCIDR": "x"},
        "status": {"images": [1] * 9},
    }
    whole["metadata"]["creationTimestamp"] = "x"
    whole["metadata"]["managedFields"].append(
        {"manager": "kubelet", "fieldsV1": {"f:status": {"f:images": {}}}}
    )
    told = read_node(200, {}, json.dumps(whole).encode())["node"]
    assert told.keys() == {"metadata"}
    assert told["metadata"].keys() == {"name", "uid", "labels", "annotations", "managedFields"}
    assert told["metadata"]["managedFields"][-1] == {
        "manager": "kubelet",
        "fieldsV1": {"f:metadata": {}},
    }


@pytest.mark.parametrize(("further", "told"), [("", None), (None, None), ("more", "more")])
def test_the_end_of_a_list(further: str | None, told: str | None) -> None:
    """A list goes on as long as the server names where."""
    data = json.dumps({"items": [], "metadata": {"continue": further}}).encode()
    assert read_list(200, {}, data) == {"status": 200, "nodes": [], "continue": told}


def test_a_reply_without_end() -> None:
    """A reply that is too long is not read as JSON."""
    assert read_node(200, {}, b" " * (MAX_BODY + 1))["error"] == "garbage"
