"""Keys and values of the label contract, as its text defines them. Shares no code with the
agent.
"""

from __future__ import annotations

import json
import re

P, IB, ACC = (
    "backend.coreweave.cloud",
    "ib.coreweave.cloud",
    "network.topology.nvidia.com/accelerator",
)
ANNOTATION = f"{P}/observed"
TABLE = re.compile(
    rf"{re.escape(P)}/(flavor|speed\.current|leaves\.current|leafgroup\.current"
    rf"|neighbors\.current\..+\.(device|port-id|port-name))"
    rf"|{re.escape(IB)}/(speed\.current|neighbors\.current\..+\.(device|port-id)|leaves\.current|ports\.current)"
    rf"|{re.escape(ACC)}"
)


def encode(raw: str) -> str | None:
    """Return a label value as the contract's text defines it; None for no label."""
    data = raw.encode()
    if len(data) > 63:
        state = 14695981039346656037
        for byte in data:
            state = (state ^ byte) * 1099511628211 % 2**64
        return f"x{state:x}"
    text = re.sub("[^A-Za-z0-9._-]", "-", raw)
    return re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9]+$", "", text) or None


def lost(annotation: str) -> set[str]:
    """Return the PCI functions that it has as lost."""
    return {row["pci"] for row in json.loads(annotation).get("ports", ()) if "lost" in row}
