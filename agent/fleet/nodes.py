"""One Node as JSON, whole or its metadata only, in the model of a fleet.

Nothing in a Node is trusted: a missing or malformed part is unknown, and a line of
`FleetNode.problems` names it. Texts that many Nodes share are kept once.
"""

from __future__ import annotations

import re
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.fleet.far_ends import NO_END, EndLabels, far_end, last_end
from agent.fleet.model import INFINIBAND, ROCE, FleetNode, FleetPort
from agent.kube.annotation import parse, without_future
from agent.kube.answers import part
from agent.kube.facts import is_word
from agent.kube.managed_fields import OBSERVED
from agent.model import natural
from agent.plans.rates import rate
from agent.text import listed, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.kube.annotation import Annotation, LabeledInterface
    from agent.labels.table import Naming

    Json = dict[str, Any]
    Texts = dict[str, str]

MAX_SPEED = 1_000_000.0  # Gb/s of one node
MAX_QUOTE = 64  # characters of a Node's text in a problem
MAX_NAMES = 5  # in one line

_OF_NEIGHBOR = re.compile(r"neighbors\.current\.(.+)\.(device|port-id|port-name)", re.DOTALL)
_OF_NODE = frozenset({"flavor", "speed.current", "leafgroup.current", "leaves.current"})


class _Place(NamedTuple):
    """The subject of a label."""

    name: str  # `flavor`, or `port_id` of an interface
    interface: str | None = None


class NodeReader:
    """Reads Nodes under one naming; a time after `now` is unknown."""

    def __init__(self, naming: Naming, now: float) -> None:
        self._naming, self._now = naming, now
        self._annotation = f"{naming.prefix}/{OBSERVED}"
        self._places = dict[str, tuple[str, _Place] | None]()  # of every label key seen

    def read(self, document: Json) -> FleetNode | None:
        """Read a Node that has a name; None if it has no label or annotation of the agent."""
        metadata, problems = part(document, "metadata"), list[str]()
        labels = _texts(metadata, "labels", problems)
        annotations = _texts(metadata, "annotations", problems)
        own = self._own(labels, problems)
        others = [] if self._annotation in annotations else _other_prefixes(annotations)
        if not (own or self._annotation in annotations or others or problems):
            return None
        if others:
            problems.append(f"labels under {_listed(others)}, which were not read")
        annotation = self._parsed(annotations.get(self._annotation), problems)
        return self._node(document, labels, own, annotation, problems)

    def _node(
        self,
        document: Json,
        labels: Texts,
        own: Mapping[_Place, str],
        annotation: Annotation | None,
        problems: list[str],
    ) -> FleetNode:
        metadata = part(document, "metadata")
        flavor = _flavor(own.get(_Place("flavor")), problems)
        boot_id = part(part(document, "status"), "nodeInfo").get("bootID")
        uid = metadata.get("uid")
        return FleetNode(
            name=metadata["name"],
            uid=uid if isinstance(uid, str) else None,
            flavor=flavor,
            speed_gbps=_speed(own.get(_Place("speed.current")), problems),
            ports=_ports(own, annotation, flavor, problems),
            labels=labels,
            leaf_group=own.get(_Place("leafgroup.current")),
            accelerator=labels.get(self._naming.accelerator),
            time=annotation.reported.time if annotation else None,
            boot_id=annotation.reported.boot_id if annotation else None,
            node_boot_id=boot_id if isinstance(boot_id, str) and is_word(boot_id) else None,
            agent=intern(annotation.agent) or None if annotation else None,
            problems=tuple(problems),
        )

    def _own(self, labels: Texts, problems: list[str]) -> dict[_Place, str]:
        """Return the values of the agent's labels; where both prefixes have one, that of P."""
        found: dict[str, dict[_Place, str]] = {"P": {}, "IB": {}}
        for key, value in labels.items():
            if key not in self._places:
                self._places[key] = self._place(key)
            if place := self._places[key]:
                found[place[0]][place[1]] = value
        values, twins = found["P"], found["IB"]
        differing = [place for place, value in twins.items() if values.get(place, value) != value]
        if differing:
            problems.append(f"{_listed(map(_shown, differing))}: other labels under both prefixes")
        return {**twins, **values}

    def _place(self, key: str) -> tuple[str, _Place] | None:
        """Return the family of a label key and what it is about; None for another's key."""
        prefix, _, name = key.rpartition("/")
        if not prefix or prefix not in self._naming[:2]:
            return None
        family = "P" if prefix == self._naming.prefix else "IB"
        if name in _OF_NODE:
            return family, _Place(name)
        found = _OF_NEIGHBOR.fullmatch(name)
        if not found:
            return None
        return family, _Place(found[2].replace("-", "_"), intern(found[1]))

    def _parsed(self, text: str | None, problems: list[str]) -> Annotation | None:
        """Parse the annotation."""
        found, problem = parse(text, self._annotation)
        if problem:
            problems.append(f"{problem.subject}: {problem.text}")
        known = without_future(found, self._now)
        if found and known and found.reported != known.reported:
            problems.append(f"{self._annotation}: its time is in the future, ignored")
        return known


