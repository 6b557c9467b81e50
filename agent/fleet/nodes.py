"""One Node as JSON, whole or its metadata only, in the model of a fleet.

Nothing in a Node is trusted: a missing or malformed part is unknown, and a line of
`FleetNode.problems` names it. Texts that many Nodes share are kept once.

Anyone with access to a Node can edit its annotation, and a label may be newer than it. So the
annotation's unaltered name, identifier and port of a far end are used only where encoding them
gives the label's value; otherwise the label's text stands alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from sys import intern
from typing import NamedTuple

from agent import encode
from agent.cabling.plans.columns import rate
from agent.cabling.seen import SeenEnd
from agent.encode import Naming
from agent.errors import Malformed
from agent.facts import past
from agent.fleet.model import INFINIBAND, ROCE, FleetNode, FleetPort, LeafUplinks
from agent.fleet.silent import is_of_other_boot
from agent.infiniband.fabric_memory import read as read_fabric
from agent.kube.annotation import (
    MAX_AGE,
    Annotation,
    Report,
    is_cut,
    parse,
    reported_time,
    without_future,
)
from agent.kube.answers import boot_id_of, part
from agent.kube.managed_fields import FABRIC, OBSERVED
from agent.memory import Fact, FarEnd
from agent.node_description import switch_name
from agent.text import Json, listed, natural, visible

Texts = dict[str, str]
LabelSubject = tuple[str, str | None]  # of a label: `flavor`, or `port_id` of an interface

MAX_SPEED = 1_000_000.0  # Gb/s of one node
MAX_QUOTE = 64  # characters of a Node's text in a problem
MAX_NAMES = 5  # in one line
# Of the switches above, for each leaf group, and of one time: its nodes know the same.
MAX_REPORTS = 3
MAX_CACHED = 1 << 16  # texts; the switches of a large fleet and their ports
MAX_SHAPES = 1024  # sets of label keys: nodes of one kind have the same
NO_REPORT = Report(None, None)

_OF_NEIGHBOR = re.compile(r"neighbors\.current\.(.+)\.(device|port-id|port-name)", re.DOTALL)
_OF_NODE = frozenset({"flavor", "speed.current", "leafgroup.current", "leaves.current"})


class EndLabels(NamedTuple):
    """The labels of an interface's neighbor, their keys or their texts; None: not there."""

    device: str | None = None
    port_id: str | None = None
    port_name: str | None = None


NO_END = EndLabels()


class LabelKeys(NamedTuple):
    """The keys of a Node's labels, and the agent's among them: of two prefixes that of P."""

    every: tuple[str, ...]  # each text once in memory
    of_node: dict[str, str]  # by name
    of_ports: dict[str, EndLabels]  # by interface
    twins: tuple[tuple[str, str, str], ...]  # the label, its keys under both prefixes


