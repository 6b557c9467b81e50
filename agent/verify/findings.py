"""Compare one node: the list of findings, and the result for each cable.

Pure. Every difference is one finding, and one cause one finding. A port that is down without a row
in the plan is none.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from agent.findings.finding import Draft, Finding, order
from agent.findings.names import unpadded
from agent.model import natural
from agent.plans.model import IGNORE
from agent.verify import cables, interfaces, joined, of_cables, pcie, rates, unmatched
from agent.verify.expected import one_each

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from agent.sources.pci import PciePath
    from agent.verify.cables import Checked
    from agent.verify.expected import Expected, Row
    from agent.verify.interfaces import Resolved
    from agent.verify.seen import Port, SeenNode

    Off = frozenset[str]

NO_NAMES: Mapping[str, str] = {}
OF_CABLES = frozenset({"miscabled", "wrong-port", "swapped", "missing", "missing-interface"})


class Options(NamedTuple):
    """The choices of the operator, and facts about this node."""

    off: frozenset[str] = frozenset()  # tolerances of names that are switched off
    ignore: tuple[str, ...] = ()  # globs of interfaces, netdevs, PCI addresses
    hca_map: Mapping[str, str] = NO_NAMES  # interface of the plan to interface, netdev or address
    addresses: Mapping[str, str] = NO_NAMES  # former interface to PCI address, from the Node
    on_bus: frozenset[str] = frozenset()  # PCI functions; empty: not read
    netdevs: frozenset[str] = frozenset()  # all of the node; empty: not read

    @property
    def lookup(self) -> interfaces.Lookup:
        """Where the names of the plan are looked up."""
        mapped = {interfaces.map_key(text): name for text, name in self.hca_map.items()}
        return interfaces.Lookup(mapped, self.on_bus, self.netdevs)

    def has_ignored(self, names: Iterable[str]) -> bool:
        """Return True if --ignore names one of these."""
        return any(fnmatchcase(name, glob) for name in names for glob in self.ignore)


DEFAULTS = Options()


class Result(NamedTuple):
    """The result of one node."""

    node: str
    findings: tuple[Finding, ...]
    cables: tuple[Checked, ...]
    unresolved: tuple[tuple[Row, str], ...] = ()  # rows without an interface, and why
    assumption: str | None = None

    @property
    def planned(self) -> int:
        """The number of cables of the plan that can be compared on this node."""
        checked = sum(one.status != cables.IGNORED for one in self.cables)
        return checked + sum(reason not in unmatched.LOW for _, reason in self.unresolved)

    @property
    def as_planned(self) -> int:
        """The number of cables that are as planned."""
        return sum(one.status == cables.AS_PLANNED for one in self.cables)


class _Subject(NamedTuple):
    """The two halves without what the operator ignores."""

    expected: Expected
    node: SeenNode
    resolved: Resolved
    ports: dict[str, Port]
    checked: list[Checked]


def verify(
    expected: Expected,
    node: SeenNode,
    options: Options = DEFAULTS,
    paths: Mapping[str, PciePath] | None = None,
) -> Result:
    """Compare the expected half with the observed one; `paths` are by PCI address, None: unread."""
    off, draft = options.off | _unsafe(expected), Draft(node.name)
    subject = _compared(expected, node, options, off)
    found = [
        *of_cables.findings(subject.checked, expected, off, draft),
        *_of_rows(subject, options, draft),
        *_of_rates(subject, draft),
        *(pcie.findings(subject.ports.values(), paths, draft) if paths is not None else ()),
    ]
    if not any(one.code in OF_CABLES for one in found):
        found += joined.findings(expected, node, subject.ports, draft)
    findings, checked = tuple(sorted(found, key=order)), tuple(subject.checked)
    without, assumption = _told(subject.resolved), subject.resolved.assumption
    return Result(node.name, findings, checked, without, assumption)


def _unsafe(expected: Expected) -> frozenset[str]:
    """Return `padding` if the plan has two switches that differ in leading zeros only."""
    names = {*expected.devices, *(row.device for row in expected.rows if row.device)}
    is_safe = len({unpadded(name) for name in names}) == len(names)
    return frozenset() if is_safe else frozenset({"padding"})


def _compared(expected: Expected, node: SeenNode, options: Options, off: Off) -> _Subject:
    resolved = interfaces.resolve(expected.rows, node, options.lookup, expected.interfaces)
    resolved = resolved._replace(rows=one_each(resolved.rows))
    ports = _kept_ports(node, resolved, options)
    resolved = _kept_rows(resolved, ports, options)
    checked = cables.check_all(resolved.rows, ports, resolved.numbered, expected.devices, off)
    return _Subject(expected, node, resolved, ports, of_cables.without_doubled(checked, expected))


def _kept_ports(node: SeenNode, resolved: Resolved, options: Options) -> dict[str, Port]:
    """Return the ports that --ignore names by no name of theirs, nor by that in the plan."""
    if not options.ignore:
        return node.ports
    ignored = {row.interface for row in resolved.rows if options.has_ignored([row.text])}
    return {
        name: port
        for name, port in node.ports.items()
        if name not in ignored and not options.has_ignored(_names(port))
    }


def _kept_rows(resolved: Resolved, ports: Mapping[str, Port], options: Options) -> Resolved:
    """Return the rows of these ports in their order, and the others that are not ignored."""
    rows = {row.interface: row for row in resolved.rows}
    without = [one for one in resolved.without if not options.has_ignored([one[0].text])]
    return resolved._replace(
        rows=tuple(rows[name] for name in ports if name in rows),
        without=tuple(sorted(without, key=lambda one: natural(one[0].text))),
    )


def _names(port: Port) -> list[str]:
    return [name for name in (port.interface, port.netdev, port.pci, port.device) if name]


def _told(resolved: Resolved) -> tuple[tuple[Row, str], ...]:
    """Return the rows without an interface that a finding may name."""
    return tuple(one for one in resolved.without if one[0].mark != IGNORE)


def _of_rows(subject: _Subject, options: Options, draft: Draft) -> Iterator[Finding]:
    """Yield the findings of rows without an interface, and of ports without a row."""
    resolved, ports = subject.resolved, subject.ports
    without = _told(resolved)
    has_all = bool(ports) and {row.interface for row in resolved.rows}.issuperset(ports)
    if subject.expected.rows:
        yield from unmatched.unexpected(resolved, ports, draft)
    yield from unmatched.missing(without, options.lookup, options.addresses, draft)
    yield from unmatched.unverifiable(without, draft, has_all=has_all)


def _of_rates(subject: _Subject, draft: Draft) -> Iterator[Finding]:
    by_interface = {one.port.interface: one for one in subject.checked}
    marked = {name for name, one in by_interface.items() if one.status == cables.IGNORED}
    ports = {name: port for name, port in subject.ports.items() if name not in marked}
    yield from rates.slow(ports.values(), by_interface, draft)
    if expected := subject.expected.speed:
        yield from rates.speed(_sum(subject, ports), expected, draft)


def _sum(subject: _Subject, kept: Collection[str]) -> rates.Sum:
    """Return the sum of all ports; those that are not `kept` are to be ignored."""
    node, without = subject.node, _told(subject.resolved)
    absent = [row.text for row, reason in without if reason == interfaces.ABSENT]
    ignored = node.ports.keys() - kept
    return rates.Sum(list(node.ports.values()), absent, ignored, is_complete=not node.unread)
