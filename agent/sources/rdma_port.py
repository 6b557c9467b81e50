"""One port of an RDMA device, `/sys/class/infiniband/{device}/ports/{number}`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.model import RdmaPort
from agent.sysfs import parse as kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.sources.netdev import Network
    from agent.sysfs.reader import Reader

    LinkLayers = dict[int, str | None]  # by port number

NO_PORTS = "not there: a device without data ports, or a copied tree that lost its links"


def port_numbers(reader: Reader, base: str) -> list[int]:
    """Read the port numbers of a device.

    A device without a `ports` directory has not failed: scif0 never has one, and a device that was
    just removed has none either.
    """
    path = f"{base}/ports"
    names = reader.decisive.names(path)
    if names is None:
        reader.report(path, NO_PORTS)
        return []
    _report_odd_names(reader, path, names)
    return [int(name) for name in names if _is_port_number(name)]


def link_layers(reader: Reader, base: str, numbers: Iterable[int]) -> LinkLayers:
    """Read the link layer of each port."""
    return {
        number: reader.decisive.value(f"{base}/ports/{number}/link_layer", kernel.link_layer)
        for number in numbers
    }


def read_port(
    reader: Reader, path: str, link_layer: str | None, network: Network, *, counters: bool
) -> RdmaPort:
    """Read the port at `path`.

    `counters` is False for a device that manages NVSwitches, or may: each read of its counters
    fails with EINVAL and logs to the kernel log.
    """
    rate_text = reader.text(f"{path}/rate")
    deciding = reader.decisive if link_layer == "InfiniBand" else reader
    has_smi = deciding.value(f"{path}/has_smi", kernel.number)
    link_downed = f"{path}/counters/link_downed"
    return RdmaPort(
        int(path.rpartition("/")[2]),
        link_layer=link_layer,
        state=reader.value(f"{path}/state", kernel.enumeration),
        phys_state=reader.value(f"{path}/phys_state", kernel.enumeration),
        rate_text=rate_text,
        rate_gbps=reader.parsed(f"{path}/rate", rate_text, kernel.rate),
        port_guid=deciding.value(f"{path}/gids/0", kernel.gid_guid),
        has_smi=None if has_smi is None else bool(has_smi),
        link_downed=reader.value(link_downed, kernel.counter) if counters else None,
        netdev=network[0],
        legs=network[1],
    )


def _report_odd_names(reader: Reader, path: str, names: Iterable[str]) -> None:
    for name in names:
        if not _is_port_number(name):
            reader.report(f"{path}/{name}", "not a port number from 1 to 255; left out")


def _is_port_number(name: str) -> bool:
    """Return True for 1 to 255 without leading zeros (IBTA vol. 1, 14.2.5.3)."""
    return name.isdecimal() and str(int(name[:4])) == name and 0 < int(name) < 256