class NodeReader:
    """Reads Nodes under one naming; a time after `now` is unknown."""

    def __init__(self, naming: Naming, now: float) -> None:
        self._naming, self._now = naming, now
        self._annotation, self._fabric = f"{naming.prefix}/{OBSERVED}", f"{naming.prefix}/{FABRIC}"
        self._reports = defaultdict[str, list[int]](list)  # their times, by leaf group
        self._keys = lru_cache(MAX_SHAPES)(partial(_label_keys, naming))

    def read(self, document: Json) -> FleetNode | None:
        """Read a Node that has a name; None if it has no label or annotation of the agent."""
        metadata, problems = part(document, "metadata"), list[str]()
        texts = _texts(metadata, "labels", problems)
        keys = self._keys(tuple(texts))
        labels = dict(zip(keys.every, map(intern, texts.values()), strict=True))
        annotations = _texts(metadata, "annotations", problems)
        if differing := [name for name, key, other in keys.twins if labels[key] != labels[other]]:
            problems.append(f"{_listed(differing)}: other labels under both prefixes")
        own = {name: labels[key] for name, key in keys.of_node.items()}
        is_annotated = self._annotation in annotations
        others = []  # prefixes under which an agent with other flags has written
        if not is_annotated:
            written = (key for key in annotations if key.endswith(f"/{OBSERVED}"))
            known = (key for key in written if reported_time(annotations[key]) is not None)
            others = [key.rpartition("/")[0] for key in known]
        if not (own or keys.of_ports or is_annotated or others or problems):
            return None
        if others:
            problems.append(f"labels under {_listed(others)}, which were not read")
        parsed, problem = parse(annotations.get(self._annotation), self._annotation)
        if problem:
            problems.append(f"{problem.subject}: {problem.text}")
        annotation = without_future(parsed, self._now)
        time, boot_id = report = annotation.reported if annotation else NO_REPORT
        if parsed and annotation is not parsed and parsed.reported != report:
            problems.append(f"{self._annotation}: its time is in the future, ignored")
        flavor = own.get("flavor")
        if flavor not in {None, INFINIBAND, ROCE}:
            problems.append(f"flavor is {_quoted(flavor)}")
            flavor = None
        speed = own.get("speed.current")
        gbps = rate(speed) if speed is not None else None
        if speed is not None and (gbps is None or gbps > MAX_SPEED):
            problems.append(f"speed.current is {_quoted(speed)}")
            gbps = None
        leaf_group = own.get("leafgroup.current")
        if leaf_group and annotation:
            ends = (row.last_far for row in annotation.interfaces)
            leaf_group = _leaf_group(leaf_group, frozenset(end.device for end in ends if end))
        text, node_boot_id = annotations.get(self._fabric), boot_id_of(document)
        uplinks = dict[str, LeafUplinks]()
        if leaf_group and text is not None and not is_of_other_boot(boot_id, node_boot_id):
            uplinks = self._uplinks(leaf_group, text, time or 0, problems)
        return FleetNode(
            name=metadata["name"],
            flavor=flavor,
            speed_gbps=gbps,
            ports=_ports(labels, keys.of_ports, annotation, flavor, problems),
            labels=labels,
            leaf_group=leaf_group,
            accelerator=labels.get(self._naming.accelerator),
            time=time,
            boot_id=boot_id,
            node_boot_id=node_boot_id,
            agent=intern(annotation.agent) or None if annotation else None,
            position=annotation.position if annotation else None,
            problems=tuple(problems),
            uplinks=uplinks,
        )

    def _uplinks(
        self, leaf_group: str, text: str, reported: int, problems: list[str]
    ) -> dict[str, LeafUplinks]:
        """Return the uplinks of each leaf; nothing if the text had no room for all.

        A report is not read if as many were that are not silent beside it.
        """
        times = self._reports[leaf_group]
        if sum(time >= reported - MAX_AGE for time in times) >= MAX_REPORTS:
            return {}
        try:
            memory = read_fabric(text)
        except Malformed as error:
            problems.append(f"{self._fabric}: {error}")
            return {}
        times.append(reported)
        if memory.left_out or not memory.tier_1:
            return {}
        names = {guid: intern(row.name or guid) for guid, row in memory.switches.items()}
        return {
            intern(leaf): LeafUplinks(
                past(time, self._now) or 0, {p: names[g] for p, g in up.items()}
            )
            for leaf in memory.uplinks
            for time, up in [memory.last_seen(leaf)]
        }


def _label_keys(naming: Naming, keys: Iterable[str]) -> LabelKeys:
    families: list[dict[LabelSubject, str]] = [{}, {}]  # of P, of IB
    every = tuple(map(intern, keys))
    for key in every:
        prefix, _, name = key.rpartition("/")
        if not prefix or prefix not in naming[:2]:
            continue
        family = families[prefix != naming.prefix]
        if name in _OF_NODE:
            family[name, None] = key
        elif match := _OF_NEIGHBOR.fullmatch(name):
            family[match[2].replace("-", "_"), intern(match[1])] = key
    values, twins = families
    of_node: dict[str, str] = {}
    of_ports: dict[str, EndLabels] = {}
    for (name, interface), key in {**twins, **values}.items():
        if interface:
            of_ports[interface] = of_ports.get(interface, NO_END)._replace(**{name: key})
        else:
            of_node[name] = key
    both = tuple(
        (f"{name} of {interface}" if interface else name, values[name, interface], key)
        for (name, interface), key in twins.items()
        if (name, interface) in values
    )
    return LabelKeys(every, of_node, of_ports, both)


@lru_cache(MAX_CACHED)
def _leaf_group(label: str, leaves: frozenset[str]) -> str:
    """Return the label of the leaf group of these leaves as this version writes it.

    Earlier versions wrote a hash where it was long: a fleet of both has two labels for a group.
    """
    if not leaves or label != encode.value(encode.joined(leaves)):
        return label
    return encode.value(encode.ranged(leaves))


