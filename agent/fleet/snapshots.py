"""Nodes as a folder of snapshots that `bwagent capture` wrote, one snapshot or more for each node.

Each snapshot is observed as by `probe --replay`, and its labels and annotation are those that `run`
would publish, so that snapshots and Nodes are judged alike. A snapshot that cannot be read is a
problem of the fleet. The age of a snapshot says nothing about an agent, so all are of one time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace

from agent.cabling.finding import PortRef
from agent.encode import Naming
from agent.errors import BwagentError, Unavailable
from agent.fleet.model import Fleet, FleetNode, Nic
from agent.fleet.read import Collected, Selection, name_of
from agent.kube.annotation import fitted, render
from agent.kube.managed_fields import Keys
from agent.kube.remembered import Globs, annotate
from agent.labels.render import render as render_labels
from agent.memory import known_of
from agent.model import Failed
from agent.snapshot.replay import replay
from agent.sources.observe import observe
from agent.text import Json, natural, visible

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst")
MAX_QUOTE = 200  # characters of a path in a message


def read_snapshots(folder: str, selection: Selection, globs: Globs) -> Fleet:
    """Read a folder of snapshots; raises Unavailable if there are none."""
    try:
        names = sorted(os.listdir(folder), key=natural)
    except OSError as error:
        raise Unavailable(f"{folder}: {error.strerror or error}") from error
    if "sys" in names:
        raise Unavailable(f"{folder}: itself a snapshot; name the folder in which the nodes' are")
    shown = [os.path.join(folder, name) for name in names if not name.startswith(".")]  # noqa: PTH118
    paths = [path for path in shown if os.path.isdir(path) or path.endswith(ARCHIVES)]
    if not paths:
        raise Unavailable(f"{folder}: no snapshot in it, neither folder nor archive")
    collected, now, nics = Collected(selection, math.inf), 0.0, dict[PortRef, Nic]()
    for number, path in enumerate(paths, 1):
        try:
            node, time, of_node = _node(path, selection.naming, globs)
        except BwagentError as error:
            collected.problems.append(str(error))
            continue
        now, name = max(now, time), name_of(node) or ""
        if name in collected:
            text = f"another snapshot of node {visible(name, MAX_QUOTE)}, left out"
            collected.problems.append(f"{path}: {text}")
        else:
            collected.add(node, name, left=len(paths) - number)
            nics |= {PortRef(name, interface): nic for interface, nic in of_node.items()}
    fleet = collected.fleet(folder, now)

    def seen(member: FleetNode) -> FleetNode:
        """Return a node of one time with all, each port with its NIC."""
        ports = tuple(
            port._replace(nic=nics.get(PortRef(member.name, port.interface)))
            for port in member.ports
        )
        return replace(member, time=fleet.now, ports=ports)

    return replace(fleet, nodes=tuple(map(seen, fleet.nodes)))


def _node(path: str, naming: Naming, globs: Globs) -> tuple[Json, float, Mapping[str, Nic]]:
    """Return the Node that `run` would label on the machine of a snapshot, its time, the NICs."""
    observation = observe(replay(path, *globs))
    if isinstance(observation.rdma, Failed):
        raise Unavailable(f"{path}: nothing observed: {observation.rdma.reason}")
    known = known_of(observation)
    keys, labels = Keys(naming), render_labels(known, naming).labels
    annotation = render(fitted(annotate(observation, known)))
    name = os.path.basename(path)  # noqa: PTH119
    for suffix in ARCHIVES:
        name = name.removesuffix(suffix)
    metadata = {
        "name": (observation.node or name).lower(),
        "labels": labels,
        "annotations": {keys.annotation: annotation},
    }
    nics = {
        role.interface: Nic(model, role.device.fw_ver)
        for role in observation.backend
        if role.device.fw_ver and (model := role.device.board_id or role.device.pci_ids)
    }
    return {"metadata": metadata}, observation.time, nics
