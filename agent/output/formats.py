"""Print a document as a table, as labels, as JSON or as a Node manifest in YAML."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping

from agent.encode import prefix_fault
from agent.errors import Unavailable
from agent.text import Json


def show(document: Json, output: str) -> None:
    """Print a document on standard output; `output` is a key of FORMATS."""
    sys.stdout.write(FORMATS[output](document))
    sys.stdout.flush()


def show_explained(document: Json, output: str) -> None:
    """Print the document of one label on standard output as `table` or `json`."""
    from agent.output.explain import text_of

    sys.stdout.write(_json(document) if output == "json" else text_of(document))
    sys.stdout.flush()


def _table(document: Json) -> str:
    from agent.output.table import render

    # https://no-color.org
    dumb = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return render(document, color=sys.stdout.isatty() and not dumb)


def _json(document: Json) -> str:
    return json.dumps(document, indent=2) + "\n"


def _yaml(document: Json) -> str:
    """Return a Node manifest for `kubectl apply --server-side`.

    Raises Unavailable if the document has no valid Node name.
    """
    import yaml

    name: str | None = document["node"]
    if not name or prefix_fault(name):
        raise Unavailable(f"{name!r} is not a Node name: set --node-name")
    metadata = {"name": name, "labels": document["labels"]}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    return str(yaml.safe_dump(node, sort_keys=False))


FORMATS: Mapping[str, Callable[[Json], str]] = {
    "table": _table,
    "labels": lambda document: "".join(f"{k}={v}\n" for k, v in document["labels"].items()),
    "json": _json,
    "yaml": _yaml,
}