def _texts(metadata: Json, name: str, problems: list[str]) -> Texts:
    mapping = metadata.get(name)
    if mapping is None:
        return {}
    if not isinstance(mapping, dict):
        problems.append(f"metadata.{name} is no object")
        return {}
    if {str}.issuperset(map(type, mapping.values())):
        return mapping
    texts = {key: value for key, value in mapping.items() if isinstance(value, str)}
    wrong = [key for key in mapping if key not in texts]
    problems.append(f"{name} that are no text, ignored: {_listed(wrong)}")
    return texts


def _listed(names: Iterable[str]) -> str:
    shown = [visible(name, MAX_QUOTE) for name in names]
    return listed(shown, MAX_NAMES)


def _quoted(value: str | None) -> str:
    return f"'{visible(value or '', MAX_QUOTE)}'"


def _ports(
    labels: Texts,
    keys: Mapping[str, EndLabels],
    annotation: Annotation | None,
    flavor: str | None,
    problems: list[str],
) -> tuple[FleetPort, ...]:
    """Return the interfaces that labels of neighbors, by `keys`, or the annotation name."""
    rows = {row.interface: row for row in annotation.interfaces} if annotation else {}
    lost = {row.interface: row for row in annotation.lost} if annotation else {}
    ends: dict[str, EndLabels] = {}  # the texts of the labels, by interface
    half = []  # of those that `run` writes together, the first that is not there
    for name, of_port in keys.items():
        end = EndLabels(*[(labels[key] if key else None) or None for key in of_port])
        if any(end):
            ends[name] = end
            if not (end.device and end.port_id):
                half.append(f"{name} ({'port-id' if end.device else 'device'})")
    if half:
        problems.append(f"labels of a neighbor that are not there: {_listed(half)}")
    known = {**lost, **rows}
    gone = lost.keys() - rows.keys() - ends.keys()
    return tuple(
        [
            _port(name, known.get(name), ends.get(name, NO_END), flavor, is_lost=name in gone)
            for name in sorted({*known, *ends}, key=natural)
        ]
    )


def _port(
    name: str, row: Fact | None, labels: EndLabels, flavor: str | None, *, is_lost: bool
) -> FleetPort:
    """Return an interface by its row in the annotation and the labels of its neighbor."""
    station = row.far if row else None
    if station and labels.device not in _named(station.id, station.name, flavor)[1]:
        station = None
    now = _far_end(labels, station or (row.last_far if row else None), flavor)
    if row is None:  # the annotation does not have it
        return FleetPort(name, far_end=now, last_end=now)
    now, station_end = (None, now) if station else (now, None)
    last, former = None, row.last_far  # None: the present one, or one that would have no label
    if former and not (now and now.id and (now.id, now.port_id) == (former.id, former.port_id)):
        title, devices = _named(former.id, former.name, flavor)
        label = next(filter(None, devices), None)
        last = SeenEnd(label, former.port_id, None, former.id, title) if label else None
    if now and (last is None or (now.switch, now.port_id) == (last.switch, last.port_id)):
        last = now
    return FleetPort(
        intern(row.interface),
        intern(row.function or ""),
        row.node_guid,
        row.gbps,
        now,
        last,
        is_lost,
        row.netdev,
        station_end,
        None,
        row.bad_link,
    )


def _far_end(labels: EndLabels, neighbor: FarEnd | None, flavor: str | None) -> SeenEnd | None:
    """Return the far end that the labels name; None without a device label.

    The neighbor counts if the label is that of its name or of its identifier, and its unaltered
    port ID if it has the label's value.
    """
    device, port_id, port_name = labels
    if device is None:
        return None
    name, of_device = _named(neighbor.id, neighbor.name, flavor) if neighbor else (None, ())
    if neighbor is None or device not in of_device:
        return SeenEnd(device, port_id, port_name)
    raw = neighbor.port_id
    if port_id != raw and port_id and raw and port_id == (_label_of(raw) or encode.hashed(raw)):
        port_id = raw
    return SeenEnd(device, port_id, port_name, neighbor.id, name)


@lru_cache(MAX_CACHED)
def _named(
    identity: str | None, name: str | None, flavor: str | None
) -> tuple[str | None, tuple[str, ...]]:
    """Return the name of a switch alone, and the device labels of its name and its identifier.

    It is that of an InfiniBand NodeDescription, or the System Name.
    """
    alone = switch_name(name) if name and flavor == INFINIBAND else name
    return alone, (_label_of(alone), encode.value(identity or ""))


@lru_cache(MAX_CACHED)
def _label_of(text: str | None) -> str:
    """Return the label of a text; the annotation cuts a long text, and keeps its hash."""
    return text.rpartition("~")[2] if text and is_cut(text) else encode.value(text or "")
