"""The finding `pcie`: a link of a NIC's PCIe path is slower or narrower than both ends permit.

Every link from the root port to the NIC is compared with the lesser maximum of its two ends, never
with the data sheet of the NIC. In the path the functions alternate: a root port or the downstream
port of a switch, and below it an upstream port or the NIC; each such pair is one link, which both
report alike (PCI Express Base Specification, 7.5.3.8).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agent.cabling.finding import INFO, Draft, Finding
from agent.cabling.seen import PcieEnd, PcieEnds, SeenNode
from agent.grouped import grouped
from agent.text import listed

VIRTUAL = frozenset({"1b36", "1af4"})  # vendors of virtual bridges: Red Hat (QEMU), virtio
GUEST = "its root port is virtual: this is a guest"
NO_ROOT_PORT = "it has no root port: this is a guest, or the NIC is part of the root complex"
NOT_READ = "a link in it was not recorded, or could not be read"
ODD = "the bridges above it are no plain PCIe path"


class PcieLink(NamedTuple):
    """One PCIe link: the port above, and the function below it."""

    upper: PcieEnd
    lower: PcieEnd

    @property
    def is_known(self) -> bool:
        """True if the speed and width of both ends, and what these permit, were read."""
        return all(None not in (end.speed, end.max_speed, end.width, end.max_width) for end in self)

    @property
    def best(self) -> tuple[float, int]:
        """The speed and width that both ends permit."""
        speeds = (self.upper.max_speed, self.lower.max_speed)
        widths = (self.upper.max_width, self.lower.max_width)
        return min(filter(None, speeds)), min(filter(None, widths))

    @property
    def is_slow(self) -> bool:
        """True if it does not run so."""
        speed, width = self.best
        return (self.lower.speed or 0) < speed or (self.lower.width or 0) < width


def findings(node: SeenNode, draft: Draft) -> Iterator[Finding]:
    """Yield one finding for each slow link, and one for each reason why paths are not known.

    A software device has none.
    """
    if node.paths is None:
        return
    ports = [port for port in node.ports.values() if port.pci]
    read = {port.interface: _links(node.paths.get(port.pci or "", ())) for port in ports}
    slow = [(link, name) for name, (links, _) in read.items() for link in links if link.is_slow]
    by_link = grouped(slow, lambda pair: (pair[0].upper.address, pair[0].lower.address))
    for addresses, same in by_link.items():
        link, names = same[0][0], [name for _, name in same]
        (upper, lower), (speed, width) = link, link.best
        now, best = f"{lower.speed} GT/s x{lower.width}", f"{speed} GT/s x{width}"
        text = (
            f"Reseat the card, riser or cable at {lower.address}, above {', '.join(names)}: "
            f"its PCIe link to {upper.address} runs at {now} instead of {best}."
        )
        facts = {"upper": upper.address, "lower": lower.address, "current": now, "possible": best}
        yield draft("pcie", names, text, facts=facts, key=addresses)
    for reason, names in grouped(read, lambda name: read[name][1]).items():
        if reason:
            text = f"PCIe path of {listed(names)} not verified: {reason}."
            facts, key = {"reason": reason}, ["pcie", reason]
            yield draft("unverifiable", names, text, facts=facts, key=key, severity=INFO)


def _links(path: PcieEnds) -> tuple[list[PcieLink], str | None]:
    """Return the known links of a path, and why others are not known."""
    if len(path) == 1:
        return [], NO_ROOT_PORT
    if any(function.vendor in VIRTUAL for function in path):
        return [], GUEST
    links = [PcieLink(*pair) for pair in zip(path[::2], path[1::2], strict=False)]
    known = [link for link in links if link.is_known]
    # Both ends of one link report the same speed and width.
    ends = [{(end.speed, end.width) for end in link} for link in known]
    if len(path) % 2 or any(len(reported) > 1 for reported in ends):
        return [], ODD
    return known, None if known and known == links else NOT_READ
