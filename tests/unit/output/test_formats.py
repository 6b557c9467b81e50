"""The formats of a document."""

from __future__ import annotations

import json

import pytest
import yaml

from agent.errors import Unavailable
from agent.output.formats import FORMATS

DOCUMENT = {"node": "gpu-7", "labels": {"a/b": "3200G", "a/c": "12"}}


def test_labels_are_lines() -> None:
    """`key=value`, in the order of the document."""
    assert FORMATS["labels"](DOCUMENT) == "a/b=3200G\na/c=12\n"
    assert FORMATS["labels"](DOCUMENT | {"labels": {}}) == ""


def test_json_is_the_document() -> None:
    """Escaped as ASCII, so that no control character reaches a terminal."""
    text = FORMATS["json"](DOCUMENT | {"node": "\x9b2Jn\u202e"})
    assert json.loads(text)["node"] == "\x9b2Jn\u202e"
    assert text.isascii()
    assert text.replace("\n", "").isprintable()


def test_yaml_is_a_node_manifest() -> None:
    """Values stay strings, though they look like numbers."""
    node = yaml.safe_load(FORMATS["yaml"](DOCUMENT))
    assert node == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "gpu-7", "labels": {"a/b": "3200G", "a/c": "12"}},
    }


@pytest.mark.parametrize("name", [None, "", "A b"])
def test_yaml_needs_a_node_name(name: str | None) -> None:
    """The error names the flag that sets it."""
    with pytest.raises(Unavailable, match="--node-name"):
        FORMATS["yaml"](DOCUMENT | {"node": name})