def _texts(metadata: Json, name: str, problems: list[str]) -> Texts:
    """Return the texts of a map of the metadata."""
    found = metadata.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        problems.append(f"metadata.{name} is no object")
        return {}
    texts = {intern(key): intern(value) for key, value in found.items() if isinstance(value, str)}
    if len(texts) < len(found):
        wrong = [key for key in found if key not in texts]
        problems.append(f"{name} that are no text, ignored: {_listed(wrong)}")
    return texts


def _listed(names: Iterable[str]) -> str:
    """Return the first of the names as text."""
    shown = [visible(name, MAX_QUOTE) for name in names]
    return listed(shown, MAX_NAMES)


def _shown(place: _Place) -> str:
    return f"{place.name} of {place.interface}" if place.interface else place.name


def _other_prefixes(annotations: Texts) -> list[str]:
    """Return the other prefixes under which an agent has its annotation."""
    keys = [key for key in annotations if key.endswith(f"/{OBSERVED}")]
    return [key.rpartition("/")[0] for key in keys if parse(annotations[key], key)[0]]


def _flavor(value: str | None, problems: list[str]) -> str | None:
    if value in (None, INFINIBAND, ROCE):
        return value
    problems.append(f"flavor is {_quoted(value)}")
    return None


def _speed(value: str | None, problems: list[str]) -> float | None:
    """Return the Gb/s of `3200G`."""
    if value is None:
        return None
    found = rate(value)
    if found is not None and found <= MAX_SPEED:
        return found
    problems.append(f"speed.current is {_quoted(value)}")
    return None


def _quoted(value: str | None) -> str:
    return f"'{visible(value or '', MAX_QUOTE)}'"


def _ports(
    own: Mapping[_Place, str],
    annotation: Annotation | None,
    flavor: str | None,
    problems: list[str],
) -> tuple[FleetPort, ...]:
    """Return the interfaces that the labels or the annotation name."""
    rows = {row.interface: row for row in annotation.interfaces} if annotation else {}
    lost = {one.interface: one for one in annotation.lost} if annotation else {}
    ends = _end_labels(own)
    half = [f"{name} ({ends[name].missing})" for name in ends if ends[name].missing]
    if half:
        problems.append(f"labels of a neighbor that are not there: {_listed(half)}")
    known = {**lost, **rows}
    gone = lost.keys() - rows.keys() - ends.keys()
    return tuple(
        _port(known[name], ends.get(name, NO_END), flavor, is_lost=name in gone)
        if name in known
        else _labeled(name, ends[name])
        for name in sorted({*known, *ends}, key=natural)
    )


def _end_labels(own: Mapping[_Place, str]) -> dict[str, EndLabels]:
    """Return the labels of each interface's neighbor."""
    found = dict[str, dict[str, str]]()
    for (name, interface), value in own.items():
        if interface and value:
            found.setdefault(interface, {})[name] = value
    return {interface: EndLabels(**values) for interface, values in found.items()}


def _labeled(name: str, labels: EndLabels) -> FleetPort:
    """Return an interface that the annotation does not have."""
    end = far_end(labels, None, None)
    return FleetPort(name, far_end=end, last_end=end)


def _port(
    row: LabeledInterface, labels: EndLabels, flavor: str | None, *, is_lost: bool
) -> FleetPort:
    now, last = far_end(labels, row.neighbor, flavor), last_end(row.neighbor, flavor)
    if now and (last is None or (now.switch, now.port_id) == (last.switch, last.port_id)):
        last = now
    return FleetPort(
        intern(row.interface),
        intern(row.pci),
        row.port_guid,
        row.node_guid,
        row.counted_gbps,
        now,
        last,
        is_lost,
    )
