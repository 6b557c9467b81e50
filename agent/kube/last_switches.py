"""The InfiniBand neighbors that a Node's annotation has, as far as they agree with its labels.

Anyone with access to the Node can edit the annotation, and a name from it may be published while a
switch does not give its own. So a neighbor counts only if the interface's label, where the agent
owns one, has the same device.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.ids import GUID
from agent.kube.annotation import Annotation
from agent.kube.managed_fields import Keys
from agent.labels import encode
from agent.sources.ib import node_label


def last_switches(
    annotation: Annotation | None, owned: Mapping[str, str], keys: Keys
) -> dict[str, tuple[str, str | None]]:
    """Return node GUID and NodeDescription of each interface's last far end.

    `owned` are the labels that the agent owns.
    """
    found = {
        row.interface: (row.neighbor.id, row.neighbor.name)
        for row in (annotation.interfaces if annotation else ())
        if row.neighbor and row.neighbor.id and GUID.fullmatch(row.neighbor.id)
    }
    for key, device in owned.items():
        interface = keys.interface(key)
        if interface and interface in found and key.endswith(".device"):
            guid, description = found[interface]
            # The label of a switch is its node GUID if the name encodes to nothing.
            if device != (encode.value(node_label(guid, description)) or guid):
                del found[interface]
    return found
