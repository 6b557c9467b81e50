"""Nodes as a file: what `kubectl get nodes -o json` prints, or other JSON with Nodes in it.

The clock of such a fleet is that of its Nodes, so that a file of last week is judged as of last
week: the newest of the times that kubelets and agents wrote into them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import TextIO

from agent.errors import Malformed, Unavailable
from agent.facts import parse_time
from agent.fleet.collect import Collected, Selection, name_of
from agent.fleet.json_items import Item, Items
from agent.fleet.model import Fleet
from agent.kube.answers import objects, part
from agent.limits import uncollected
from agent.text import visible

STDIN = "-"
KINDS = frozenset({"Node", "PartialObjectMetadata"})
LISTS = frozenset({"List", "NodeList", "PartialObjectMetadataList"})
MAX_QUOTE = 64  # characters of the file's text in a message

_UTC = re.compile(r"[0-9]{4}(-[0-9]{2}){2}T([0-9]{2}:){2}[0-9]{2}Z", re.ASCII)


def read_file(path: str, selection: Selection, clock: float) -> Fleet:
    """Read the Nodes of a file, or of standard input.

    Raises Malformed with line and column for anything but Nodes, Unavailable.
    """
    collected = Collected(selection, clock)
    source = "standard input" if path == STDIN else path
    with _opened(path, source) as file, uncollected():
        heartbeat = _read(Items(file), collected)
    if not collected.total:
        raise Malformed(f"{source}: no Node in it")
    newest = max(filter(None, (heartbeat, collected.newest)), default=clock)
    return collected.fleet(source, min(newest, clock))


def _read(items: Items, collected: Collected) -> int | None:
    """Add the Nodes; return the newest time of a kubelet. Raises Malformed for anything else."""
    newest, lines = "", dict[str, int]()
    for item in items:
        if item.is_list:
            _require(item, LISTS)
            continue
        if not isinstance(item.value, dict):
            raise _fault(item, "no Node, and not a JSON object")
        if "kind" in item.value:
            _require(item, KINDS)
        name = name_of(item.value)
        if name is None:
            raise _fault(item, "no Node: it has no metadata.name")
        if first := lines.get(name):
            text = f"Node {visible(name, MAX_QUOTE)} again, the first is at line {first}"
            raise _fault(item, text)
        lines[name] = item.line
        collected.add(item.value, name)
        # when the kubelet reported a condition; of whole Nodes only
        conditions = objects(part(item.value, "status").get("conditions"))
        times = (condition.get("lastHeartbeatTime") for condition in conditions)
        texts = (time for time in times if isinstance(time, str) and _UTC.fullmatch(time))
        newest = max(newest, *texts, "")
    with suppress(ValueError):
        return parse_time(newest)
    return None


def _require(item: Item, kinds: frozenset[str]) -> None:
    kind = item.value.get("kind", "List")
    if not isinstance(kind, str) or kind not in kinds:
        raise _fault(item, f"no Node: its kind is {visible(ascii(kind), MAX_QUOTE)}")


def _fault(item: Item, text: str) -> Malformed:
    return Malformed(f"line {item.line}, column {item.column}: {text}")


@contextmanager
def _opened(path: str, source: str) -> Iterator[TextIO]:
    """Open the text; every error names it."""
    try:
        if path == STDIN:
            yield TextIOWrapper(sys.stdin.buffer, "utf-8-sig")
        else:
            with open(path, encoding="utf-8-sig") as file:
                yield file
    except Malformed as error:
        raise Malformed(f"{source}: {error}") from error
    except UnicodeDecodeError as error:
        raise Malformed(f"{source}: no text in UTF-8: {error.reason}") from error
    except OSError as error:
        raise Unavailable(f"{source}: {error.strerror or error}") from error
