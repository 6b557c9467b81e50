"""Nodes of a small InfiniBand fleet as JSON, and lists of them as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from agent.encode import Naming
from agent.kube.annotation import Annotation, render
from agent.memory import Fact, FarEnd

Json = dict[str, Any]


TIME = 1_790_000_000
BOOT = "5f0492e8-40be-49e6-8717-defbd7b4b902"
P, IB, ACC, _ = Naming()
OBSERVED = f"{P}/observed"
RAILS = 8
UNIT = 32  # nodes on one set of leaves


def leaf(number: int, rail: int) -> str:
    """Return the name of a node's leaf on one rail."""
    return f"L{number // UNIT}.1.{rail}"


def guid(number: int, rail: int) -> str:
    """Return the node GUID of that leaf."""
    return f"b0cf0e0300{number // UNIT:04x}{rail:02x}"


def annotation(number: int, **changes: Any) -> str:
    """Return the annotation of node `number`."""
    rows = tuple(
        Fact(
            f"ibp{rail}",
            f"0000:{0x18 + rail:02x}:00.0",
            port_guid=f"a088c203{number:06x}{rail:02x}",
            node_guid=f"a088c203{number:06x}{rail:02x}",
            gbps=400.0,
            last_far=FarEnd(
                guid(number, rail),
                f"MF0;{leaf(number, rail)}:MQM9700/U1",
                str(number % UNIT + 1),
            ),
        )
        for rail in range(RAILS)
    )
    return render(Annotation(**{"time": TIME, "boot_id": BOOT, "interfaces": rows, **changes}))


def labels(number: int, prefix: str = P, ib_prefix: str = IB) -> dict[str, str]:
    """Return the labels of node `number`."""
    found = {f"{prefix}/flavor": "infiniband"}
    for of in filter(None, (prefix, ib_prefix)):
        found[f"{of}/speed.current"] = "3200G"
        for rail in range(RAILS):
            key = f"{of}/neighbors.current.ibp{rail}"
            found[f"{key}.device"] = leaf(number, rail)
            found[f"{key}.port-id"] = str(number % UNIT + 1)
    return found


def node(number: int, more: Mapping[str, str] | None = None, observed: str | None = "") -> Json:
    """Return the metadata of a Node; with `observed` "" it has its own annotation, None: none."""
    text = annotation(number) if observed == "" else observed
    metadata = {
        "name": f"gpu-{number:05}",
        "uid": f"u-{number}",
        "labels": {"kubernetes.io/arch": "amd64", **labels(number), **(more or {})},
        "annotations": {} if text is None else {OBSERVED: text},
    }
    return {"metadata": metadata}


def whole(number: int) -> Json:
    """Return a whole Node, as kubectl prints it."""
    beat = {"type": "Ready", "lastHeartbeatTime": "2026-09-21T14:20:00Z"}
    status = {"nodeInfo": {"bootID": BOOT}, "conditions": [beat]}
    return {"apiVersion": "v1", "kind": "Node", **node(number), "status": status}


def crossed(number: int, *rails: tuple[int, int]) -> Json:
    """Return a whole Node of which cables changed places."""
    text = json.dumps(whole(number))
    for rail, other in rails:
        for name in (leaf, guid):
            one, two = name(number, rail), name(number, other)
            text = text.replace(one, "#").replace(two, one).replace("#", two)
    found: Json = json.loads(text)
    return found


def listed(items: Iterable[object], kind: str = "List") -> str:
    """Return what kubectl prints: the kind comes after the items."""
    document = {"apiVersion": "v1", "items": list(items), "kind": kind, "metadata": {}}
    return json.dumps(document, indent=4)
