"""An agent whose labels are those of the memory of facts (agent/memory.py).

The memory is not the agent's yet. The simulation runs it in the place of the holds of labels, over
the annotation of today; what the oracle finds is what changes with it.

Known differences: `leaves` and `ports` follow the port that is read, where the oracle expects the
whole text of before while any port is unread.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from unittest import mock

from agent.daemon import observer
from agent.labels import encode
from agent.labels.known import labels as labels_of
from agent.labels.render import Rendered
from agent.memory import Fact, FarEnd, Memory, Published, group_of
from agent.sources.observe import observe
from agent.sources.pci import place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.kube.annotation import Annotation, LabeledInterface
    from agent.memory import Known
    from agent.model import LastNeighbor, Observation

TEXTS = {"flavor": "flavor", "speed": "speed.current", "group": "leafgroup.current"}
LAYERS = {"infiniband": "InfiniBand", "roce": "Ethernet"}


@dataclass(slots=True)
class MemoryObserver(observer.Observer):
    """Renders the labels of each cycle from the memory."""

    memory: Memory = field(init=False)
    known: Known | None = None
    found: Observation | None = None  # as it was observed

    def __post_init__(self) -> None:
        observer.Observer.__post_init__(self)
        self.memory = Memory(self.hold)

    def seed(self, labels: Mapping[str, str], annotation: Annotation | None) -> None:
        observer.Observer.seed(self, labels, annotation)
        boot_id = self.found.boot_id if self.found else None
        published = self._published(dict(labels), self._annotation, boot_id)
        self.memory.seed(published, self.host.clock())

    def observe(self, *, refresh: bool = True) -> observer.Cycle:
        def recorded(*arguments: object) -> Observation:
            self.found = observe(*arguments)  # type: ignore[arg-type]
            return self.found

        with mock.patch.object(observer, "observe", recorded):
            return observer.Observer.observe(self, refresh=refresh)

    def expires_at(self) -> float:
        ends = [observer.Observer.expires_at(self)]
        return min([*ends, self.known.next_end] if self.known else ends)

    def _render(self, observation: Observation, now: float) -> tuple[Rendered, Mapping[str, str]]:
        old, expired = observer.Observer._render(self, observation, now)  # noqa: SLF001 - replaced here
        assert self.found
        found = observer._without_disabled(self.found)  # noqa: SLF001
        self.known = self.memory.merge(found, partial(place, self.host), now)
        new = labels_of(self.known, self.naming)
        keys = {name: f"{self.naming.prefix}/{row}" for name, row in TEXTS.items()}
        self.memory.published({name: new[key] for name, key in keys.items() if key in new})
        held = {key: reason for key, reason in old.held.items() if key in new}
        incomplete = tuple(key for key in old.incomplete if key in new)
        return Rendered(new, held, old.problems, incomplete, old.notes), expired

    def _published(
        self, labels: dict[str, str], annotation: Annotation | None, boot_id: str | None
    ) -> Published:
        """Return what the Node has; a far end counts if it is the label's, else the label does."""
        prefix = f"{self.naming.prefix}/"
        texts = {
            name: labels[prefix + row] for name, row in TEXTS.items() if prefix + row in labels
        }
        layer = LAYERS.get(texts.get("flavor", ""))
        far: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for key, text in labels.items():
            if (interface := self._keys.interface(key)) and key.startswith(prefix):
                far[interface][key.rpartition(".")[2]] = text
        rows = [
            _fact(row, layer, far.pop(row.interface, {}))
            for row in (annotation.interfaces if annotation else ())
        ]
        total = encode.gbps(sum(row.gbps or 0 for row in rows))
        if not annotation or annotation.boot_id != boot_id or total != texts.get("speed"):
            rows = [row._replace(gbps=None) for row in rows]
        rows += [Fact(name, None, layer=layer, far=_label(label)) for name, label in far.items()]
        gone = annotation.lost if annotation else ()
        lost = [_fact(row, layer, {})._replace(gbps=0.0, lost_since=row.since) for row in gone]
        group = group_of(row.last_far.device for row in rows if row.last_far)
        return Published(
            rows,
            lost,
            texts,
            labels.get(self.naming.accelerator),
            has_gap=encode.value(group) != texts.get("group", ""),
        )


def _fact(row: LabeledInterface, layer: str | None, label: Mapping[str, str]) -> Fact:
    last = _far(row.neighbor) if row.neighbor else None
    far = _label(label) if label else None
    if last and far and encode.value(last.device) == far.name:
        far = last._replace(port_name=far.port_name)
    return Fact(
        row.interface,
        row.pci,
        *_port(row.interface),
        port_guid=row.port_guid,
        node_guid=row.node_guid,
        layer=layer,
        gbps=row.counted_gbps,
        far=far,
        last_far=last,
    )


def _far(last: LastNeighbor) -> FarEnd:
    return FarEnd(last.id, last.name, last.port_id)


def _label(label: Mapping[str, str]) -> FarEnd:
    """Return the far end that the labels of an interface are of: their own texts."""
    return FarEnd(None, label.get("device"), label.get("port-id"), label.get("port-name"))


def _port(interface: str) -> tuple[int | None, str | None]:
    """Return number and leg of a port, as far as the name of the interface has them."""
    _, *parts = interface.split("-", 2)
    number = int(parts.pop(0)) if parts and parts[0].isdecimal() else None
    return number, "-".join(parts) or None
