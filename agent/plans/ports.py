"""Names of InfiniBand nodes and ports, as topology files and dumps spell them."""

from __future__ import annotations

import re
from functools import lru_cache

from agent.infiniband.node_description import switch_name
from agent.plans.model import End

_PANEL = re.compile(r"[Pp](\d[\w./-]*)")  # P40, P1/2
_HCA_PORT = re.compile(r"(.+)/[Pp](\d{1,3})")  # mlx5_0/P1
_HOST = re.compile(r"(\S+)\s+(\S+)")  # the NodeDescription that rdma-ndd writes


def panel_end(node: str, port: str) -> End:
    """Return the end `sw-01 P40` (interface 40) or `gpu-017 mlx5_0/P1` (mlx5_0) of a topology file.

    Another port than the first of an HCA is `mlx5_0-2`, as in labels.
    """
    if match := _HCA_PORT.fullmatch(port):
        return End(node, hca_port(match[1], match[2]), port)
    match = _PANEL.fullmatch(port)
    return End(node, match[1], port) if match else End(node, port)


def described_end(description: str, port: str) -> End:
    """Return the end `gpu-017 mlx5_0`, `Port 1` of a UFM network definition (NDT)."""
    number = port.lower().removeprefix("port").strip()
    if is_host(description) and switch_name(description) == description and number.isdigit():
        return host_end(description, "", number)._replace(port_name=port)
    return End(switch_name(description) or description, number, port)


def switch_end(description: str, guid: str, port: str) -> End:
    """Return the end at a switch: by its name, else by its node GUID."""
    return End(_switch(description) or guid, port)


_switch = lru_cache(maxsize=4096)(switch_name)


def host_end(description: str, guid: str, port: str) -> End:
    """Return the end at a host: `gpu-017 mlx5_0` names both, another description neither."""
    match = _HOST.fullmatch(description)
    if not match:
        return End(guid, port)
    return End(match[1], hca_port(match[2], port))


def is_host(description: str) -> bool:
    """Return True for a description of the form `gpu-017 mlx5_0`."""
    return _HOST.fullmatch(description) is not None


def hca_port(device: str, port: str) -> str:
    """Return the interface of an HCA's port, as labels have it."""
    return device if int(port) == 1 else f"{device}-{port}"
