"""Compare one node: the list of findings, and the result for each cable.

Pure. Every difference is one finding, and one cause one finding. A port that is down without a row
in the plan is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

from agent.cabling import cables, interfaces, of_cables, pcie, rates, unstable, words
from agent.cabling.baseline import Accepted
from agent.cabling.cables import ComparedCable
from agent.cabling.expected import Expected, ExpectedRow, one_each
from agent.cabling.finding import INFO, Draft, Finding, order
from agent.cabling.interfaces import HcaMap, Resolved, names_of
from agent.cabling.plan_index import unsafe
from agent.cabling.plans.model import IGNORE
from agent.cabling.seen import SeenNode
from agent.grouped import grouped
from agent.ids import pci_address
from agent.text import listed, natural

Without = tuple[tuple[ExpectedRow, str], ...]  # rows without an interface, and why

OF_CABLES = frozenset({"miscabled", "wrong-port", "swapped", "missing", "missing-interface"})
# Why a row without an interface is no cable of the backend.
LOW = frozenset({interfaces.NOT_BACKEND, interfaces.EXCLUDED})
# Why a row may be that of a port that no other row names.
VAGUE = frozenset(
    {
        *(interfaces.UNKNOWN, interfaces.NUMBERING, interfaces.UNMAPPED, interfaces.SEVERAL),
        interfaces.PERHAPS_UNREAD,
    }
)


class VerifyOptions(NamedTuple):
    """The choices of the operator."""

    off: frozenset[str] = frozenset()  # tolerances of names that are switched off
    ignore: tuple[str, ...] = ()  # globs of interfaces, netdevs, PCI addresses
    hca_map: HcaMap = MappingProxyType({})

    def has_ignored(self, names: Iterable[str | None]) -> bool:
        """Return True if --ignore names one of these."""
        return any(fnmatchcase(name, glob) for name in names if name for glob in self.ignore)


DEFAULTS = VerifyOptions()


class VerifyResult(NamedTuple):
    """The result of one node."""

    node: str
    findings: tuple[Finding, ...]
    cables: tuple[ComparedCable, ...]
    unresolved: Without = ()
    ignored: int = 0  # cables of the plan that --ignore names
    assumption: str | None = None
    accepted: tuple[Accepted, ...] = ()  # findings of --baseline

    @property
    def planned(self) -> int:
        """The number of cables of the plan that can be compared on this node."""
        ignored = [cable.status for cable in self.cables].count(cables.IGNORED)
        return len(self.cables) - ignored + sum(reason not in LOW for _, reason in self.unresolved)

    @property
    def as_planned(self) -> int:
        """The number of cables that are as planned."""
        return [cable.status for cable in self.cables].count(cables.AS_PLANNED)


def verify(expected: Expected, node: SeenNode, options: VerifyOptions = DEFAULTS) -> VerifyResult:
    """Compare the expected half with the observed one."""
    off, draft = options.off | expected.off | unsafe(expected.switches), Draft(node.name)
    mapped = names_of(options.hca_map, node.name)
    every = interfaces.resolve(expected.rows, node, mapped, expected.numbers)
    kept, resolved = _without_ignored(node, every, options)
    ignored = _cables(every) - _cables(resolved) if options.ignore else 0
    compared = cables.check_all(resolved.rows, kept, resolved.numbered, expected.devices, off)
    compared = [  # wrong ones with the place of the switch where they are
        cable._replace(place=place)
        if cable.status == cables.MISCABLED
        and (place := expected.places.get(cable.actual[0] or ""))
        else cable
        for cable in of_cables.without_doubled(compared, expected)
    ]
    without = tuple((row, why) for row, why in resolved.without if row.mark != IGNORE)
    findings = [
        *of_cables.findings(compared, expected, off, draft),
        *(_unexpected(resolved, kept, draft) if expected.rows else ()),
        *_missing_interfaces(without, mapped, kept, draft),
        *_not_compared(without, resolved, kept, draft),
        *rates.findings(node, kept, compared, without, expected.speed, draft),
        *pcie.findings(kept, draft),
        *unstable.of_node(kept, compared),
    ]
    if not any(finding.code in OF_CABLES for finding in findings):
        findings += of_cables.of_older_labels(expected, node, kept.ports, draft)
    findings.sort(key=order)
    return VerifyResult(
        node.name, tuple(findings), tuple(compared), without, ignored, resolved.assumption
    )


def _cables(resolved: Resolved) -> int:
    return len({row.interface for row in resolved.rows}) + len(resolved.without)


def _without_ignored(
    node: SeenNode, resolved: Resolved, options: VerifyOptions
) -> tuple[SeenNode, Resolved]:
    """Return the ports and rows that --ignore does not name, by their own name or the plan's.

    The rows are in the order of their ports, those without an interface in natural order.
    """
    by_interface = {row.interface: row for row in one_each(resolved.rows)}
    if options.ignore:
        ports = {
            name: port
            for name, port in node.ports.items()
            if not options.has_ignored(
                (
                    *(port.interface, port.netdev, port.pci, port.device),
                    by_interface[name].text if name in by_interface else None,
                )
            )
        }
        node = node._replace(ports=ports)
    without = [(row, why) for row, why in resolved.without if not options.has_ignored([row.text])]
    return node, resolved._replace(
        rows=tuple(by_interface[name] for name in node.ports if name in by_interface),
        without=tuple(sorted(without, key=lambda unresolved: natural(unresolved[0].text))),
    )


def _unexpected(resolved: Resolved, node: SeenNode, draft: Draft) -> Iterator[Finding]:
    """Yield the ports with a neighbor that no row names; none if a row may still be theirs."""
    if any(reason in VAGUE for _, reason in resolved.without):
        return
    planned = {row.interface for row in resolved.rows}
    for name, port in node.ports.items():
        if name not in planned and port.far_ends:
            end = port.far_ends[0]
            text = (
                f"The plan has no cable for {name}, which is connected to {end.device} "
                f"port {end.port}: unplug it, or add it to the plan."
            )
            actual, facts = (end.device, end.port), {"pci": port.pci}
            yield draft("unexpected", [name], text, actual=actual, facts=facts)


def _missing_interfaces(
    without: Without, hca_map: Mapping[str, str], node: SeenNode, draft: Draft
) -> Iterator[Finding]:
    """Yield the rows whose interface is not on this node."""
    for row, reason in without:
        if reason != interfaces.ABSENT:
            continue
        name = interfaces.mapped(row.text, hca_map) or row.text
        pci = node.former.get(name) or pci_address(name.strip())
        on_bus = pci in node.on_bus if pci and node.on_bus else None
        if on_bus:
            why = f"its PCI function {pci} is on the bus, so load or repair its driver"
        elif on_bus is False:
            why = f"its PCI function {pci} is not on the bus, so reseat or replace the NIC"
        else:
            why = "look for its NIC on the PCI bus"
        text = f"{row.text} of the plan, to {words.far(row)}, is not on this node: {why}."
        end = (row.device, row.port)
        yield draft(
            "missing-interface",
            [row.text],
            text,
            expected=end,
            facts={**row.facts, "pci": pci, "on-bus": on_bus},
            key=[row.text, *end],  # rows of a name that is none may be of several cables
        )


def _not_compared(
    without: Without, resolved: Resolved, node: SeenNode, draft: Draft
) -> Iterator[Finding]:
    """Yield one finding for each other reason why rows have no interface.

    If every backend port has a row, a name that is not known is of another port.
    """
    has_all = bool(node.ports) and {row.interface for row in resolved.rows}.issuperset(node.ports)
    low = {*LOW, interfaces.UNKNOWN} if has_all else LOW
    others = grouped(without, itemgetter(1))
    others.pop(interfaces.ABSENT, None)
    for reason, pairs in others.items():
        names = [*dict.fromkeys(row.text for row, _ in pairs)]
        text = f"{listed(names)} of the plan: not verified: {reason}."
        facts = {"reason": reason, "plan": pairs[0][0].place}
        severity = INFO if reason in low else None
        key = ["plan", reason]
        yield draft("unverifiable", names, text, facts=facts, key=key, severity=severity)
