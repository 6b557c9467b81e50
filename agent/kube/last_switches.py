"""The InfiniBand neighbors that a Node's annotation has, as far as they agree with its labels.

Anyone with access to the Node can edit the annotation, and a name from it may be published while a
switch does not give its own. So a neighbor counts only if the interface's label, where the agent
owns one, has the same device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.ids import GUID
from agent.labels import encode
from agent.sources.ib import node_label

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.kube.annotation import Annotation
    from agent.kube.managed_fields import Keys

    Identity = tuple[str, str | None]  # node GUID, NodeDescription

_DEVICE = ".device"  # ends the keys of the rows `neighbors.current.{if}.device`


def last_switches(
    annotation: Annotation | None, owned: Mapping[str, str], keys: Keys
) -> dict[str, Identity]:
    """Return the last far end of each interface; `owned` are the labels that the agent owns."""
    found = dict(_neighbors(annotation))
    for interface, device in _devices(owned, keys):
        if interface in found and device != _label(*found[interface]):
            del found[interface]
    return found


def _label(guid: str, description: str | None) -> str:
    """Return the device label of a switch; its node GUID if the name encodes to nothing."""
    return encode.value(node_label(guid, description)) or guid


def _neighbors(annotation: Annotation | None) -> Iterator[tuple[str, Identity]]:
    """Yield each interface whose last neighbor has a node GUID, and that neighbor."""
    for row in annotation.interfaces if annotation else ():
        if row.neighbor and row.neighbor.id and GUID.fullmatch(row.neighbor.id):
            yield row.interface, (row.neighbor.id, row.neighbor.name)


def _devices(labels: Mapping[str, str], keys: Keys) -> Iterator[tuple[str, str]]:
    """Yield the interface and the text of each label that names a neighbor."""
    for key, text in labels.items():
        interface = keys.interface(key)
        if interface and key.endswith(_DEVICE):
            yield interface, text
