"""The versions of a Node over time, and whether they are as expected.

Labels that are right in the end may have been wrong in between, which sampling would miss. A watch
returns every version of a Node, in order, so the check covers the values that each fact had. A
*fact* changes as a whole; a neighbor with all its labels is one, since a device from before and a
port from after are a cable that never existed:

    {"flavor": "roce", "speed.current": "30G", "rxe0": "leaf-1 swp1 swp1", "site.example/rack": "1"}
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self
from urllib.parse import quote

from tests.support.kube.cluster import Cluster

Facts = Mapping[str, str]
Fact = str | None


P = "backend.coreweave.cloud"
PARTS = ("device", "port-id", "port-name")
NEIGHBOR = re.compile(rf"{re.escape(P)}/neighbors\.current\.(.+)\.({'|'.join(PARTS)})")
JOINED = {f"{P}/leaves.current", f"{P}/leafgroup.current"}


@dataclass(frozen=True, slots=True)
class Version:
    """One version of the Node."""

    at: float  # seconds since the timeline began, at the arrival of the event
    number: str  # its resourceVersion
    facts: Facts
    boot_id: str | None  # as the agent's annotation has it


def facts_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the facts of these labels; a label of no neighbor is a fact of its own,
    without the prefix. Those that join all neighbors follow from the others.
    """
    found: dict[str, str] = {}
    for key, value in sorted(labels.items()):
        if key in JOINED:
            continue
        if neighbor := NEIGHBOR.fullmatch(key):
            interface, part = neighbor.groups()
            place = found.get(interface, " ".join("-" * len(PARTS))).split()
            place[PARTS.index(part)] = value
            found[interface] = " ".join(place)
        else:
            found[key.removeprefix(f"{P}/")] = value
    return found


def ways(versions: Iterable[Facts]) -> dict[str, list[Fact]]:
    """Return the values of each fact through these versions, without repetitions."""
    every = list(versions)
    found: dict[str, list[Fact]] = {}
    for name in sorted({name for facts in every for name in facts}):
        values = [facts.get(name) for facts in every]
        found[name] = values[:1] + [value for before, value in pairwise(values) if value != before]
    return found


def faults(
    versions: Sequence[Facts],
    after: Facts,
    via: Mapping[str, Sequence[Fact]] | None = None,
    aside: Collection[str] = (),
) -> list[str]:
    """Return the errors between the first of these versions and the expected facts; empty if there
    are none.

    Each fact changes at most once, and directly to the expected value. It may pass the values that
    `via` has for it, in that order, each at most once. Facts in `aside` are not checked.
    """
    found = []
    for name, way in ways([*versions, after]).items():
        told = ways(versions).get(name, [None])
        allowed = [way[0], *(via or {}).get(name, ()), after.get(name)]
        if name not in aside and not (told[-1] == after.get(name) and _is_among(told, allowed)):
            found.append(
                f"{name}: {' -> '.join(map(str, told))}, "
                f"and should be {' -> '.join(map(str, allowed))}"
            )
    return found


def _is_among(way: Iterable[Fact], allowed: Iterable[Fact]) -> bool:
    """True if all values are in the permitted ones, in that order."""
    left = iter(allowed)
    return all(step in left for step in way)


class Timeline:
    """Every version of one Node within the block, with notes of the steps taken meanwhile.

    `watch` is the number of seconds after which a watch is restarted where the last one ended.
    """

    def __init__(self, cluster: Cluster, node: str, watch: int = 10) -> None:
        self.versions: list[Version] = []
        self._cluster, self._node, self._watch = cluster, node, watch
        self._notes: list[tuple[float, str]] = []
        self._began = time.monotonic()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._keep, name="timeline", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self.until(lambda _: True, 30), "the Node is not there"
        return self

    def __exit__(self, *_: object) -> None:
        """End the timeline by deleting the Node."""
        self._cluster.request("DELETE", f"/api/v1/nodes/{self._node}")
        self._thread.join(2 * self._watch)

    def note(self, text: str) -> float:
        """Record a step; return the time."""
        at = time.monotonic() - self._began
        self._notes.append((at, text))
        return at

    def until(self, wanted: Callable[[Version], bool], limit: float) -> bool:
        """Wait until the last version is as wanted; return False if it is not within so
        many seconds.
        """
        with self._news:
            return self._news.wait_for(
                lambda: bool(self.versions) and wanted(self.versions[-1]), limit
            )

    def __str__(self) -> str:
        """Return all steps and changes of the Node, a line each."""
        lines = [(at, f"--- {text}") for at, text in self._notes]
        before: Facts = {}
        for version in list(self.versions):
            lines += [(version.at, change) for change in _changes(before, version)]
            before = version.facts
        return "\n".join(
            f"{at:8.2f} s  {text}" for at, text in sorted(lines, key=lambda line: line[0])
        )

    def _keep(self) -> None:
        """Watch until the Node is deleted: the body of a thread."""
        selector = quote(f"metadata.name={self._node}")
        path = f"/api/v1/nodes?watch=1&fieldSelector={selector}&timeoutSeconds={self._watch}"
        there = True
        while there:
            since = f"&resourceVersion={self.versions[-1].number}" if self.versions else ""
            for event in self._cluster.events(path + since):
                there = event["type"] in {"ADDED", "MODIFIED"}
                if there:
                    self._add(event["object"]["metadata"])

    def _add(self, metadata: dict[str, Any]) -> None:
        told = json.loads(metadata.get("annotations", {}).get(f"{P}/observed", "{}"))
        at, facts = time.monotonic() - self._began, facts_of(metadata.get("labels", {}))
        with self._news:
            self.versions.append(
                Version(at, metadata["resourceVersion"], facts, told.get("boot_id"))
            )
            self._news.notify_all()


def _changes(before: Facts, version: Version) -> list[str]:
    names = sorted(before.keys() | version.facts.keys())
    changes = [(name, before.get(name), version.facts.get(name)) for name in names]
    return [f"{name}: {old} -> {new}" for name, old, new in changes if old != new] or [
        "written, with the same labels"
    ]
